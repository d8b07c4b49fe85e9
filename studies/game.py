"""How far do answers of language models rest on attention, and does the game of levelled heads say
so?

    python studies/game.py prompts --base FOLDER [--dtype bfloat16] [--every 2]
    python studies/game.py baselines --data DATA [--count 100]
    PYTHONPATH=tests python studies/game.py planted [--first 9000] [--count 8]

``prompts``    of our own (``prompts.py``): points, passes, gap, the first heads, and whether they
               are the ones: the first carriers levelled together, beside random sets of as many
``baselines``  levelled beside uniform attention, with `sentiment` on SST-2 and `nli` on MNLI
``planted``    models whose truth is known: which heads have a share, by baseline

A row for each text is appended to docs/data/game-<part>.jsonl, so that the study can be stopped and
started again.
"""

import argparse
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from prompts import PROMPTS, Prompt
from study import DOCS, Row, parse, read_nli, read_sst, resumed
from torch import Tensor

import exhibit_a as xa
from exhibit_a.methods.attribution.head_game import HeadGame
from exhibit_a.methods.attribution.reliance import game_rows
from exhibit_a.numerics.seeds import generator
from exhibit_a.trace.targets import chosen_target, margin_of

Work = Iterator[tuple[Row, Callable[[], Row]]]
RANDOM_SETS = 12
MOST_CARRIERS = 8
HALF = 0.5  # of what all heads take
LINE = 0.05  # of the margin: where a head begins to carry
NOTHING = 1e-3  # of the margin: shares below it are rounding


def main() -> None:
    options = parse(
        __doc__,
        part=("prompts", "baselines", "planted"),
        **{
            "base": Path,
            "dtype": "float32",
            "data": Path,
            "first": 9000,
            "count": 0,
            "every": 1,
            "docs": DOCS,
        },
    )
    parts = {"prompts": of_prompts, "baselines": of_baselines, "planted": of_planted}
    resumed(options.docs / f"game-{options.part}.jsonl", parts[options.part](options))


def of_prompts(options: argparse.Namespace) -> Work:
    """Every prompt on one model."""
    subject = xa.load(str(options.base), dtype=options.dtype)
    for number in range(0, len(PROMPTS), options.every):
        prompt = PROMPTS[number]
        key = {"model": options.base.name, "dtype": options.dtype, "number": number}
        yield key | {"kind": prompt.kind}, lambda prompt=prompt: of_prompt(subject, prompt)


def of_prompt(subject: xa.Subject, prompt: Prompt) -> Row:
    """The game of one prompt, for the model's own next token."""
    begun = time.process_time()
    trace = xa.capture(subject, given(subject, prompt), rows=[-1])
    captured = time.process_time()
    relied = xa.reliance(trace)
    shares = torch.cat(relied.heads)
    row: Row = {
        "tokens": len(trace.tokens),
        "answer": relied.target,
        "seconds": [round(captured - begun, 2), round(time.process_time() - captured, 2)],
        "points": relied.checks["points"],
        "passes": relied.checks["forward passes"],
        "determined": relied.determined,
        "reason": relied.reason,
        "steering": relied.steering_reason or True,
        "margin": relied.margin,
        "whole": relied.whole,
        "block": [list(relied.block_layers), relied.block_worth],
        "gap": relied.checks["gap as a share of the whole"],
        "heads": named(relied, shares),
        "steer": named(relied, torch.cat(relied.steering).nan_to_num()),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return row | carriers(trace, relied, shares)


def given(subject: xa.Subject, prompt: Prompt) -> object:
    """What the model is given: a text with the beginning token it wants, or a user's message."""
    if not prompt.chat or not getattr(subject.tokenizer, "chat_template", None):
        return (subject.beginning.token if subject.beginning else "") + prompt.text
    return [{"role": "user", "content": prompt.text}]


def named(relied: xa.Reliance, numbers: Tensor) -> list[list[float]]:
    """The five heads with the largest numbers: layer, head, part of the margin."""
    largest, places = numbers.abs(), [(s.layer, h) for s in relied.sites for h in range(s.heads)]
    return [
        [*places[int(place)], round(float(numbers[place]) / (relied.size or 1.0), 3)]
        for place in largest.topk(5).indices
    ]


def carriers(trace: xa.Trace, relied: xa.Reliance, shares: Tensor) -> Row:
    """What the first carriers take together, and what random sets of as many other heads take."""
    target = chosen_target(trace, None)
    game = HeadGame(game_rows(trace, target, None), margin_of(target))
    playing = [place for place, (site, _) in enumerate(game.heads) if not_in_block(relied, site)]
    first = sorted((p for p in playing if shares[p] > 0), key=lambda p: -float(shares[p]))
    wanted = HALF * float(shares.sum())
    sizes = range(1, min(MOST_CARRIERS, len(first)) + 1)
    lost = game.margin - game.margins(torch.stack([game.setting(first[:k]) for k in sizes]))
    enough = [size for size, loss in zip(sizes, lost.tolist(), strict=True) if loss >= wanted > 0]
    size = enough[0] if enough else min(5, len(first))
    others = [place for place in playing if place not in first[:size]]
    seeded = generator(0)
    sets = [
        [others[i] for i in torch.randperm(len(others), generator=seeded)[:size].tolist()]
        for _ in range(RANDOM_SETS)
    ]
    random_loss = game.margin - game.margins(torch.stack([game.setting(each) for each in sets]))
    return {
        "carriers": size,
        "loss": float(lost[size - 1]),
        "random": float(random_loss.abs().mean()),
    }


def not_in_block(relied: xa.Reliance, site: int) -> bool:
    """Whether the heads of a site have shares."""
    return relied.sites[site].call not in relied.block_layers


def of_baselines(options: argparse.Namespace) -> Work:
    """Both baselines on texts of two tasks."""
    sst = [example.text for example in read_sst(options.data / "SST-2" / "dev.tsv")]
    pairs = [(e.text, e.pair) for e in read_nli(options.data, "MNLI", "dev")]
    count = options.count or 100
    texts = {
        "sentiment": [(text, None) for text in random.Random(3).sample(sst, count)],
        "nli": random.Random(3).sample(pairs, count),
    }
    for name, drawn in texts.items():
        subject = xa.load(name)
        for text, pair in drawn:
            yield (
                {"model": name, "text": text, "pair": pair},
                lambda subject=subject, text=text, pair=pair: both(subject, text, pair),
            )


def both(subject: xa.Subject, text: object, pair: str | None = None) -> Row:
    """The game with both baselines, side by side."""
    trace = xa.capture(subject, text, pair=pair)
    games = [xa.reliance(trace, baseline=each) for each in ("levelled", "uniform")]
    levelled, shares = games[0], [torch.cat(each.heads).double() for each in games]
    carry = [mine.abs() >= LINE * each.size for mine, each in zip(shares, games, strict=True)]
    return {
        "tokens": len(trace.tokens),
        "margin": levelled.margin,
        "sink effect": levelled.sink_effect,
        "correlation": float(torch.corrcoef(torch.stack(shares))[0, 1]),
        "same side of the line": float((carry[0] == carry[1]).double().mean()),
        **{
            name: {
                "whole": each.whole,
                "gap": each.checks["gap as a share of the whole"],
                "points": each.checks["points"],
                "passes": each.checks["forward passes"],
                "block": len(each.block_layers),
                "determined": each.determined,
                "steering": not each.steering_reason,
                "carry": int(some.sum()),
            }
            for name, each, some in zip(("levelled", "uniform"), games, carry, strict=True)
        },
    }


def of_planted(options: argparse.Namespace) -> Work:
    """Which heads have a share in models whose truth is known."""
    from planted.kinds import KINDS, planted

    for kind in KINDS:
        for seed in range(options.first, options.first + (options.count or 8)):
            yield (
                {"kind": kind, "seed": seed},
                lambda kind=kind, seed=seed: of_model(planted(kind, seed)),
            )


def of_model(model: object) -> Row:
    """The shares of decisive heads and the largest other one, and the path beside exact shares."""
    trace = xa.capture(model.subject, model.inputs)
    row: Row = {"heads": sum(site.heads for site in trace.sites)}
    for baseline in ("levelled", "uniform"):
        for rows in (None, "all"):
            relied = xa.reliance(trace, baseline=baseline, rows=rows)
            size = relied.size or 1.0
            shares, steering = (
                {
                    (site, head): abs(float(share)) / size
                    for site, heads in enumerate(numbers)
                    for head, share in enumerate(heads)
                }
                for numbers in (relied.heads, relied.steering)
            )
            others = [share for head, share in shares.items() if head not in model.decisive]
            row[f"{baseline}, {'all' if rows else 'default'} rows"] = {
                "whole": relied.whole / size,
                "determined": relied.determined,
                "decisive": [round(shares[head], 3) for head in model.decisive],
                "steering": [round(steering[head], 3) for head in model.decisive],
                "others": round(max(others, default=0.0), 3),
            }
    path = xa.reliance(trace, by="path", rows="all")
    exact = xa.reliance(trace, rows="all")
    both = torch.stack([torch.cat(each.heads).double() for each in (path, exact)])
    if exact.way == "coalitions" and float(both.abs().amax()) > NOTHING * exact.size:
        carries = both.abs() >= LINE * exact.size
        row["path"] = {
            "determined": path.determined,
            "points": path.checks["points"],
            "r": float(torch.corrcoef(both)[0, 1]),
            "error": float((both[0] - both[1]).abs().mean() / exact.size),
            "same side": float((carries[0] == carries[1]).double().mean()),
        }
    return row


if __name__ == "__main__":
    main()
