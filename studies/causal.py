"""Does what holds for encoders hold where a token sees only the tokens before it?

    python studies/causal.py --base FOLDER --data DATA [--texts 6] [--parts sinks rows mixing]

A causal language model on the beginnings of paragraphs of wikitext-2. ``make_models.py --bases``
makes the folder of SmolLM2-135M-Instruct; ``stories`` comes with the package.

sinks   the share of weight on the first token by layer, raw and effective, beside a uniform share,
in late rows: those
        that see more tokens than a head is wide, for in the others raw and effective attention are
        the same; how many heads have a sink there, and what it does (no-op, null space, broadcast,
        mixed)
rows    the dimensions that each row's output cannot show: a row sees the tokens up to its own, so
within one text
        early rows are determined and late ones are not. With rotary positions a word that comes
        twice has the same value twice in the first layer, so rows after it are not
mixing  own share, tokens that are not their own first contributor, what comes from the first token
and from each
        distance, by layer; of the first ``--short`` tokens

Numbers of each layer are kept in docs/data/causal-MODEL.json, what claims rest on goes into the
ledger, and a figure of the first two into the folder given.
"""

import argparse
from pathlib import Path

import matplotlib
import torch
from study import DOCS, Ledger, Row, cut, figure_name, keep, ledger_of, paragraphs, parse, save

import exhibit_a as xa
from exhibit_a.methods.heads.sinks import KINDS
from exhibit_a.methods.mixing.hidden_attribution import by_distance, displaced
from exhibit_a.report.figures.drawing import COLUMNS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import BLUE, GREY, VERMILION

FAR = 5  # tokens away
SHOWN = 12  # distances that are kept
OF = "paragraphs"


def main() -> None:
    given = {"base": str, "data": Path, "texts": 6, "longest": 128, "short": 24, "probes": 8}
    parts = ("sinks", "rows", "mixing")
    options = parse(__doc__, need=["base", "data"], parts=parts, figures=Path, docs=DOCS, **given)
    subject = xa.load(options.base)
    texts = paragraphs(subject, options)
    found: Row = {}
    if {"sinks", "rows"} & set(options.parts):
        found |= looked(subject, texts, options)
    if "mixing" in options.parts:
        found["mixing"] = mixing(subject, texts, options)
    keep(options, "causal", found)
    if options.figures is not None and {"sinks", "rows"} <= found.keys():
        save(
            figure(found["sinks"], found["rows"]),
            options.figures / f"{figure_name(options, 'causal')}.svg",
        )


def ledger_for(options: argparse.Namespace, tokens: int) -> Ledger:
    return ledger_of(options, f"wikitext-2 test, first {tokens} tokens of paragraphs")


def looked(subject: xa.Subject, texts: list[str], options: argparse.Namespace) -> Row:
    """Sinks and rows, which need the same maps."""
    traces = (cut(subject, text, options.longest) for text in texts)
    by_text = [of_sinks(trace) | of_rows(trace) for trace in traces]
    every = {name: torch.stack([one[name] for one in by_text]) for name in by_text[0]}
    width, ledger, found = (
        int(subject.anatomy.sites[0].d_head),
        ledger_for(options, options.longest),
        {},
    )
    if "sinks" in options.parts:
        even = even_share(late_rows(subject, options.longest), options.longest)
        write_sinks(every, even, ledger)
        names = ("raw", "effective", "sink heads", "kinds")
        found["sinks"] = {name: every[name].double().mean(0).tolist() for name in names}
        found["sinks"] |= {
            "paragraphs": len(texts),
            "tokens": options.longest,
            "even": even,
            "kinds are": list(KINDS),
        }
    if "rows" in options.parts:
        write_rows(every["nullity"], width, ledger)
        names = ("nullity", "null fraction")
        found["rows"] = {name: every[name].double().mean((0, 1)).tolist() for name in names}
        found["rows"] |= {"width": width, "paragraphs": len(texts)}
    return found


def late_rows(subject: xa.Subject, tokens: int) -> int:
    """The first row that sees more tokens than a head is wide; the second, if the text is short."""
    width = int(subject.anatomy.sites[0].d_head)
    return width if width < tokens else 1


def even_share(first: int, tokens: int) -> float:
    """The weight on the first token if attention were uniform in every row from ``first`` on."""
    return sum(1 / (row + 1) for row in range(first, tokens)) / (tokens - first)


def of_sinks(trace: xa.Trace) -> dict[str, torch.Tensor]:
    """By layer: the weight on the first token in late rows, and what the sinks of heads do."""
    late = slice(late_rows(trace.subject, len(trace.tokens)), None)
    diagnosis = xa.sink_diagnosis(trace)
    sizes = [site[:, late].abs() for site in xa.effective_attention(trace).effective]
    kinds = list(zip(diagnosis.kind, diagnosis.key, strict=True))
    return {
        "raw": torch.stack([site[:, late, 0].float().mean() for site in trace.attention]),
        "effective": torch.stack([(size[..., 0] / size.sum(-1)).float().mean() for size in sizes]),
        "sink heads": torch.stack(
            [((kind > 0) & (key == 0)).float().mean() for kind, key in kinds]
        ),
        "kinds": torch.stack(
            [torch.bincount(kind, minlength=len(KINDS)) / len(kind) for kind, _ in kinds]
        ),
    }


def of_rows(trace: xa.Trace) -> dict[str, torch.Tensor]:
    """By layer and row, mean over heads: dimensions that the output cannot show, and their part."""
    result = xa.effective_attention(trace)
    return {
        "nullity": torch.stack([site.double().mean(0) for site in result.nullity]),
        "null fraction": torch.stack([site.double().mean(0) for site in result.null_fraction]),
    }


def write_sinks(every: dict[str, torch.Tensor], even: float, ledger: Ledger) -> None:
    """What the claims about sinks rest on: a number for each paragraph."""
    later = "layers after the first"  # the first looks before anything was mixed
    raw, effective, heads, kinds = (
        every[name][:, 1:].mean(1) for name in ("raw", "effective", "sink heads", "kinds")
    )
    for name, values in {
        "weight of late rows on the first token": raw,
        "weight that the first token loses in effective attention, late rows": raw - effective,
        "effective weight of late rows on the first token, over its even share": effective / even,
        "heads whose sink is the first token": heads,
    }.items():
        ledger.mean(f"{name}, {later}", values, OF)
    for place, kind in enumerate(KINDS[1:], start=1):
        ledger.mean(f"sinks that are {kind}, {later}", kinds[:, place] / kinds[:, 1:].sum(1), OF)


def write_rows(nullity: torch.Tensor, width: int, ledger: Ledger) -> None:
    """What the claims about short and long rows rest on."""
    early = (nullity[:, :, :width] == 0).double().mean(2)
    name = f"rows that see at most {width} tokens and are determined by their output"
    ledger.mean(f"{name}, layers after the first", early[:, 1:].mean(1), OF)
    ledger.mean(f"{name}, first layer", early[:, 0], OF)
    name = f"dimensions that the output of row {nullity.shape[2]} cannot show, heads {width} wide"
    ledger.mean(name, nullity[:, :, -1].mean(1), OF)


def mixing(subject: xa.Subject, texts: list[str], options: argparse.Namespace) -> Row:
    """Own shares, displaced tokens, the first token and neighbours, by layer."""
    own, lost, first, near = [], [], [], []
    for number, text in enumerate(texts):
        found = xa.hidden_attribution(
            cut(subject, text, options.short), probes=options.probes, seed=number
        )
        total, pairs = by_distance(found.contribution)
        pairs[1:] /= 2  # only the tokens before a token reach it
        own.append(found.self_contribution[:, 1:].median(1).values)
        lost.append(displaced(found.contribution)[:, 1:].double().mean(1))
        first.append(found.contribution[:, 1:, 0].mean(1))
        near.append((total / pairs)[:, :SHOWN])
    shares, moved, begun, reach = (torch.stack(each) for each in (own, lost, first, near))
    ledger = ledger_for(options, options.short)
    for name, values in {
        "own share after layer 1, median token": shares[:, 1],
        "own share after the last layer, median token": shares[:, -1],
        "tokens that are not their own first contributor, last layer": moved[:, -1],
        "contribution of the first token, last layer": begun[:, -1],
        "contribution of a direct neighbour less that of one five away": (
            reach[:, 1:, 1] - reach[:, 1:, FAR]
        ).mean(1),
        "contribution of a token five away, last layer less first": reach[:, -1, FAR]
        - reach[:, 1, FAR],
    }.items():
        ledger.mean(name, values, OF)
    kept = {
        "own share": shares,
        "not own top": moved,
        "first token": begun,
        "contribution by distance": reach,
    }
    kept = {name: each.mean(0).tolist() for name, each in kept.items()}
    return {"paragraphs": len(texts), "tokens": options.short, "probes": options.probes} | kept


def figure(sinks: Row, rows: Row) -> PaperFigure:
    """The first token's weight by layer, and what each row's output cannot show."""
    with matplotlib.rc_context({"font.size": 7, "axes.titlesize": 7}):
        drawn = PaperFigure((COLUMNS["one column"], 3.6))
        above, below = drawn.subplots(2, 1)
        above.plot(sinks["raw"], "-o", color=BLUE, markersize=2.5, label="weight")
        above.plot(sinks["effective"], "--s", color=VERMILION, markersize=2.5, label="effective")
        above.axhline(sinks["even"], color=GREY, linestyle=":", linewidth=0.8, label="even share")
        above.set(xlabel="layer", ylabel="on the first token", ylim=(0, 1))
        above.legend(frameon=False)
        below.plot(range(1, 1 + len(rows["nullity"])), rows["nullity"], color=BLUE)
        below.axvline(rows["width"], color=GREY, linestyle=":", linewidth=0.8)
        below.set(xlabel="tokens that a row sees", ylabel="dimensions not shown")
    return drawn


if __name__ == "__main__":
    main()
