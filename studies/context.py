"""Which passage did the answer rest on, where it is known which?

    python studies/context.py planted --model FOLDER
    python studies/context.py regression --model FOLDER
    python studies/context.py self_attribution --model FOLDER --count 20
    python studies/context.py reliance --model FOLDER --count 20
    python studies/context.py needless --model FOLDER --count 20

``planted``   prompts of twelve short passages about made-up people, one of which holds the fact
              that is asked for; the answer is that fact. How often does each method put that
              passage first?
``regression``, ``self_attribution``, ``reliance``
              the first of these prompts by what costs more: a Lasso over 32 random halves, a path
              for every layer, one path for all heads (of at most 60 points)
``needless``  the same kind of passages in front of a question that everyone can answer without
              them; the answer is the right one. How often is it said to rest on a passage?

FOLDER holds SmolLM2-135M-Instruct (``make_models.py --bases``). Each appends a line to a file in
docs/data for every prompt, so that it can be stopped and started again. ``docs/making/context.py``
makes the tables of docs/context.md.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from study import DOCS, Row, parse, resumed, spent

import exhibit_a as xa
from exhibit_a.methods.attribution.reliance import token_scores

PASSAGES = 12
METHODS = {
    "planted": (
        "attention_gradient",
        "relevance",
        "gradient_input",
        "contribution_weights",
        "mean_attention",
    ),
    "regression": (),
    "self_attribution": ("self_attribution",),
    "reliance": ("reliance_path",),
    "needless": ("attention_gradient",),
}
SAMPLES = 32  # random halves for the regression
POINTS = 60  # of the path of reliance
FIRST = 2000  # seed of the first prompt that is reported; smaller ones were for trying things out

NAMES = [
    "Amelia",
    "Boris",
    "Clara",
    "Dmitri",
    "Elena",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jakub",
    "Keiko",
    "Lars",
    "Maya",
    "Nadia",
    "Otto",
    "Priya",
    "Quentin",
    "Rosa",
    "Stefan",
    "Tilda",
]


class Fact(NamedTuple):
    """Something about a person that nobody would guess, and the question about it."""

    said: str
    question: str
    values: str


FACTS = [
    Fact("lives in {}", "In which city does {} live?", "Tallinn Quito Hanoi Bergen Perth Tunis"),
    Fact(
        "works as a {}", "What is the job of {}?", "beekeeper cobbler falconer diver potter sailor"
    ),
    Fact("keeps a {} as a pet", "Which pet does {} keep?", "ferret turtle goat pony raven lizard"),
    Fact("plays the {}", "Which instrument does {} play?", "banjo zither tuba harp oboe bagpipes"),
    Fact(
        "wears a {} hat", "Which colour is the hat of {}?", "purple grey pink yellow silver beige"
    ),
    Fact(
        "likes to eat {}", "What does {} like to eat?", "olives turnips mangoes noodles figs oats"
    ),
]
KNOWN = {
    "What is the capital of France?": "Paris",
    "What is the opposite of hot?": "Cold",
    "How many days are in a week?": "Seven",
    "Which colour is grass?": "Green",
    "Which planet do we live on?": "Earth",
    "What is the first letter of the alphabet?": "A",
    "What do bees make?": "Honey",
    "What is two plus two?": "Four",
    "Which animal barks?": "Dog",
    "What is frozen water called?": "Ice",
    "Which season comes after winter?": "Spring",
    "What is the capital of Italy?": "Rome",
    "Which organ pumps blood?": "The heart",
    "What is the opposite of up?": "Down",
    "Which star does the earth go around?": "The sun",
    "How many legs does a spider have?": "Eight",
    "What is the capital of Japan?": "Tokyo",
    "Which colour is the sky on a clear day?": "Blue",
    "What is the opposite of day?": "Night",
    "Which metal has the symbol Fe?": "Iron",
}


@dataclass(frozen=True)
class Prompt:
    """A question, its passages, the answer, and which passage holds it (none: -1)."""

    question: str
    passages: list[str]
    answer: str
    evidence: int


def main() -> None:
    given = {"model": str, "count": 100, "first": FIRST, "name": str, "docs": DOCS}
    options = parse(__doc__, need=["model"], part=METHODS, **given)
    xa.register(reliance_path, gives="tokens", question="What did looking at each token add?")
    subject, what = xa.load(options.model), options.part
    prompt = needless if what == "needless" else planted

    def measure(seed: int) -> Row:
        seconds, row = spent(lambda: examined(subject, what, prompt(seed)))
        return row | {"seconds": seconds}

    seeds = range(options.first, options.first + options.count)
    file = options.docs / f"context-{options.name or what}.jsonl"
    resumed(file, [({"seed": seed}, lambda seed=seed: measure(seed)) for seed in seeds])


def reliance_path(trace: xa.Trace, target: xa.Target) -> object:
    """What looking at each token added along a path of few points."""
    return token_scores(trace, target, points=POINTS)


def planted(seed: int) -> Prompt:
    """Twelve people, a fact about each, and a question about one of them."""
    dice = random.Random(seed)
    people, evidence = dice.sample(NAMES, PASSAGES), dice.randrange(PASSAGES)
    asked = dice.choice(FACTS)
    values = {fact: fact.values.split() for fact in FACTS}
    answer = dice.choice(values[asked])
    values[asked].remove(answer)  # nobody else has it
    passages = []
    for place, person in enumerate(people):
        fact = asked if place == evidence else dice.choice(FACTS)
        value = answer if place == evidence else dice.choice(values[fact])
        passages.append(f"{person} {fact.said.format(value)}.")
    question = asked.question.format(people[evidence])
    return Prompt(question, passages, f"{people[evidence]} {asked.said.format(answer)}.", evidence)


def needless(seed: int) -> Prompt:
    """The same passages in front of what everyone knows."""
    question, answer = list(KNOWN.items())[seed % len(KNOWN)]
    return Prompt(question, planted(seed).passages, answer, -1)


def examined(subject: xa.Subject, what: str, prompt: Prompt) -> Row:
    """Everything that the table needs about one prompt."""
    asked = {
        "answer": prompt.answer,
        "methods": METHODS[what],
        "samples": SAMPLES if what == "regression" else 0,
    }
    found = xa.context_attribution(subject, prompt.question, prompt.passages, **asked)
    referees = ["leave_one_out"] if found.regression is None else ["leave_one_out", "regression"]
    pairs = {
        name: each["leave_one_out"]
        for name, each in found.agreement.items()
        if "leave_one_out" in each
    }
    return {
        "evidence": prompt.evidence,
        "tokens": found.checks["tokens"],
        "first": {name: found.ranking(name)[0] for name in (*found.scores, *referees)},
        "spearman": {name: pair.spearman for name, pair in pairs.items()},
        "predicts": found.predicts,
        "passes": found.passes,
        "need": found.need,
        "log_probability": found.log_probability,
        "rests_on": found.rests_on,
        "leave_one_out": [round(value, 4) for value in found.leave_one_out.tolist()],
        "verdict": found.verdict,
    }


if __name__ == "__main__":
    main()
