"""What do real weights say about attention identifiability?

    python studies/identifiability.py --base FOLDER --data DATA [--texts 20] [--figures FOLDER]

all-MiniLM-L6-v2 (heads of width 32) on paragraphs of wikitext-2: raw against effective attention by
length, the weight on special tokens before and after, how many rows are the only ones possible
under each demand, and how far valid alternatives lie. Prints the tables of docs/identifiability.md
and draws its figures; what claims rest on goes into the ledger.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import transformers
from drawing import save
from ledger import Ledger, add_option
from scipy import stats

import exhibit_a as xa

LENGTHS = (8, 16, 24, 32, 33, 40, 48, 64, 65, 96, 128, 192, 256, 384, 512)
SHOWN = 64  # tokens in the picture of one head
SPECIAL = 2  # tokens of a paragraph: [CLS] and [SEP]


def main() -> None:
    options = parse_options()
    transformers.logging.set_verbosity_error()
    subject = xa.load(options.base)
    texts = paragraphs(subject, options)
    print(f"{len(texts)} paragraphs of at least {options.longest} tokens\n")
    ledger = opened(options, "wikitext-2 test, first long paragraphs")
    found = by_length(subject, texts, options)
    written_by_length(found, ledger)
    if options.figures:
        one_head(subject, texts[0], options.figures)
    demands(subject, texts[: options.counted], ledger)
    alternatives(subject, texts[:2], ledger)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="folder of all-MiniLM-L6-v2, or a name")
    parser.add_argument("--data", type=Path, required=True, help="folder with wikitext-2")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--longest", type=int, default=256, help="tokens; 256 at least")
    parser.add_argument("--counted", type=int, default=5, help="of them, for unique rows")
    parser.add_argument("--figures", type=Path, help="draw the figures into this folder")
    add_option(parser)
    return parser.parse_args()


def paragraphs(subject: xa.Subject, options: argparse.Namespace) -> list[str]:
    """The first paragraphs that are long enough, cut to what the model takes."""
    found: list[str] = []
    file, longest = options.data / "wikitext-2" / "wiki.test.tokens", options.longest
    for line in file.read_text("utf-8").splitlines():
        text = " ".join(line.replace("<unk>", " ").split())
        if len(text) > 1200 and not text.startswith("="):
            ids = subject.tokenizer(text, truncation=True, max_length=longest)["input_ids"]
            if len(ids) == longest:
                found.append(text)
        if len(found) == options.texts:
            return found
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
        save(mean.plot(), options.figures / "identifiability-length.svg")
    print("\nby layer at the longest: ", end="")
    print(", ".join(f"{float(p):.3f}" for p in mean.pearson[-1]), "\n")
    return found


def written_by_length(found: list[xa.IdentifiabilityByLength], ledger: Ledger) -> None:
    """What the claims about length and special tokens rest on."""
    width, place = found[0].d_head[0], found[0].lengths.index
    pearson = {n: [one.pearson[place(n)].mean() for one in found] for n in (24, 64, 256)}
    for length in (24, 64):
        name = f"Pearson of raw and effective attention at {length} tokens, heads of width {width}"
        ledger.mean(name, pearson[length], "paragraphs")
    lost = [near - far for near, far in zip(pearson[64], pearson[256], strict=True)]
    ledger.mean("Pearson lost between 64 and 256 tokens", lost, "paragraphs")
    raw, effective = (
        [getattr(one, name)[place(256)].mean() for one in found]
        for name in ("special_raw", "special_effective")
    )
    moved = [before - after for before, after in zip(raw, effective, strict=True)]
    ledger.mean("weight that special tokens lose at 256 tokens", moved, "paragraphs")
    even = SPECIAL / 256
    ledger.mean(
        "effective weight of a special token at 256 tokens, over its even share",
        [share / even for share in effective],
        "paragraphs",
    )


def averaged(found: list[xa.IdentifiabilityByLength]) -> xa.IdentifiabilityByLength:
    """One result that holds the means over paragraphs, for the figure."""
    from dataclasses import replace

    names = ("pearson", "null_fraction", "special_raw", "special_effective")
    means = {n: torch.stack([getattr(one, n) for one in found]).mean(0) for n in names}
    return replace(found[0], **means)


def one_head(subject: xa.Subject, text: str, figures: Path) -> None:
    """The picture: raw, effective and difference for the head that the projection changes most."""
    inputs = subject.tokenizer(text, truncation=True, max_length=SHOWN, return_tensors="pt")
    result = xa.effective_attention(xa.capture(subject, dict(inputs)))
    pearson = torch.stack(result.pearson)
    site, head = divmod(int(pearson.argmin()), pearson.shape[1])
    save(result.plot(site=site, head=head), figures / "identifiability-head.svg")
    print(f"pictured: layer {site}, head {head}, Pearson {float(pearson[site, head]):.3f}\n")


def demands(subject: xa.Subject, texts: list[str], ledger: Ledger) -> None:
    """The share of rows that are unique under each demand, at 64 and 256 tokens."""
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
