"""Does what holds for encoders hold where a token sees only the tokens before it?

    python studies/causal.py --base FOLDER --data DATA [--texts 6] [--parts sinks rows mixing]

A causal language model on the beginnings of paragraphs of wikitext-2. ``bases.saved_smollm2``
makes the folder of SmolLM2-135M-Instruct; ``stories`` comes with the package.

sinks   the share of weight on the first token by layer, raw and effective, beside an even share, in
        late rows: those that see more tokens than a head is wide, for in the others raw and
        effective attention are the same; how many heads have a sink there, and what it does (no-op,
        null space, broadcast, mixed)
rows    the dimensions that each row's output cannot show: a row sees the tokens up to its own, so
        within one text early rows are determined and late ones are not. With rotary positions a
        word that comes twice has the same value twice in the first layer, so rows after it are not
mixing  own share, tokens that are not their own first contributor, what comes from the first token
        and from each distance, by layer

Numbers of each layer are kept in docs/data/causal-MODEL.json, what claims rest on goes into the
ledger, and a figure of the first two into the folder given.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import torch
import transformers
from drawing import save
from identifiability import DOCS, figure_name, keep, opened, paragraphs
from ledger import Ledger, add_option

import exhibit_a as xa
from exhibit_a.methods.heads.sinks import KINDS
from exhibit_a.methods.mixing.hidden_attribution import by_distance, displaced
from exhibit_a.report.figures.drawing import COLUMNS
from exhibit_a.report.figures.paper import PaperFigure
from exhibit_a.report.palette import BLUE, GREY, VERMILION
from exhibit_a.trace.capture import Trace

FAR = 5  # tokens away
SHOWN = 12  # distances that are kept
PARTS = ("sinks", "rows", "mixing")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--base", required=True, help="folder of a causal model, or a name")
    asked.add_argument("--data", type=Path, required=True, help="folder with wikitext-2")
    asked.add_argument("--texts", type=int, default=6, help="paragraphs")
    asked.add_argument("--longest", type=int, default=128, help="tokens, for sinks and rows")
    asked.add_argument("--short", type=int, default=24, help="tokens, for mixing")
    asked.add_argument("--probes", type=int, default=8, help="for mixing")
    asked.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    asked.add_argument("--figures", type=Path, help="draw the figure into this folder")
    asked.add_argument("--docs", type=Path, default=DOCS, help="folder of the kept numbers")
    add_option(asked)
    options = asked.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    subject = xa.load(options.base)
    texts = paragraphs(subject, options)
    ledger = opened(options, f"wikitext-2 test, first {options.longest} tokens of paragraphs")
    found: dict[str, Any] = {}
    if "sinks" in options.parts or "rows" in options.parts:
        found |= looked(subject, texts, options, ledger)
    if "mixing" in options.parts:
        short = opened(options, f"wikitext-2 test, first {options.short} tokens of paragraphs")
        found["mixing"] = mixing(subject, texts, options, short)
    keep(options, "causal", found)
    if options.figures is not None and {"sinks", "rows"} <= found.keys():
        drawn = figure(found["sinks"], found["rows"])
        save(drawn, options.figures / f"{figure_name(options, 'causal')}.svg")


def traced(subject: xa.Subject, text: str, tokens: int) -> Trace:
    """The beginning of a text."""
    cut = subject.tokenizer(text, truncation=True, max_length=tokens, return_tensors="pt")
    kept = {name: cut[name] for name in ("input_ids", "attention_mask")}
    return xa.capture(subject, kept)


def looked(
    subject: xa.Subject, texts: list[str], options: argparse.Namespace, ledger: Ledger
) -> dict[str, Any]:
    """Sinks and rows, which need the same maps."""
    by_text: list[dict[str, torch.Tensor]] = []
    for number, text in enumerate(texts):
        trace = traced(subject, text, options.longest)
        by_text.append(of_sinks(trace) | of_rows(trace))
        print(f"{number}: {len(trace.tokens)} tokens", flush=True)
    every = {name: torch.stack([one[name] for one in by_text]) for name in by_text[0]}
    width = int(subject.anatomy.sites[0].d_head)
    found = {}
    if "sinks" in options.parts:
        even = even_share(late_rows(subject, options.longest), options.longest)
        write_sinks(every, even, ledger)
        names = ("raw", "effective", "sink heads", "kinds")
        found["sinks"] = {name: every[name].double().mean(0).tolist() for name in names}
        found["sinks"] |= {"paragraphs": len(texts), "tokens": options.longest}
        found["sinks"] |= {"even": even, "kinds are": list(KINDS)}
    if "rows" in options.parts:
        write_rows(every, width, ledger)
        names = ("nullity", "null fraction")
        found["rows"] = {name: every[name].double().mean((0, 1)).tolist() for name in names}
        found["rows"] |= {"width": width, "paragraphs": len(texts)}
    return found


def late_rows(subject: xa.Subject, tokens: int) -> int:
    """The first row that sees more tokens than a head is wide; the second, if the text is short."""
    width = int(subject.anatomy.sites[0].d_head)
    return width if width < tokens else 1


def even_share(first: int, tokens: int) -> float:
    """The weight on the first token if every row from ``first`` on looked evenly."""
    return sum(1 / (row + 1) for row in range(first, tokens)) / (tokens - first)


def of_sinks(trace: Trace) -> dict[str, torch.Tensor]:
    """By layer: the weight on the first token in late rows, and what the sinks of heads do."""
    late = slice(late_rows(trace.subject, len(trace.tokens)), None)
    effective = xa.effective_attention(trace).effective
    diagnosis = xa.sink_diagnosis(trace)
    raw = [site[:, late, 0].float().mean() for site in trace.attention]
    sizes = [site[:, late].abs() for site in effective]
    seen = [(size[..., 0] / size.sum(-1)).float().mean() for size in sizes]
    at_first = [
        ((kind > 0) & (key == 0)).float().mean()
        for kind, key in zip(diagnosis.kind, diagnosis.key, strict=True)
    ]
    kinds = [torch.bincount(kind, minlength=len(KINDS)) / len(kind) for kind in diagnosis.kind]
    return {
        "raw": torch.stack(raw),
        "effective": torch.stack(seen),
        "sink heads": torch.stack(at_first),
        "kinds": torch.stack(kinds),
    }


def of_rows(trace: Trace) -> dict[str, torch.Tensor]:
    """By layer and row, mean over heads: dimensions that the output cannot show, and their part."""
    result = xa.effective_attention(trace)
    return {
        "nullity": torch.stack([site.double().mean(0) for site in result.nullity]),
        "null fraction": torch.stack([site.double().mean(0) for site in result.null_fraction]),
    }


def write_sinks(every: dict[str, torch.Tensor], even: float, ledger: Ledger) -> None:
    """What the claims about sinks rest on: a number for each paragraph."""
    later = slice(1, None)  # layers; the first looks before anything was mixed
    raw, effective = every["raw"][:, later].mean(1), every["effective"][:, later].mean(1)
    name = "weight of late rows on the first token, layers after the first"
    ledger.mean(name, raw, "paragraphs")
    name = "weight that the first token loses in effective attention, late rows, "
    name += "layers after the first"
    ledger.mean(name, raw - effective, "paragraphs")
    name = "effective weight of late rows on the first token, over its even share, "
    name += "layers after the first"
    ledger.mean(name, effective / even, "paragraphs")
    name = "heads whose sink is the first token, layers after the first"
    ledger.mean(name, every["sink heads"][:, later].mean(1), "paragraphs")
    kinds = every["kinds"][:, later].mean(1)
    sinks = kinds[:, 1:].sum(1)
    for place, kind in enumerate(KINDS[1:], start=1):
        share = kinds[:, place] / sinks
        ledger.mean(f"sinks that are {kind}, layers after the first", share, "paragraphs")


def write_rows(every: dict[str, torch.Tensor], width: int, ledger: Ledger) -> None:
    """What the claims about short and long rows rest on."""
    nullity = every["nullity"]
    early = (nullity[:, :, :width] == 0).double().mean(2)
    name = f"rows that see at most {width} tokens and are determined by their output"
    ledger.mean(f"{name}, layers after the first", early[:, 1:].mean(1), "paragraphs")
    ledger.mean(f"{name}, first layer", early[:, 0], "paragraphs")
    late = nullity[:, :, -1].mean(1)
    name = f"dimensions that the output of row {nullity.shape[2]} cannot show, heads {width} wide"
    ledger.mean(name, late, "paragraphs")


def mixing(
    subject: xa.Subject, texts: list[str], options: argparse.Namespace, ledger: Ledger
) -> dict[str, Any]:
    """Own shares, displaced tokens, the first token and neighbours, by layer."""
    own, lost, first, near = [], [], [], []
    for number, text in enumerate(texts):
        trace = traced(subject, text, options.short)
        found = xa.hidden_attribution(trace, probes=options.probes, seed=number)
        total, pairs = by_distance(found.contribution)
        pairs[1:] /= 2  # only the tokens before a token reach it
        own.append(found.self_contribution[:, 1:].median(1).values)
        lost.append(displaced(found.contribution)[:, 1:].double().mean(1))
        first.append(found.contribution[:, 1:, 0].mean(1))
        near.append((total / pairs)[:, :SHOWN])
        print(f"{number}: own share in the end {float(own[-1][-1]):.3f}", flush=True)
    shares, moved, begun, reach = (torch.stack(each) for each in (own, lost, first, near))
    of = "paragraphs"
    ledger.mean("own share after layer 1, median token", shares[:, 1], of)
    ledger.mean("own share after the last layer, median token", shares[:, -1], of)
    name = "tokens that are not their own first contributor, last layer"
    ledger.mean(name, moved[:, -1], of)
    ledger.mean("contribution of the first token, last layer", begun[:, -1], of)
    name = "contribution of a direct neighbour less that of one five away"
    ledger.mean(name, (reach[:, 1:, 1] - reach[:, 1:, FAR]).mean(1), of)
    name = "contribution of a token five away, last layer less first"
    ledger.mean(name, reach[:, -1, FAR] - reach[:, 1, FAR], of)
    return {
        "paragraphs": len(texts),
        "tokens": options.short,
        "probes": options.probes,
        "own share": shares.mean(0).tolist(),
        "not own top": moved.mean(0).tolist(),
        "first token": begun.mean(0).tolist(),
        "contribution by distance": reach.mean(0).tolist(),
    }


def figure(sinks: dict[str, Any], rows: dict[str, Any]) -> PaperFigure:
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
