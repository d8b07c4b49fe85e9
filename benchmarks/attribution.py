"""How much faster is attribution than the released algorithm, and is it as exact?

Three baselines, written from the description of the method:

released   the loop of the released code, for every layer again: the whole model on m copies with
           the scaled maps put in, and slopes for every map, at a padded length;
prefix     the same, but layers below are not run again (the released code runs them once, too);
captum     IntegratedGradients over the injected map, right Riemann sum.

Baselines are timed on a few layers and scaled to all of them; ours is timed as a whole. The gap is
the largest share of the change that the entries of a timed layer leave unexplained.

    python benchmarks/attribution.py [--layers 12] [--timed 0 5 11] [--sharper 3]
"""

import argparse
import time
from collections.abc import Callable

import torch
import transformers
from captum.attr import IntegratedGradients
from torch import Tensor

from exhibit_a.methods.paths import Rule, left, riemann
from exhibit_a.methods.self_attribution import self_attribution
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, choose_target

CHUNK = 16  # copies at a time, as released


def bert_base(layers: int, sharper: float) -> Subject:
    """BERT-base with random weights; fresh ones attend evenly, so they are sharpened."""
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=layers, num_labels=3)
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2 and "embeddings" not in name:
                weight.mul_(sharper)
    return load(model)


def traced(subject: Subject, tokens: int, padded: int | None = None) -> Trace:
    """A random text, perhaps padded."""
    seeded = torch.Generator().manual_seed(1)
    ids = torch.randint(1000, 30000, (1, tokens), generator=seeded)
    fill = (0, (padded or tokens) - tokens)
    mask = torch.nn.functional.pad(torch.ones_like(ids), fill)
    return capture(
        subject, {"input_ids": torch.nn.functional.pad(ids, fill), "attention_mask": mask}
    )


def by_scaling_maps(trace: Trace, site: int, rule: Rule, target: Target, start: int) -> Tensor:
    """One layer of the released loop."""
    attention, total = trace.attention[site], torch.zeros_like(trace.attention[site])
    for alphas, weights in zip(rule.points.split(CHUNK), rule.weights.split(CHUNK), strict=True):
        maps = (alphas.float()[:, None, None, None] * attention).requires_grad_()
        output = replay(trace, edits.replace(site, maps), start=start, copies=len(alphas))
        (slopes,) = torch.autograd.grad(target(output).sum(), maps)
        total += torch.einsum("m,mhqk->hqk", weights.float(), slopes)
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
    """Seconds for all layers, scaled from a few, and the largest gap of those."""
    start, gaps = time.perf_counter(), []
    found = [attribute(site) for site in sites]
    seconds = (time.perf_counter() - start) * len(trace.sites) / len(sites)
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
    start = time.perf_counter()
    ours = self_attribution(short, target=target)
    seconds = time.perf_counter() - start
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
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--timed", type=int, nargs="+", default=[0, 5, 11])
    parser.add_argument("--sharper", type=float, default=3.0)
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    subject = bert_base(given.layers, given.sharper)
    sites = [site for site in given.timed if site < given.layers]
    print(f"BERT-base shape, {given.layers} layers, {torch.get_num_threads()} threads")
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
