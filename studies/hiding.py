"""Hiding words against deleting them: which heat maps beat chance, what is advised, how steadily?

    python studies/hiding.py --data DATA [--texts 872] [--twice 200] [--work FOLDER]
    python studies/hiding.py --base MODELS/SmolLM2-135M-Instruct [--longest 400] [--work FOLDER]

A classifier is given the sentences of SST-2's development set, a language model the prompts of
``prompts.py`` of at most ``--longest`` tokens, the shortest first. The heat maps of a text are made
once, and judged four times: with words hidden and with words deleted, and each again with another
seed (of SST-2, the first ``--twice`` sentences). A text is one line of FOLDER/MODEL.jsonl, so that
the study can be stopped and started again. The sums go into docs/data/hiding.json:

better     the share of texts where the ranking beats random orders (p ≤ .05)
loss       what the margin loses without the first words, mean over the cuts
agreement  the share of texts where hiding and deleting give the same advice
steady     the share of texts where another seed gives the same advice
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from prompts import PROMPTS, Prompt
from study import DOCS, Row, mean_and_half, parse, resumed, rounded, spent

import exhibit_a as xa
from exhibit_a.errors import NotComputableError
from exhibit_a.examples import read_examples
from exhibit_a.numerics.intervals import wilson

WAYS = ("hide", "delete")
SEEDS = (0, 1)
LEVEL = 0.05
MAPS = ("raw", "mean_attention", "rollout", "attention_gradient", "effective")
OF_CLASSIFIERS = "self_attribution"


def main() -> None:
    options = parse(
        __doc__,
        base="sentiment",
        data=Path,
        texts=872,
        twice=200,
        longest=400,
        work=Path("build/studies/hiding"),
        out=DOCS / "hiding.json",
    )
    subject, name = xa.load(options.base), Path(options.base).name
    if subject.anatomy.answers == "tokens":
        names = MAPS
        traces = of_prompts(subject, options.longest, options.texts)
    else:
        names = (*MAPS, OF_CLASSIFIERS)
        traces = of_sentences(subject, options.data / "SST-2" / "dev.tsv", options.texts)

    def row(number: int, captured: Callable[[], xa.Trace]) -> Row:
        return measured(captured(), names, SEEDS if number < options.twice else SEEDS[:1])

    work = [
        ({"text": number}, lambda number=number, trace=trace: row(number, trace))
        for number, trace in traces
    ]
    rows = resumed(options.work / f"{name}.jsonl", work, rounded)
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    known[name] = rounded(summary(rows))
    options.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


Traces = list[tuple[int, Callable[[], xa.Trace]]]  # by the number of the text


def of_sentences(subject: xa.Subject, path: Path, count: int) -> Traces:
    """The first sentences of a file."""
    texts = [example.text for example in read_examples(path)[:count]]
    return [
        (number, lambda text=text: xa.capture(subject, text)) for number, text in enumerate(texts)
    ]


def of_prompts(subject: xa.Subject, longest: int, count: int) -> Traces:
    """The prompts that are not too long, with their answers, the shortest first."""

    def trace(prompt: Prompt) -> xa.Trace:
        text = [{"role": "user", "content": prompt.text}] if prompt.chat else prompt.text
        return xa.capture(subject, text, target_text=prompt.answer)

    lengths = [len(subject.tokenizer(prompt.text)["input_ids"]) for prompt in PROMPTS]
    order = [place for place in range(len(PROMPTS)) if lengths[place] <= longest]
    order.sort(key=lambda place: lengths[place])
    return [(place, lambda prompt=PROMPTS[place]: trace(prompt)) for place in order[:count]]


def measured(trace: xa.Trace, names: Sequence[str], seeds: Sequence[int]) -> Row:
    """The advice about every heat map of one text, by both ways and for each seed."""
    maps = {name: row.scores for name, row in xa.companions(trace, methods=names).items()}
    row: Row = {"tokens": len(trace.tokens)}
    for way in WAYS:
        row[way] = []
        for seed in seeds:
            try:
                seconds, result = spent(
                    lambda way=way, seed=seed: xa.heat_maps(
                        trace, methods=maps, erase=way, seed=seed
                    )
                )
            except NotComputableError as problem:
                return row | {"refused": str(problem)}
            row["words"], row["probability"] = len(result.words), result.probability
            row[way].append({"seconds": seconds, "passes": result.passes, "maps": judged(result)})
    return row


def judged(result: xa.HeatMaps) -> Row:
    """What is kept of every heat map."""
    return {
        name: {
            "advice": heat_map.advice,
            "p": heat_map.p_value,
            "loss": heat_map.loss,
            "probability_loss": heat_map.probability_loss,
        }
        for name, heat_map in result.items()
    }


def summary(rows: Sequence[Row]) -> Row:
    """The sums over all texts of one model."""
    read = [row for row in rows if "refused" not in row]
    twice = [row for row in read if len(row[WAYS[0]]) == len(SEEDS)]
    first = {way: [row[way][0] for row in read] for way in WAYS}
    found: Row = {"texts": len(read), "refused": len(rows) - len(read), "twice": len(twice)}
    found["passes"] = {way: mean(entry["passes"] for entry in first[way]) for way in WAYS}
    found["maps"] = {
        name: {
            "agreement": share(
                advice(row, "hide", 0, name) == advice(row, "delete", 0, name) for row in read
            )
        }
        | {
            way: {
                "better": share(entry["maps"][name]["p"] <= LEVEL for entry in first[way]),
                "show": share(entry["maps"][name]["advice"] == "show" for entry in first[way]),
                "loss": mean(entry["maps"][name]["loss"] for entry in first[way]),
                "probability_loss": mean(
                    entry["maps"][name]["probability_loss"] for entry in first[way]
                ),
                "steady": share(
                    advice(row, way, 0, name) == advice(row, way, 1, name) for row in twice
                ),
            }
            for way in WAYS
        }
        for name in first["hide"][0]["maps"]
    }
    return found


def advice(row: Row, way: str, seed: int, name: str) -> str:
    """The advice about one heat map of one text."""
    word: str = row[way][seed]["maps"][name]["advice"]
    return word


def share(claims: Iterable[bool]) -> Row:
    """How many of how many, as a share with Wilson's interval."""
    each = list(claims)
    middle = sum(each) / len(each)
    return {"value": middle, "interval": wilson(torch.tensor(middle), len(each)).tolist()}


def mean(values: Iterable[float]) -> Row:
    """A mean with Student's interval."""
    middle, half = mean_and_half(values)
    return {"value": middle, "interval": [middle - half, middle + half]}


if __name__ == "__main__":
    main()
