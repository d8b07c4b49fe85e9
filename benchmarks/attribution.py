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
size, which gets a fresh head and reads a text of its own.

    python benchmarks/attribution.py [--sharper 1.5] [--base FOLDER] [--timed 1 9]
"""

from collections.abc import Callable
from functools import partial

import torch
import transformers
from captum.attr import IntegratedGradients
from support.measure import REVIEW, begun, bert, drawn, once
from torch import Tensor
from torch.nn.functional import pad

from exhibit_a.methods.attribution.self_attribution import self_attribution
from exhibit_a.numerics.quadrature import Rule, left, riemann
from exhibit_a.subject.subject import Subject, load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import Trace, capture
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import Target, choose_target

CHUNK = 16  # copies at a time, as released
LOUDER = 10.0  # a fresh head hardly answers


def main() -> None:
    given = begun(__doc__, base=str, sharper=1.5, timed=[1, 9], tokens=[128, 24])
    if given.base:
        subject, what = with_trained_layers(given.base), "trained layers"
    else:
        subject, what = bert(num_labels=3), f"random weights × {given.sharper:g}"
        with torch.no_grad():
            for name, weight in subject.model.named_parameters():
                weight.mul_(given.sharper if weight.ndim == 2 and "embeddings" not in name else 1.0)
    print(f"BERT-base size, {what}")
    long, short = given.tokens
    print(f"\n{long} tokens, baselines at 20 points (right ends)")
    compare(subject, long, long, riemann(20), given.timed)
    print(f"\n{short} tokens, baselines at 64 points (left ends), padded to {long}")
    compare(subject, short, long, left(64), given.timed)


def with_trained_layers(base: str) -> Subject:
    """The encoder in a folder under a fresh head."""
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(LOUDER if len(weight) == model.num_labels else 1.0)
    return load(model.eval(), tokenizer=transformers.AutoTokenizer.from_pretrained(base))


def traced(subject: Subject, tokens: int, padded: int) -> Trace:
    """The beginning of a text, or random tokens where there is no tokenizer; perhaps padded."""
    ids = drawn(tokens, 1000, 30000, seed=1)["input_ids"]
    if subject.tokenizer is not None:
        cut = subject.tokenizer(REVIEW, truncation=True, max_length=tokens, return_tensors="pt")
        ids = cut["input_ids"]
    fill = (0, padded - tokens)
    filler = getattr(subject.model.config, "pad_token_id", None) or 0
    inputs = {
        "input_ids": pad(ids, fill, value=filler),
        "attention_mask": pad(torch.ones_like(ids), fill),
    }
    return capture(subject, inputs)


def by_scaling_maps(trace: Trace, rule: Rule, target: Target, whole: bool, site: int) -> Tensor:
    """One layer of the released loop, on the whole model or from that layer on."""
    attention, total = trace.attention[site], torch.zeros_like(trace.attention[site])
    start = 0 if whole else trace.sites[site].call
    for alphas, weights in zip(rule.points.split(CHUNK), rule.weights.split(CHUNK), strict=True):
        maps = (alphas.float()[:, None, None, None] * attention).requires_grad_()
        output = replay(trace, edits.replace(site, maps), start=start, copies=len(alphas))
        (gradients,) = torch.autograd.grad(target(output).sum(), maps)
        total += torch.einsum("m,mhqk->hqk", weights.float(), gradients)
    return attention * total


def by_captum(trace: Trace, target: Target, site: int) -> Tensor:
    """One layer with captum."""

    def answer(maps: Tensor) -> Tensor:
        return target(replay(trace, edits.replace(site, maps), start=0, copies=len(maps)))

    how = {"n_steps": 20, "method": "riemann_right", "internal_batch_size": CHUNK}
    found: Tensor = IntegratedGradients(answer).attribute(trace.attention[site].unsqueeze(0), **how)
    return found[0]


def compare(subject: Subject, tokens: int, padded: int, rule: Rule, sites: list[int]) -> None:
    """Ours beside every baseline, in processor seconds for all layers."""
    short, long = traced(subject, tokens, tokens), traced(subject, tokens, padded)
    target = choose_target(short)
    self_attribution(traced(subject, 8, 8))  # warm
    ours = once(lambda: self_attribution(short, target=target))
    gap = float((ours.made.gap / ours.made.change.abs())[sites].max())
    print(
        f"{'ours':32}{ours.least:9.2f} s{'':18} gap {gap:.1e}, points {ours.made.points.tolist()}"
    )
    ways: dict[str, tuple[Trace, Callable[[int], Tensor]]] = {
        "released": (long, partial(by_scaling_maps, long, rule, target, True)),
        "prefix": (long, partial(by_scaling_maps, long, rule, target, False)),
    }
    if tokens < padded:
        ways["captum, 20 points, no padding"] = short, partial(by_captum, short, target)
    for name, (trace, attribute) in ways.items():
        spent = once(lambda attribute=attribute: [attribute(site) for site in sites])
        seconds = spent.least * len(trace.sites) / len(sites)
        gaps = []
        for site, scores in zip(sites, spent.made, strict=True):
            with torch.no_grad():
                silenced = target(replay(trace, edits.scale(site, 0.0)))
            change = float(target(trace.output) - silenced)
            gaps.append(abs(float(scores.sum()) - change) / abs(change))
        print(f"{name:32}{seconds:9.2f} s{seconds / ours.least:8.1f} × ours, gap {max(gaps):.1e}")


if __name__ == "__main__":
    main()
