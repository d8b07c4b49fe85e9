"""How much faster is attribution than the released algorithm, and is it as exact?

Three baselines, written from the description of the method:

released   the loop of the released code, for every layer again: the whole model on m copies with
           the scaled maps put in, and gradients for every map, at a padded length;
prefix     the same, but layers below are not run again (the released code runs them once, too);
captum     IntegratedGradients over the injected map, right Riemann sum.

Baselines are timed on a few layers and scaled to all of them; ours is timed as a whole. The gap is
the largest share of the change that the entries of a timed layer leave unexplained.

How many points are needed depends on how much the answer bends on the way. Fresh layers hardly
bend it; 1.5 times their weights need five points, as most texts do in the trained models we know,
and three times their weights are a hard case. --base is the folder of a trained encoder of this
size, which gets a fresh head.

    python benchmarks/attribution.py [--sharper 1.5] [--base FOLDER] [--timed 1 9]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from captum.attr import IntegratedGradients
from torch import Tensor

from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.numerics.quadrature import Rule, left, riemann
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, choose_target

CHUNK = 16  # copies at a time, as released
LAYERS = 12
LOUDER = 10.0  # a fresh head hardly answers
TEXT = """The harbour was quiet when the last ferry came in, and nobody on the quay expected that
the captain would refuse to leave the bridge. He had been at sea for forty years, he said, and had
never once been asked to hand over his log before the engines were cold. Two officers waited in the
rain. A small crowd gathered, first the porters and then people from the cafés, who brought chairs
and an umbrella for the older of the two. By midnight somebody had started to sing. The captain
listened for a while, opened the window, and asked them to sing something slower, because the song
they had chosen was the one his crew always sang before a storm, and the barometer was falling."""


def with_random_weights(sharper: float) -> Subject:
    """BERT-base with random weights, made larger."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=LAYERS, num_labels=3)
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embeddings" not in name:
                weight.mul_(sharper)
    return load(model)


def with_trained_layers(base: Path) -> Subject:
    """The encoder in a folder under a fresh head."""
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    with torch.no_grad():
        for weight in model.parameters():
            if len(weight) == model.num_labels:
                weight.mul_(LOUDER)
    return load(model.eval(), tokenizer=transformers.AutoTokenizer.from_pretrained(base))


def traced(subject: Subject, tokens: int, padded: int | None = None) -> Trace:
    """The beginning of the text, or random tokens where there is no tokenizer; perhaps padded."""
    ids = torch.randint(1000, 30000, (1, tokens), generator=torch.Generator().manual_seed(1))
    if subject.tokenizer is not None:
        cut = subject.tokenizer(TEXT, truncation=True, max_length=tokens, return_tensors="pt")
        ids = cut["input_ids"]
    assert ids.shape[1] == tokens, "the text is too short"
    fill = (0, (padded or tokens) - tokens)
    mask = torch.nn.functional.pad(torch.ones_like(ids), fill)
    filler = getattr(subject.model.config, "pad_token_id", None) or 0
    return capture(
        subject,
        {"input_ids": torch.nn.functional.pad(ids, fill, value=filler), "attention_mask": mask},
    )


def by_scaling_maps(trace: Trace, site: int, rule: Rule, target: Target, start: int) -> Tensor:
    """One layer of the released loop."""
    attention, total = trace.attention[site], torch.zeros_like(trace.attention[site])
    for alphas, weights in zip(rule.points.split(CHUNK), rule.weights.split(CHUNK), strict=True):
        maps = (alphas.float()[:, None, None, None] * attention).requires_grad_()
        output = replay(trace, edits.replace(site, maps), start=start, copies=len(alphas))
        (gradients,) = torch.autograd.grad(target(output).sum(), maps)
        total += torch.einsum("m,mhqk->hqk", weights.float(), gradients)
    return attention * total


def by_captum(trace: Trace, site: int, steps: int, target: Target) -> Tensor:
    """One layer with captum."""

    def answer(maps: Tensor) -> Tensor:
        return target(replay(trace, edits.replace(site, maps), start=0, copies=len(maps)))

    found: Tensor = IntegratedGradients(answer).attribute(
        trace.attention[site].unsqueeze(0),
        n_steps=steps,
        method="riemann_right",
        internal_batch_size=CHUNK,
    )
    return found[0]


def timed(
    trace: Trace, sites: list[int], attribute: Callable[[int], Tensor], target: Target
) -> tuple[float, float]:
    """Processor seconds for all layers, scaled from a few, and the largest gap of those."""
    start, gaps = time.process_time(), []
    found = [attribute(site) for site in sites]
    seconds = (time.process_time() - start) * len(trace.sites) / len(sites)
    for site, scores in zip(sites, found, strict=True):
        with torch.no_grad():
            silenced = target(replay(trace, edits.scale(site, 0.0)))
        change = float(target(trace.output) - silenced)
        gaps.append(abs(float(scores.sum()) - change) / abs(change))
    return seconds, max(gaps)


def compare(
    title: str, subject: Subject, tokens: int, padded: int, rule: Rule, sites: list[int]
) -> None:
    """Print one table."""
    short, long = traced(subject, tokens), traced(subject, tokens, padded)
    target = choose_target(short)
    self_attribution(traced(subject, 8))  # warm
    start = time.process_time()
    ours = self_attribution(short, target=target)
    seconds = time.process_time() - start
    gap = float((ours.gap / ours.change.abs())[sites].max())
    rows = [("ours", seconds, gap)]
    for name, begin in (("released", lambda _: 0), ("prefix", lambda s: long.sites[s].call)):

        def attribute(site: int, begin: Callable[[int], int] = begin) -> Tensor:
            return by_scaling_maps(long, site, rule, target, begin(site))

        rows.append((name, *timed(long, sites, attribute, target)))
    if tokens < padded:
        attribute = lambda site: by_captum(short, site, 20, target)  # noqa: E731
        rows.append(("captum, 20 points, no padding", *timed(short, sites, attribute, target)))
    print(f"\n{title}\n{'':32}{'seconds':>9}{'times ours':>12}{'largest gap':>13}")
    for name, taken, worst in rows:
        print(f"{name:32}{taken:9.2f}{taken / seconds:12.1f}{worst:13.1e}")
    print(f"points per layer, first to last: {ours.points.tolist()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="folder of an encoder; default: random weights")
    parser.add_argument("--sharper", type=float, default=1.5, help="times random weights")
    parser.add_argument("--timed", type=int, nargs="+", default=[1, 9])
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if given.base:
        subject, what = with_trained_layers(given.base), "trained layers"
    else:
        subject = with_random_weights(given.sharper)
        what = f"random weights × {given.sharper:g}"
    sites = given.timed
    print(f"BERT-base size, {what}, {torch.get_num_threads()} threads")
    compare(
        "128 tokens, baselines at 20 points (right ends)", subject, 128, 128, riemann(20), sites
    )
    compare(
        "24 tokens, baselines at 64 points (left ends), padded to 128",
        subject,
        24,
        128,
        left(64),
        sites,
    )


if __name__ == "__main__":
    main()
