"""Effective attention on models: the answer stays, masks are kept, padding does not matter."""

import pytest
import torch
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import BadRequestError
from exhibit_a.methods.identifiability.alternatives import alternative_attention
from exhibit_a.methods.identifiability.counts import (
    attention_identifiability,
    identifiability_by_length,
)
from exhibit_a.methods.identifiability.effective import VERDICTS, effective_attention, observed_bias
from exhibit_a.subject.prompts import Prompt
from exhibit_a.subject.subject import load
from exhibit_a.trace import edits
from exhibit_a.trace.capture import capture, capture_alike
from exhibit_a.trace.replay import replay

LENGTH = 24  # three times as many tokens as a head is wide


def long_inputs(name, length=LENGTH):
    inputs = FAMILIES[name].inputs()
    ids = torch.randint(4, 80, (1, length), generator=torch.Generator().manual_seed(3))
    return inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def traced(name, **options):
    return capture(subject_of(name), long_inputs(name), **options)


FEW = ["bert", "gpt2", "llama", "mistral", "modernbert", "t5", "deberta-v2", "falcon", "gpt-neo"]


@pytest.fixture(params=FEW)
def trace(request):
    return traced(request.param)


def test_the_model_cannot_tell_effective_attention_from_its_own(trace):
    result = effective_attention(trace)
    every = edits.together(*(edits.replace(i, m) for i, m in enumerate(result.effective)))
    with torch.no_grad():
        answer = replay(trace, every).logits
    assert_close(answer, trace.output.logits, rtol=1e-3, atol=1e-3)
    if any((nullity > 0).any() for nullity in result.nullity):
        moved = [(a - e).abs().amax() for a, e in zip(result.raw, result.effective, strict=True)]
        assert max(moved) > 1e-2
    assert result.checks["largest change of a head's output"] < 1e-5


def test_rows_that_see_no_more_keys_than_the_rank_are_unchanged(trace):
    result = effective_attention(trace)
    for site in trace.sites:
        seen = trace.visible[site.index].sum(-1)
        short = seen <= result.rank[site.index]
        raw, effective = result.raw[site.index], result.effective[site.index]
        assert torch.equal(raw[short], effective[short])
        assert (result.nullity[site.index] == seen - result.rank[site.index]).all()


def test_every_row_is_its_own_svd_projection(trace):
    result = effective_attention(trace)
    for site in (0, len(trace.sites) - 1):
        for query in (0, 3, result.raw[site].shape[1] - 1):
            seen = trace.visible[site][query]
            values = trace.values[site][:, seen].double()
            left, strength, _ = torch.linalg.svd(values, full_matrices=False)
            line = max(values.shape[-2:]) * torch.finfo(torch.float32).eps
            kept = left * (strength > line * strength[:, :1]).unsqueeze(1)
            row = result.raw[site][:, query, seen].double().unsqueeze(1)
            expected = (row @ kept @ kept.mT).squeeze(1)
            ours = result.effective[site][:, query, seen].double()
            assert_close(ours, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_padding_changes_nothing(name):
    plain = effective_attention(traced(name))
    inputs = long_inputs(name)
    for name_of_input in ("input_ids", "attention_mask"):
        inputs[name_of_input] = torch.nn.functional.pad(inputs[name_of_input], (0, 40))
    padded = effective_attention(capture(subject_of(name), inputs))
    for site in range(len(plain.sites)):
        q, k = plain.raw[site].shape[1:]
        assert_close(padded.effective[site][:, :q, :k], plain.effective[site], rtol=0, atol=1e-4)
        assert (padded.effective[site][:, :q, k:] == 0).all()
        assert torch.equal(padded.rank[site][:, :q], plain.rank[site])
        assert (padded.rank[site][:, q:] == -1).all()
        assert_close(padded.pearson[site], plain.pearson[site], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt-neox"])
def test_without_the_bias_the_bias_free_output_stays(name):
    model = FAMILIES[name].build()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear | Conv1D) and module.bias is not None:
                module.bias.normal_(generator=torch.Generator().manual_seed(0))
    trace = capture(load(model), long_inputs(name))
    include, exclude = effective_attention(trace), effective_attention(trace, value_bias="exclude")
    assert (include.effective[0] - exclude.effective[0]).abs().amax() > 1e-3
    free = trace.values[0] - observed_bias(trace)[0].unsqueeze(1)
    assert_close(exclude.effective[0] @ free, exclude.raw[0] @ free, rtol=0, atol=1e-4)
    both = [effective_attention(trace, value_bias=b, simplex=True) for b in ("include", "exclude")]
    assert_close(both[0].effective[0], both[1].effective[0], rtol=0, atol=1e-4)


def test_a_rank_deficient_projection_shows_less():
    model = FAMILIES["bert"].build()
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.output.dense.weight[:, :5] = 0  # head 0 keeps 3 of 8
    trace = capture(load(model), long_inputs("bert"))
    result = effective_attention(trace)
    assert result.rank[0][0].unique().tolist() == [3]
    assert result.rank[0][1].unique().tolist() == [8]
    assert result.checks["rank-deficient W_O"] == "V·W_O used at (site, head) [(0, 0)]"
    passed = trace.values[0].double() @ trace.output_weight(0).double()
    output = result.effective[0].double() @ passed
    assert_close(output, result.raw[0].double() @ passed, rtol=0, atol=1e-4)
    left, _, _ = torch.linalg.svd(passed[0], full_matrices=False)
    expected = result.raw[0][0].double() @ left[:, :3] @ left[:, :3].T
    assert_close(result.effective[0][0].double(), expected, rtol=0, atol=1e-5)


def test_weight_on_special_tokens_is_counted_before_and_after():
    subject = speaker()
    trace = capture(subject, "the plot is not great but acting saves it . really a very fine film")
    result = effective_attention(trace)
    by_hand = result.raw[0][:, :, trace.special].sum(-1).mean(-1)
    assert_close(result.special_raw[0], by_hand)
    assert_close(result.first_raw[0], result.raw[0][:, :, 0].mean(-1))
    size = result.effective[0].abs()
    share = (size[:, :, trace.special].sum(-1) / size.sum(-1)).mean(-1)
    assert_close(result.special_effective[0], share)


def test_mistakes_list_what_there_is():
    trace = traced("bert")
    with pytest.raises(BadRequestError, match="choose include, exclude"):
        effective_attention(trace, value_bias="maybe")
    with pytest.raises(BadRequestError, match="between 0 and 1"):
        effective_attention(trace, rtol=2.0)
    with pytest.raises(BadRequestError, match="this model has 0 to 2"):
        alternative_attention(trace, site=3, head=0)
    with pytest.raises(BadRequestError, match="its heads are 0 to 3"):
        alternative_attention(trace, site=0, head=4)
    with pytest.raises(BadRequestError, match=f"0 to {LENGTH - 1}"):
        alternative_attention(trace, site=0, head=0, query=LENGTH)
    with pytest.raises(BadRequestError, match="sample"):
        alternative_attention(trace, site=0, head=0, samples=0)
    words = speaker()
    with pytest.raises(BadRequestError, match="3 tokens"):
        identifiability_by_length(words, "film")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bart"])
def test_alternatives_are_valid_and_give_the_same_answer(name):
    trace = traced(name)
    site = len(trace.sites) - 1
    result = alternative_attention(trace, site=site, head=1, samples=4)
    seen = trace.visible[site][result.query]
    values = trace.values[site][1].double()
    assert not result.identifiable
    assert result.freedom == int(seen.sum()) - 9
    for row in (*result.alternatives, result.farthest):
        assert (row >= 0).all()
        assert (row[~seen] == 0).all()
        assert float(row.sum()) == pytest.approx(float(result.row.sum()), abs=1e-9)
        assert_close(row @ values, result.row @ values, rtol=0, atol=1e-8)
        assert (row <= result.high + 1e-9).all()
        assert (row >= result.low - 1e-9).all()
    assert result.distance == pytest.approx(float((result.farthest - result.row).abs().sum() / 2))
    assert result.distance > 0.1
    checks = result.checks
    assert checks["largest change of the answer"] <= checks["rounding of the answer"]
    result.plot()


def test_each_demand_leaves_less_freedom(trace):
    result = attention_identifiability(trace)
    (drawn,) = result.plot().axes[0].images
    assert float(drawn.get_array()[0, 0]) == pytest.approx(float(result.unique(0)[0]))
    for site in trace.sites:
        i = site.index
        assert (result.same_output[i] >= result.same_sum[i]).all()
        assert (result.same_sum[i] >= result.not_negative[i]).all()
        if result.generated[i] is not None:
            assert (result.generated[i] <= site.d_query).all()
    shares = result.unique(0)
    assert (shares.diff() >= 0).all()


def test_attention_is_identifiable_up_to_the_width_of_the_heads():
    subject = speaker()
    text = " ".join(["the plot is not great but acting saves it . really a very fine film"] * 3)
    result = identifiability_by_length(subject, text)
    assert {8, 9} <= set(result.lengths)
    for length, pearson, null in zip(
        result.lengths, result.pearson, result.null_fraction, strict=True
    ):
        if length <= 8:
            assert_close(pearson, torch.ones_like(pearson), rtol=0, atol=0)
            assert (null == 0).all()
        else:
            assert (pearson < 1).all()
            assert (null > 0).all()
    result.plot()
    with pytest.raises(BadRequestError, match="4 to 47"):
        identifiability_by_length(subject, text, lengths=[100])


def several(name, length, simplex=False):
    """Texts of one length, together and one by one."""
    subject, inputs = subject_of(name), FAMILIES[name].inputs()
    ids = torch.randint(4, 80, (3, length), generator=torch.Generator().manual_seed(6))
    ids[0, 5:] = ids[0, 4]  # one text repeats itself
    prompts = [
        Prompt(inputs | {"input_ids": row[None], "attention_mask": torch.ones_like(row[None])})
        for row in ids
    ]
    together = effective_attention(capture_alike(subject, prompts), simplex=simplex)
    alone = [
        effective_attention(capture(subject, prompt.inputs), simplex=simplex) for prompt in prompts
    ]
    return together, alone


@pytest.mark.parametrize("simplex", [False, True])
@pytest.mark.parametrize("length", [6, 12])  # shorter than the heads are wide, and longer
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_several_texts_of_one_length_have_the_numbers_of_each_alone(name, length, simplex):
    for found, expected in zip(*several(name, length, simplex), strict=True):
        assert found.checks.keys() == expected.checks.keys()
        for field in ("rank", "nullity", "verdict"):
            assert all(map(torch.equal, getattr(found, field), getattr(expected, field)))
        for field in (
            "effective", "null_fraction", "moved", "pearson", "spectrum", "rtol", "special_raw",
            "special_effective", "first_raw", "first_effective",
        ):  # fmt: skip
            for ours, theirs in zip(getattr(found, field), getattr(expected, field), strict=True):
                assert_close(ours, theirs, rtol=1e-3, atol=1e-4, msg=field)


def test_verdicts_follow_the_visible_keys():
    result = effective_attention(traced("gpt2"))
    assert result.verdict_of(0, 0, 2) == VERDICTS[0]
    assert result.verdict_of(0, 0, LENGTH - 1) == VERDICTS[2]
    assert (result.null_fraction[0][:, :8] == 0).all()
