"""What every architecture must honour; a family is supported when it passes this file."""

import pytest
import torch
from support.subjects import subject_of
from support.zoo import CONTRACT, FAMILIES, HYBRID, RECURRENT, REFUSED, SOFTMAX
from torch.testing import assert_close

from exhibit_a.errors import BrokenInvariantError, UnsupportedModelError
from exhibit_a.subject.guard import floating, frozen_eval, without_cache
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import NAME, Tap, attention_implementation
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture
from exhibit_a.trace.passes import KEEPABLE
from exhibit_a.trace.replay import replay


@pytest.fixture(params=sorted(CONTRACT))
def family(request):
    return subject_of(request.param), CONTRACT[request.param].inputs()


def answers(output):
    return floating(output)[0]


def is_recurrent(subject):
    return any(subject_of(name) is subject for name in RECURRENT)


def test_the_families_promised_are_here():
    promised = (
        "bert roberta xlm-roberta distilbert electra albert mobilebert modernbert gpt2 llama "
        "mistral qwen2 qwen3 gemma2 gpt-oss gpt-neox phi opt t5 bart marian vit clip-text whisper "
        "llava qwen2-vl transformer identifiable additive recurrent mixtral qwen3-moe deepseek-v3 "
        "gemma3"
    )
    assert set(promised.split()) <= set(CONTRACT) - set(SOFTMAX)
    by_softmax = "deberta deberta-v2 gptj gpt-neo bloom falcon mpnet roformer"
    assert set(by_softmax.split()) == set(SOFTMAX)


def test_the_tap_is_the_expected_one(family):
    subject, _ = family
    by_name = {id(subject_of(name)): name for name in CONTRACT}
    expected = "softmax" if by_name[id(subject)] in SOFTMAX else "registry"
    assert subject.anatomy.tap == expected


def test_looking_changes_nothing(family):
    subject, inputs = family
    model = subject.model
    with torch.no_grad(), attention_implementation(model, "eager"):
        own = answers(model(**without_cache(model, inputs)))
    before = model.config._attn_implementation
    trace = capture(subject, inputs, keep=KEEPABLE)
    assert_close(answers(trace.output), own, rtol=0, atol=0)
    assert model.config._attn_implementation == before
    assert subject.anatomy.parity == 0


def test_every_layer_attends_and_rows_are_distributions(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    reading = {call for call, layer in enumerate(trace.layers) if layer.stack == "encoder"}
    attending = {site.call for site in trace.sites}
    assert attending | (reading if is_recurrent(subject) else set()) == set(
        range(len(trace.layers))
    )
    for site, attention, visible in zip(trace.sites, trace.attention, trace.visible, strict=True):
        assert attention.shape[0] == site.heads
        assert (attention >= 0).all()
        total = attention.sum(-1)
        if "sinks" in site.variants:
            assert (total < 1).all()
        else:
            assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)
        assert (attention[:, ~visible] == 0).all()
    for stack in subject.anatomy.stacks:
        hidden = trace.hidden_of(stack)
        assert len(hidden) == 1 + sum(layer.stack == stack for layer in trace.layers)
        assert {state.shape for state in hidden} == {
            (len(trace.sequences[stack].tokens), hidden[0].shape[1])
        }


class _HandBackEverything(Tap):
    def scoring(self, site, query, key):
        return query.clone(), key.clone()

    def values(self, site, value):
        return value.clone()

    def weighting(self, call):
        return call.probs.clone()

    def result(self, call, context):
        return context.clone()


def test_returning_what_was_seen_changes_nothing(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    with torch.no_grad():
        again = replay(trace, _HandBackEverything(), start=0)
    assert_close(answers(again), answers(trace.output), rtol=0, atol=1e-6)


def test_replay_from_every_layer_gives_the_same_answer(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    for start in range(len(trace.layers) + 1):
        with torch.no_grad():
            again = answers(replay(trace, start=start, copies=3))
        assert_close(again, answers(trace.output).expand_as(again), rtol=1e-4, atol=1e-4)


def test_replay_computes_nothing_below_its_start(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    start = len(trace.layers) - 1
    seen = []

    class Watch(Tap):
        def weighting(self, call):
            seen.append(call.site)

    with torch.no_grad():
        replay(trace, Watch(), start=start)
    assert seen == [site.index for site in trace.sites if site.call >= start]


def test_heads_add_up_to_the_output_projection(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    model, said = subject.model, {}

    def listen(name):
        return lambda module, args, out: said.setdefault(name, []).append(out)

    handles = [
        model.get_submodule(name).register_forward_hook(listen(name))
        for name in {site.projection for site in trace.sites}
    ]
    with torch.no_grad(), frozen_eval(model), attention_implementation(model, "eager"):
        model(**trace.inputs)
    for handle in handles:
        handle.remove()
    for i, site in enumerate(trace.sites):
        out = said[site.projection].pop(0)
        bias = model.get_submodule(site.projection).bias
        ours = torch.einsum(
            "hqk,hkd,hdm->qm", trace.attention[i], trace.values[i], trace.output_weight(i)
        )
        ours = ours if bias is None else ours + bias
        assert_close(ours, out.reshape(ours.shape), rtol=1e-4, atol=1e-4)


def test_gradients_reach_an_edited_map(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    for site in trace.sites:
        path = (0.5 * trace.attention[site.index]).requires_grad_()
        answer = answers(replay(trace, edits.replace(site.index, path)))
        (gradient,) = torch.autograd.grad(answer.square().sum(), path)
        assert gradient.abs().sum() > 0, f"site {site.index} got no gradient"


def test_gradients_reach_edited_keys(family):
    subject, inputs = family
    trace = capture(subject, inputs, keep=("hidden", "keys"))
    last = trace.sites[-1].index
    shift = torch.zeros_like(trace.keys[last][:1, :, :1]).requires_grad_()
    noise = torch.randn(trace.keys[last].shape[1], 1, generator=torch.Generator().manual_seed(0))
    edit = edits.edit_keys(last, lambda key: key + shift * noise)
    (gradient,) = torch.autograd.grad(answers(replay(trace, edit)).square().sum(), shift)
    assert gradient.abs().sum() > 0


def padded(inputs, left, right):
    """Inputs with padding tokens, which are 3; marks on tokens are 0 there."""
    marks = [name for name in ("attention_mask", "mm_token_type_ids") if name in inputs]
    pad = torch.nn.functional.pad
    longer = {name: pad(inputs[name], (left, right)) for name in marks}
    return {**inputs, **longer, "input_ids": pad(inputs["input_ids"], (left, right), value=3)}


def test_padding_changes_nothing(family):
    subject, inputs = family
    if "attention_mask" not in inputs:
        pytest.skip("images and sound have no padding")
    trace = capture(subject, inputs)
    count = inputs["input_ids"].shape[1]
    longer = capture(subject, padded(inputs, 0, 3))
    assert longer.real.tolist() == [True] * count + [False] * 3
    for site in trace.sites:
        q, k = trace.attention[site.index].shape[1:]
        assert_close(
            longer.attention[site.index][:, :q, :k],
            trace.attention[site.index],
            rtol=1e-3,
            atol=1e-5,
        )
        assert (longer.attention[site.index][:, :q, k:] == 0).all()
        assert not longer.visible[site.index][:q, k:].any()


def test_hidden_states_are_the_models_own(family):
    subject, inputs = family
    trace = capture(subject, inputs)
    model = subject.model
    with torch.no_grad(), attention_implementation(model, "eager"):
        own = model(**trace.inputs, output_hidden_states=True)
    texts = [stack for stack in subject.anatomy.stacks if stack != "vision"]
    for stack in texts:  # models do not give away what their vision towers think
        named = f"{stack}_hidden_states" if len(texts) > 1 else "hidden_states"
        ours, theirs = trace.hidden_of(stack), own[named]
        for mine, yours in zip(ours[:-1], theirs, strict=False):  # a norm may follow the last one
            assert_close(mine, yours[0], rtol=0, atol=0)
        assert len(theirs) >= len(ours)


def test_padding_on_the_left_is_not_looked_at(family):
    subject, inputs = family
    if "attention_mask" not in inputs:
        pytest.skip("images and sound have no padding")
    trace = capture(subject, padded(inputs, 3, 0))
    assert trace.real.tolist() == [False] * 3 + [True] * inputs["input_ids"].shape[1]
    for site in trace.sites:
        if trace.keys_of(site.index) is trace.sequences[subject.anatomy.main_stack]:
            rows = slice(None) if site.kind == "cross" else slice(3, None)
            assert (trace.attention[site.index][:, rows, :3] == 0).all()
            assert not trace.visible[site.index][rows, :3].any()


def test_a_model_built_on_sdpa_gives_the_same_maps(family):
    subject, inputs = family
    name = next(n for n in CONTRACT if subject_of(n) is subject)
    try:
        model = CONTRACT[name].build(attn_implementation="sdpa")
    except ValueError as refused:
        pytest.skip(f"cannot be built on sdpa: {refused}")
    other = capture(load(model), inputs)
    for ours, theirs in zip(capture(subject, inputs).attention, other.attention, strict=True):
        assert_close(ours, theirs, rtol=0, atol=0)


def test_the_softmax_tap_is_an_independent_witness(family):
    subject, inputs = family
    if subject.anatomy.tap == "softmax":
        pytest.skip("it is the only witness here")
    if "sinks" in subject.anatomy.sites[0].variants:
        with pytest.raises(UnsupportedModelError, match="attention"):
            load(subject.model, tap="softmax")  # its softmax has one column more than it averages
        return
    witness = load(subject.model, tap="softmax")
    first, second = capture(subject, inputs, keep=KEEPABLE), capture(witness, inputs, keep=KEEPABLE)
    assert [s.projection for s in first.sites] == [s.projection for s in second.sites]
    for what in ("attention", "values", "visible"):
        for ours, theirs in zip(getattr(first, what), getattr(second, what), strict=True):
            assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_a_forgotten_mask_would_be_noticed():
    """Registering the attention function without its mask lets causal models see the future."""
    from transformers import AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    assert AttentionMaskInterface()[NAME] is eager_mask
    model = FAMILIES["llama"].build()
    AttentionMaskInterface._global_mapping.pop(NAME)
    try:
        with pytest.raises(BrokenInvariantError, match="changes its answer"):
            load(model)
    finally:
        AttentionMaskInterface.register(NAME, eager_mask)
    trace = capture(load(model), FAMILIES["llama"].inputs())
    assert all(attention.triu(1).abs().sum() == 0 for attention in trace.attention)


def test_states_with_the_batch_inside_are_refused_with_the_reason():
    with pytest.raises(UnsupportedModelError, match=r"do not carry \(batch, token, width\)"):
        load(REFUSED["xlnet"].build())


def test_probabilities_that_are_used_twice_are_refused_with_the_reason():
    with pytest.raises(BrokenInvariantError, match="probabilities"):
        load(REFUSED["granite-swa"].build())


def test_a_hybrid_is_followed_where_it_attends():
    family = HYBRID["qwen3-next"]
    subject = load(family.build())
    test_looking_changes_nothing((subject, family.inputs()))
    trace = capture(subject, family.inputs())
    assert (len(trace.sites), len(trace.layers)) == (1, 4)
    assert "a gate" in str(subject.anatomy.sites[0].projection_problem)
    test_replay_from_every_layer_gives_the_same_answer((subject, family.inputs()))


def test_a_gate_before_the_projection_is_named():
    subject = load(REFUSED["gated"].build())
    problems = {site.projection_problem for site in subject.anatomy.sites if not site.projection}
    assert any("a gate" in problem for problem in problems)
