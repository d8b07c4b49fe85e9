"""What do real weights say about attention identifiability?

    python studies/identifiability.py --base FOLDER --data DATA [--texts 20] [--figures FOLDER]
    python studies/identifiability.py --base MPNET --data DATA --texts 6 --longest 512 \\
        --parts length demands

An encoder (all-MiniLM-L6-v2 and its children have heads of width 32, all-mpnet-base-v2 of width 64)
on paragraphs of wikitext-2:

length        raw against effective attention by length, the weight on special tokens before and
              after, with a picture of one head
demands       how many rows are the only ones possible under each demand
alternatives  how far valid alternatives lie

Prints tables, draws figures where a folder is given, keeps the numbers of each layer in
docs/data/identifiability-MODEL.json, and writes what claims rest on into the ledger.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import tables
import torch
import transformers
from drawing import save
from ledger import Ledger, add_option
from scipy import stats
from words import rounded

import exhibit_a as xa

DOCS = Path(__file__).parents[1] / "docs/data"
LENGTHS = (8, 16, 24, 32, 33, 40, 48, 64, 65, 96, 128, 192, 256, 384, 512)
NUMBERS = ("pearson", "null_fraction", "special_raw", "special_effective")
ONE = 256  # tokens that many a paragraph has
SHOWN = 64  # tokens in the picture of one head
SPECIAL = 2  # tokens of a paragraph: [CLS] and [SEP]


def main() -> None:
    options = parse_options()
    transformers.logging.set_verbosity_error()
    subject = xa.load(options.base)
    texts = paragraphs(subject, options)
    print(f"{len(texts)} paragraphs of at least {options.longest} tokens\n")
    ledger = opened(options, "wikitext-2 test, first long paragraphs")
    if "length" in options.parts:
        found = by_length(subject, texts, options)
        written_by_length(found, ledger)
        kept = kept_by_length(found)
        keep(options, "identifiability", {"length": kept})
        if figure_name(options) != "identifiability":
            shown_by_length(kept, figure_name(options), options.docs / tables.FILE.name)
        if options.figures:
            one_head(subject, texts[0], options)
    if "demands" in options.parts:
        shares = demands(subject, texts[: options.counted], ledger)
        keep(options, "identifiability", {"demands": shares})
    if "alternatives" in options.parts:
        alternatives(subject, texts[:2], ledger)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="folder of an encoder, or a name")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext-2")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--longest", type=int, default=256, help="tokens; 256 at least")
    parser.add_argument("--counted", type=int, default=5, help="of them, for unique rows")
    parser.add_argument("--parts", nargs="+", default=["length", "demands", "alternatives"])
    parser.add_argument("--figures", type=Path, help="draw the figures into this folder")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the kept numbers")
    add_option(parser)
    return parser.parse_args()


def paragraphs(subject: xa.Subject, options: argparse.Namespace) -> list[str]:
    """The first texts that are long enough: paragraphs, or several where none is so long."""
    found: list[str] = []
    file, longest = options.data / "wikitext-2" / "wiki.test.tokens", options.longest
    before = ""
    for line in file.read_text("utf-8").splitlines():
        paragraph = " ".join(line.replace("<unk>", " ").split())
        if len(paragraph) <= 1200 or paragraph.startswith("="):
            continue
        text = f"{before} {paragraph}".strip()
        ids = subject.tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        if len(ids) == longest:
            found.append(text)
        before = text if longest > ONE and len(ids) < longest else ""
        if len(found) == options.texts:
            break
    return found


def by_length(
    subject: xa.Subject, texts: list[str], options: argparse.Namespace
) -> list[xa.IdentifiabilityByLength]:
    """Means over paragraphs with 95 % intervals, and the figure by length."""
    lengths = [length for length in LENGTHS if length <= options.longest]
    found = [xa.identifiability_by_length(subject, text, lengths=lengths) for text in texts]
    print("| tokens | Pearson(raw, effective) | lowest layer mean | null fraction | special: raw →")
    print("effective |\n|---|---|---|---|---|")
    for i, length in enumerate(lengths):
        pearson, low = interval([one.pearson[i].mean() for one in found])
        null, _ = interval([one.null_fraction[i].mean() for one in found])
        worst = np.mean([float(one.pearson[i].min()) for one in found])
        raw, _ = interval([one.special_raw[i].mean() for one in found])
        effective, _ = interval([one.special_effective[i].mean() for one in found])
        print(f"| {length} | {pearson:.4f} ± {low:.4f} | {worst:.3f} | {null:.3f} ", end="")
        print(f"| {raw:.3f} → {effective:.3f} |")
    mean = averaged(found)
    if options.figures:
        save(
            mean.plot(figsize="one column"), options.figures / f"{figure_name(options)}-length.svg"
        )
    print("\nby layer at the longest: ", end="")
    print(", ".join(f"{float(p):.3f}" for p in mean.pearson[-1]), "\n")
    return found


def kept_by_length(found: list[xa.IdentifiabilityByLength]) -> dict[str, Any]:
    """The means over paragraphs by length and layer, and the intervals of the means over layers."""
    kept: dict[str, Any] = {
        "paragraphs": len(found),
        "lengths": list(found[0].lengths),
        "width": int(found[0].d_head[0]),
    }
    for name in NUMBERS:
        tables = torch.stack([getattr(one, name) for one in found])  # paragraph, length, layer
        over_layers = tables.flatten(2).mean(2)
        kept[name] = {
            "by layer": tables.flatten(2).mean(0).tolist(),
            "mean and half width": [list(interval(list(column))) for column in over_layers.T],
        }
    return kept


def shown_by_length(
    kept: dict[str, Any], name: str, path: Path, command: str | None = None
) -> None:
    """The table of a page: what was kept, by length."""
    means = {number: kept[number]["mean and half width"] for number in NUMBERS}
    rows = []
    for place, length in enumerate(kept["lengths"]):
        pearson, half = means["pearson"][place]
        lowest = min(kept["pearson"]["by layer"][place])
        null, raw, effective = (
            means[number][place][0]
            for number in ("null_fraction", "special_raw", "special_effective")
        )
        row = (length, f"{pearson:.4f} ± {half:.4f}", f"{lowest:.3f}", f"{null:.3f}")
        rows.append((*row, f"{raw:.3f} → {effective:.3f}"))
    heading = ("tokens", "Pearson(raw, effective)", "lowest layer mean", "null fraction")
    special = "weight on special tokens: raw → effective"
    tables.keep(f"{name}-length", (*heading, special), rows, path, command)


def written_by_length(found: list[xa.IdentifiabilityByLength], ledger: Ledger) -> None:
    """What the claims about length and special tokens rest on."""
    width, place = found[0].d_head[0], found[0].lengths.index
    asked = [length for length in (24, 64, 128, 256, 512) if length in found[0].lengths]
    pearson = {n: [one.pearson[place(n)].mean() for one in found] for n in asked}
    for length in asked:
        name = f"Pearson of raw and effective attention at {length} tokens, heads of width {width}"
        ledger.mean(name, pearson[length], "paragraphs")
    for far in (length for length in asked if length >= 256):
        lost = [near - last for near, last in zip(pearson[64], pearson[far], strict=True)]
        ledger.mean(f"Pearson lost between 64 and {far} tokens", lost, "paragraphs")
        raw, effective = (
            [getattr(one, name)[place(far)].mean() for one in found]
            for name in ("special_raw", "special_effective")
        )
        moved = [before - after for before, after in zip(raw, effective, strict=True)]
        ledger.mean(f"weight that special tokens lose at {far} tokens", moved, "paragraphs")
        even = SPECIAL / far
        for shares, said in ((raw, "weight"), (effective, "effective weight")):
            ledger.mean(
                f"{said} of a special token at {far} tokens, over its even share",
                [share / even for share in shares],
                "paragraphs",
            )


def averaged(found: list[xa.IdentifiabilityByLength]) -> xa.IdentifiabilityByLength:
    """One result that holds the means over paragraphs, for the figure."""
    from dataclasses import replace

    means = {n: torch.stack([getattr(one, n) for one in found]).mean(0) for n in NUMBERS}
    return replace(found[0], **means)


def one_head(subject: xa.Subject, text: str, options: argparse.Namespace) -> None:
    """The picture: raw, effective and difference for the head that the projection changes most."""
    inputs = subject.tokenizer(text, truncation=True, max_length=SHOWN, return_tensors="pt")
    result = xa.effective_attention(xa.capture(subject, dict(inputs)))
    pearson = torch.stack(result.pearson)
    site, head = divmod(int(pearson.argmin()), pearson.shape[1])
    drawn = options.figures / f"{figure_name(options)}-head.svg"
    save(result.plot(site=site, head=head), drawn)
    print(f"pictured: layer {site}, head {head}, Pearson {float(pearson[site, head]):.3f}\n")


def demands(subject: xa.Subject, texts: list[str], ledger: Ledger) -> dict[str, list[float]]:
    """The share of rows that are unique under each demand, at 32, 64 and 256 tokens."""
    by_length = {}
    print("| tokens | same output | + same sum | + not negative | + from the model's keys |")
    print("|---|---|---|---|---|")
    for length in (32, 64, 256):
        shares, weakest = [], []
        for text in texts:
            cut = subject.tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
            result = xa.attention_identifiability(xa.capture(subject, dict(cut)))
            shares.append(torch.stack([result.unique(i) for i in range(len(result.sites))]).mean(0))
            weakest.append(torch.stack(list(result.visibility)).median())
        row = " | ".join(f"{float(share):.3f}" for share in torch.stack(shares).mean(0))
        print(f"| {length} | {row} |")
        by_length[str(length)] = torch.stack(shares).mean(0).tolist()
        if length == SHOWN:
            for place, demand in (
                (0, "the output alone determines"),
                (3, "output and keys determine"),
            ):
                unique = [share[place] for share in shares]
                ledger.mean(f"rows that {demand}, at {length} tokens", unique, "paragraphs")
        print(
            f"<!-- median of the least visible move: {float(torch.stack(weakest).median()):.1e} -->"
        )
    print()
    return by_length


def alternatives(subject: xa.Subject, texts: list[str], ledger: Ledger) -> None:
    """How far a valid row with the same output lies, for the first row of every head."""
    distances, changes = [], []
    for text in texts:
        cut = subject.tokenizer(text, truncation=True, max_length=SHOWN, return_tensors="pt")
        trace = xa.capture(subject, dict(cut))
        for site in range(len(trace.sites)):
            for head in range(0, trace.sites[site].heads, 3):
                found = xa.alternative_attention(trace, site=site, head=head, samples=4)
                distances.append(found.distance)
                changes.append(found.checks["largest change of the answer"])
    low, middle, high = np.quantile(distances, (0.05, 0.5, 0.95))
    print(f"{SHOWN} tokens, first row of {len(distances)} heads: total variation of the farthest ")
    print(f"valid alternative found {middle:.2f} (90 % between {low:.2f} and {high:.2f}); the ")
    print(f"model's answer moved by at most {max(changes):.1e}")
    name = "distance of the farthest valid row with the same output, at 64 tokens"
    ledger.mean(name, distances, "heads")
    ledger.exact("change of the answer with that row in place", max(changes), len(changes), "heads")


def keep(options: argparse.Namespace, what: str, part: dict[str, Any]) -> None:
    """Put a part of the numbers of a model into its file; other parts stay."""
    file = options.docs / f"{what}-{Path(options.base).name}.json"
    kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    kept |= rounded(part)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def figure_name(options: argparse.Namespace, what: str = "identifiability") -> str:
    """How figures of a model begin; those of all-MiniLM-L6-v2 and its children came first."""
    name = Path(options.base).name
    return what if name in ("sentiment", "all-MiniLM-L6-v2") else f"{what}-{name}"


def opened(options: argparse.Namespace, data: str) -> Ledger:
    """The ledger for a model; ids of others than ``sentiment`` name it."""
    name = Path(options.base).name
    return Ledger(options.ledger, f"`{name}`", data, apart=name != "sentiment")


def interval(numbers: list[torch.Tensor]) -> tuple[float, float]:
    """Mean and half width of a 95 % interval."""
    values = np.array([float(number) for number in numbers])
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean()), float(half)


if __name__ == "__main__":
    main()
