"""The batched forms for a corpus give each text the numbers that it has alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.masks import attention_over, mask, seeded
from support.subjects import subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

from exhibit_a.methods.identifiability.batched import (
    EffectiveSummary,
    FreedomSummary,
    rank_deficient_sites,
)
from exhibit_a.methods.identifiability.effective import effective_attention
from exhibit_a.methods.identifiability.freedom import degrees_of_freedom
from exhibit_a.methods.identifiability.projection import Convention
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import AttentionCall
from exhibit_a.trace.capture import capture

COUNTS = ("same_output", "same_sum", "not_negative", "generated", "reach")
law = settings(max_examples=15, deadline=None)


def one_row(call, text, head, query):
    """The freedom of one row of one head of one text, counted by itself."""
    groups = call.probs.shape[1] // call.value.shape[1]
    visible = torch.ones(call.probs.shape[-2:], dtype=torch.bool)
    if call.visible is not None:
        visible = call.visible[0, 0]
    kv_head = head // groups
    return degrees_of_freedom(
        call.probs[text, head, query][None, None],
        call.value[text, kv_head][None],
        None if call.key is None else call.key[text, kv_head][None],
        visible[query][None],
    )


def check_freedom(call):
    summary = FreedomSummary()
    summary.weighting(call)
    (numbers,) = summary.numbers
    texts, heads, queries = call.probs.shape[:3]
    counted = [name for name in COUNTS if call.key is not None or name not in COUNTS[3:]]
    assert set(numbers) == {*counted, *(f"unique_{name}" for name in counted if name != "reach")}
    for text in range(texts):
        for head in range(heads):
            rows = [one_row(call, text, head, query) for query in range(queries)]
            for name in counted:
                by_row = torch.cat([getattr(row, name).flatten() for row in rows])
                assert_close(numbers[name][text, head], by_row.double().mean())
                if name != "reach":
                    share = (by_row == 0).double().mean()
                    assert_close(numbers[f"unique_{name}"][text, head], share)
    return numbers


@st.composite
def calls(draw):
    """A batch whose texts differ (the first repeats a token), and its heads in their keys."""
    generator = seeded(draw(st.integers(0, 2**31)))
    texts, n = draw(st.integers(1, 3)), draw(st.integers(2, 9))
    kv_heads, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    d_head, d_query = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    visible = mask(draw(st.sampled_from(("all", "causal", "sliding"))), n)
    attention = torch.stack(
        [attention_over(visible, kv_heads * groups, generator) for _ in range(texts)]
    )
    value, key = (
        torch.randn(texts, kv_heads, n, width, generator=generator, dtype=torch.float64)
        for width in (d_head, d_query)
    )
    value[0, :, -1], key[0, :, -1] = value[0, :, 0], key[0, :, 0]
    key[:, 0] = key[:, 0, :, :1]  # these keys can move a row in one dimension only
    if draw(st.booleans()):
        attention[-1, 0, -1, 0] = 0  # a weight that underflowed
    return AttentionCall(
        site=0,
        module=None,
        query=None,
        key=key if draw(st.booleans()) else None,
        value=value,
        probs=attention,
        visible=None if bool(visible.all()) else visible[None, None].expand(texts, 1, -1, -1),
    )


@law
@given(calls())
def test_freedom_is_counted_row_by_row_in_every_text(call):
    check_freedom(call)


def test_freedom_differs_between_the_texts_of_a_batch():
    generator = seeded(4)
    value = torch.randn(2, 1, 6, 8, generator=generator, dtype=torch.float64)
    value[1, :, 3:] = value[1, :, :3]  # the second text says everything twice
    key = torch.randn(2, 1, 6, 4, generator=generator, dtype=torch.float64)
    attention = torch.softmax(torch.randn(2, 2, 6, 6, generator=generator).double(), -1)
    numbers = check_freedom(AttentionCall(0, None, None, key, value, attention, None))
    assert numbers["same_output"].tolist() == [[0, 0], [3, 3]]
    assert numbers["unique_same_output"].tolist() == [[1, 1], [0, 0]]


def batch_of(name, texts=3, length=12):
    ids = torch.randint(4, 80, (texts, length), generator=seeded(6))
    ids[0, 5:] = ids[0, 4]  # one text repeats itself
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("simplex", [False, True])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_effective_attention_of_a_batch_is_that_of_each_text(name, simplex):
    subject, inputs = subject_of(name), batch_of(name)
    check_effective(subject, inputs, Convention(simplex=simplex))


def test_heads_with_a_rank_deficient_projection_are_found_in_a_batch_too():
    model = FAMILIES["bert"].build()
    weight = model.bert.encoder.layer[1].attention.output.dense.weight
    with torch.no_grad():
        weight[:, :6] = weight[:, :1]  # head 0 of layer 1 passes three directions of eight
    subject = load(model)
    assert [sorted(heads) for heads in rank_deficient_sites(subject)][:2] == [[], [0]]
    numbers = check_effective(subject, batch_of("bert"), Convention())
    assert numbers[1]["rank"][1, 0] == 3


def check_effective(subject, inputs, convention):
    special = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    special[:, -1] = True
    summary = EffectiveSummary(special, rank_deficient_sites(subject), convention, keep_maps=True)
    with torch.no_grad(), frozen_eval(subject.model), subject.tapping(summary):
        subject.model(**inputs, use_cache=False)
    for text in range(len(special)):
        alone = capture(subject, {key: rows[text : text + 1] for key, rows in inputs.items()})
        result = effective_attention(alone, simplex=convention.simplex)
        for site, numbers in enumerate(summary.numbers):
            assert_close(summary.maps[site][text], result.effective[site], rtol=1e-4, atol=1e-5)
            for field in ("rank", "nullity", "null_fraction", "moved"):
                expected = getattr(result, field)[site].double().mean(-1)
                assert_close(numbers[field][text], expected, rtol=1e-3, atol=1e-6)
            for verdict, code in (("identifiable", 0), ("borderline", 1)):
                share = (result.verdict[site] == code).double().mean(-1)
                assert_close(numbers[verdict][text], share)
            pearson = result.pearson[site].double()
            assert_close(numbers["pearson"][text], pearson, rtol=1e-3, atol=1e-4)
            for kind, maps in (("raw", result.raw), ("effective", result.effective)):
                size = maps[site].abs()
                for mark, key in (("special", -1), ("first", 0)):
                    share = (size[..., key] / size.sum(-1)).mean(-1)
                    name = f"{mark}_{kind}"
                    assert_close(
                        numbers[name][text], share, rtol=1e-3, atol=1e-5, check_dtype=False
                    )
    return summary.numbers
