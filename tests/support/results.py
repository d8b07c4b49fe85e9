"""One result of every kind, as small as they come."""

from functools import cache

import torch

import exhibit_a
from exhibit_a.methods.attribution.contribution import contribution_weights
from exhibit_a.methods.custom_methods import HeadMaps, TokenAttribution
from exhibit_a.methods.explanation.adversarial import adversarial_attention
from exhibit_a.methods.explanation.adversarial_keys import adversarial_keys
from exhibit_a.methods.explanation.faithfulness import faithfulness
from exhibit_a.methods.explanation.heat_maps import heat_maps
from exhibit_a.methods.explanation.permutation import permutation_test
from exhibit_a.methods.heads.curve import measure_pruning, pruning_curve
from exhibit_a.methods.heads.importance import head_importance, head_similarity
from exhibit_a.methods.heads.patching import head_patching
from exhibit_a.methods.heads.removal import prune
from exhibit_a.methods.heads.sinks import sink_diagnosis
from exhibit_a.methods.identifiability.alternatives import alternative_attention
from exhibit_a.methods.identifiability.counts import (
    attention_identifiability,
    identifiability_by_length,
)
from exhibit_a.methods.mixing.head_mixing import head_mixing
from exhibit_a.methods.triggers.triggers import Attack, Inserted, Pattern, Triggers
from exhibit_a.subject.provenance import provenance
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.trials.comparison import compare
from support.cases import TEXT, large_trial
from support.corpora import sentences, some_examples
from support.subjects import speaker

ORIGIN = provenance("made-up", "made-up")


@cache
def long_trial(tokens):
    return large_trial(tokens=tokens, layers=2, heads=4, width=8)


def of_tokens(tokens):
    """Results with names of tokens in their figures."""
    trial = long_trial(tokens)
    maps = {"method": "ours", "maps": trial.attention, "sites": trial.sites}
    scores = torch.linspace(-1, 1, tokens)
    return [
        trial,
        trial.effective,
        trial.attribution,
        trial.hidden,
        trial.tree,
        HeadMaps(provenance=ORIGIN, tokens=trial.tokens, sequences=trial.sequences, **maps),
        TokenAttribution(
            provenance=ORIGIN, tokens=trial.tokens, method="ours", target="yes", scores=scores
        ),
    ]


def of_patterns():
    pieces = tuple(Inserted(place, f"piece{place}", 0, 0.5) for place in range(4))
    patterns = tuple(
        Pattern(pieces[:count], (0.3, 0.1 * count), 0, 0, count % 2, "1") for count in (1, 4)
    )
    labels = ("against it", "for it")
    shares = torch.tensor([[0.5, 0.9], [0.8, 0.2]])
    return [
        Triggers(provenance=ORIGIN, patterns=patterns, by_attention=patterns, labels=labels),
        Attack(
            provenance=ORIGIN,
            before=torch.tensor([0.9, 0.8]),
            after=shares,
            interval=shares.unsqueeze(-1).expand(-1, -1, 2),
            random=shares + 0.1,
            random_spread=shares / 10,
            attention=shares + 0.05,
            counts=torch.tensor([10, 20]),
            patterns=patterns,
            attention_patterns=patterns,
            labels=labels,
        ),
    ]


def context():
    passages = ["Tom has a red ball.", "Lily has a blue kite."]
    return exhibit_a.context_attribution(
        load("stories"), "Lily has a", passages, answer=" blue kite", methods=["raw"], samples=0
    )


@cache
def every_result():
    subject, examples = speaker(), some_examples(6)
    trace = capture(subject, TEXT)
    importance = head_importance(subject, examples, by="attention")
    results = [
        *of_tokens(12),
        long_trial(12).reliance,
        compare(long_trial(12), long_trial(12), names=("one", "two")),
        adversarial_attention(trace, restarts=1, steps=1),
        adversarial_keys(subject, examples, held_out=examples, epochs=1, hidden=4),
        alternative_attention(trace, site=1, head=2, samples=1),
        attention_identifiability(trace),
        faithfulness(subject, examples[:2], attribution=["raw", "norm"], rankings=1),
        head_mixing(trace, probes=2),
        head_similarity(importance, importance, names=("this", "that")),
        identifiability_by_length(subject, TEXT, lengths=[4, 9, 12]),
        importance,
        measure_pruning(subject, prune(subject, [(0, 0)]), [(0, 0)], examples, repeats=1),
        permutation_test(subject, examples, repeats=2),
        heat_maps(trace, methods=["raw", "mean_attention", "attention_gradient"]),
        pruning_curve(subject, examples, importance, fractions=[0, 1], overlap=True),
        contribution_weights(trace),
        sink_diagnosis(trace),
        head_patching(trace, counterfactual=TEXT.replace("not", "very"), verify=2),
        context(),
        exhibit_a.token_identifiability(subject, sentences(12), maps=("identity",)),
        *of_patterns(),
    ]
    return {type(result).__name__: result for result in results}
