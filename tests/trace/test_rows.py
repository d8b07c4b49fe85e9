"""Requested rows only: the model runs on its own fused kernel, and no n × n map is formed."""

import pytest
import torch
from support.subjects import speaker, subject_of
from support.zoo import FAMILIES
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.errors import BadRequestError, BrokenInvariantError, NotComputableError
from exhibit_a.subject.fused import FusedCall
from exhibit_a.subject.guard import floating, without_cache
from exhibit_a.subject.tap import Tap, attention_implementation
from exhibit_a.trace.passes import KEEPABLE

LONG = 40  # tokens, more than the heads of the small models are wide


def long_inputs(count: int = LONG) -> dict[str, torch.Tensor]:
    ids = torch.randint(4, 80, (1, count), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture(params=sorted(FAMILIES))
def family(request):
    return subject_of(request.param), FAMILIES[request.param].inputs()


@pytest.fixture(params=["llama", "bert", "mistral", "gptj"])
def pair(request):
    """A full trace and one of a few rows, of grouped keys, an encoder, a window, no kernel …"""
    subject, inputs = subject_of(request.param), long_inputs()
    rows = (0, 5, 37, 39)
    full = xa.capture(subject, inputs, keep=KEEPABLE)
    return full, xa.capture(subject, inputs, rows=rows, keep=KEEPABLE), list(rows)


def test_the_answer_is_the_models_own(family):
    subject, inputs = family
    model, trace = subject.model, xa.capture(subject, inputs, rows=[0, -1])
    own = model.config._attn_implementation
    with torch.no_grad(), attention_implementation(model, own if subject.kernels else "eager"):
        answer = model(**without_cache(model, trace.inputs))
    for ours, theirs in zip(floating(trace.output), floating(answer), strict=True):
        assert torch.equal(ours, theirs)
    assert model.config._attn_implementation == own


def test_rows_are_those_of_the_eager_maps(family):
    subject, inputs = family
    full = xa.capture(subject, inputs, keep=KEEPABLE)
    few = xa.capture(subject, inputs, rows=[0, -1], keep=KEEPABLE)
    for site in full.sites:
        rows = list(few.rows) if site.stack == full.sites[-1].stack else []
        i = site.index
        # 2e-5: T5 does not scale its scores, and two kernels round them apart by 1.01e-5
        assert_close(few.attention[i], full.attention[i][:, rows], rtol=0, atol=2e-5)
        assert_close(few.values[i], full.values[i], rtol=1e-4, atol=1e-5)
        assert torch.equal(few.visible[i], full.visible[i][rows])
        assert len(few.queries_of(i).tokens) == few.attention[i].shape[1]
    assert few.token_names == full.token_names
    assert few.whole().rows is None
    assert few.partial.parity < 1e-5


@pytest.mark.parametrize("sides", [(0, 3), (3, 0)], ids=["right", "left"])
@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "modernbert", "bart"])
def test_padding_is_masked_in_row_request(name, sides):
    subject, inputs = subject_of(name), dict(FAMILIES[name].inputs())
    pad = torch.nn.functional.pad
    inputs["input_ids"] = pad(inputs["input_ids"], sides, value=3)
    inputs["attention_mask"] = pad(inputs["attention_mask"], sides)
    full, rows = xa.capture(subject, inputs), [3, 4]
    few = xa.capture(subject, inputs, rows=rows)
    for site in (site for site in full.sites if site.stack == full.sites[-1].stack):
        assert_close(
            few.attention[site.index], full.attention[site.index][:, rows], rtol=0, atol=1e-5
        )
        assert torch.equal(few.visible[site.index], full.visible[site.index][rows])


def test_no_map_is_formed():
    """The largest thing a pass of rows makes is far below heads × n²."""
    subject, count = subject_of("llama"), 60
    largest = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            largest.extend(part.numel() for part in floating(made) if part.numel())
            return made

    with Watch():
        xa.capture(subject, long_inputs(count), rows=[-1])
    assert max(largest) < 60 * 80 + 1  # the answers of all positions would be n × 80
    assert max(largest) < 4 * count**2


def test_rows_can_be_asked_for_in_many_ways():
    subject = subject_of("llama")
    for asked, rows in (
        ([-1], (39,)),
        (-2, (38,)),
        (slice(-3, None), (37, 38, 39)),
        ("answer", (39,)),
        ([5, 0, -40], (0, 5)),
        (range(2), (0, 1)),
    ):
        assert xa.capture(subject, long_inputs(), rows=asked).rows == rows
    with pytest.raises(BadRequestError, match="0 to 39"):
        xa.capture(subject, long_inputs(), rows=[40])
    with pytest.raises(BadRequestError, match="No row"):
        xa.capture(subject, long_inputs(), rows=[])
    with pytest.raises(BadRequestError, match="There are no rows 'last'"):
        xa.capture(subject, long_inputs(), rows="last")
    with pytest.raises(BadRequestError, match="is not known beforehand"):
        xa.capture(subject_of("bert"), long_inputs(), rows="answer")


def test_rows_of_an_answer_are_those_that_predict_it():
    subject = speaker("llama")
    trace = xa.capture(subject, "a good film", target_text=" and fine", rows="answer")
    first = trace.reply.position
    assert trace.rows == tuple(range(first, first + len(trace.reply.ids)))
    assert trace.output.logits.shape[1] == len(trace.tokens) - first
    whole = trace.whole()
    for scale in ("log_probability", "log_odds"):
        few_target = xa.choose_target(trace, "answer", scale=scale)
        assert few_target == xa.choose_target(whole, "answer", scale=scale)
    ours = xa.self_attribution(trace, target="answer")
    theirs = xa.self_attribution(whole, target="answer")
    assert_close(ours.change, theirs.change, rtol=1e-3, atol=1e-5)
    with pytest.raises(BadRequestError, match="not kept"):
        xa.choose_target(trace, position=0)


def test_effective_attention_of_rows(pair):
    full, few, rows = pair
    every, asked = xa.effective_attention(full), xa.effective_attention(few)
    for site in full.sites:
        i = site.index
        assert_close(asked.effective[i], every.effective[i][:, rows], rtol=0, atol=1e-5)
        for name in ("rank", "nullity", "verdict"):
            assert torch.equal(getattr(asked, name)[i], getattr(every, name)[i][:, rows])
        assert_close(asked.null_fraction[i], every.null_fraction[i][:, rows], rtol=0, atol=1e-5)
    assert asked.rows == tuple(rows)
    assert asked.tokens_of(0)[0] == tuple(full.tokens[row] for row in rows)
    assert asked.checks["rows"] == "4 of 40"
    exclude = xa.effective_attention(few, value_bias="exclude")
    whole = xa.effective_attention(full, value_bias="exclude")
    assert_close(exclude.effective[0], whole.effective[0][:, rows], rtol=0, atol=1e-5)


def test_self_attribution_of_rows_is_part_of_that_of_all():
    subject, inputs, rows = subject_of("llama"), long_inputs(12), [3, 11]
    full, few = (xa.capture(subject, inputs, rows=asked) for asked in (None, rows))
    target = xa.choose_target(full, position=-1) if full.output.logits.ndim == 3 else None
    every = xa.self_attribution(full, target=target)
    asked = xa.self_attribution(few, target=target)
    assert_close(asked.change, every.change, rtol=1e-3, atol=1e-5)
    for site in full.sites:
        if every.complete[site.index] and asked.complete[site.index]:
            theirs = every.scores[site.index][:, rows]
            atol = 0.02 * float(every.scores[site.index].abs().amax())
            assert_close(asked.scores[site.index], theirs, rtol=0, atol=atol)
    assert tuple(asked.gap.shape) == tuple(every.gap.shape)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_reliance_with_all_rows_asked_is_reliance(name):
    """With every row asked for, the rows that are averaged anew are all there are."""
    subject, inputs = subject_of(name), long_inputs(9)
    full, everything = (xa.capture(subject, inputs, rows=rows) for rows in (None, slice(None)))
    target = xa.choose_target(full, position=-1) if full.output.logits.ndim == 3 else None
    every, asked = (
        xa.reliance(trace, target=target, rows="all", by="path", budget=5)
        for trace in (full, everything)
    )
    assert asked.margin == pytest.approx(every.margin, rel=1e-3, abs=1e-4)
    assert asked.baseline_margin == pytest.approx(every.baseline_margin, rel=1e-3, abs=1e-4)
    for ours, theirs in zip(asked.one_head, every.one_head, strict=True):
        assert_close(ours, theirs, rtol=1e-2, atol=1e-3)
    for ours, theirs in zip(asked.edges, every.edges, strict=True):
        assert_close(ours, theirs, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("rows", ["all", None])
def test_reliance_of_rows_is_what_the_answer_loses_when_they_are_uniform(rows):
    """Of the rows that were captured, all play or only the one that the answer is read from."""
    subject = subject_of("llama")
    few = xa.capture(subject, long_inputs(), rows=[-2, -1])
    playing = (38, 39) if rows == "all" else (39,)
    target = xa.choose_target(few, position=-1)
    result = xa.reliance(few, target=target, rows=rows, baseline="uniform", by="path", budget=9)

    class Uniform(Tap):
        def result(self, call, context):
            context = context.clone()
            for row in playing:
                context[:, :, row] = call.values[:, :, : row + 1].mean(2)
            return context

    model = subject.model
    with torch.no_grad(), subject.tapping(Uniform(), fused=True):
        logits = model(**without_cache(model, long_inputs())).logits[0, -1]
    target = xa.choose_target(few, position=-1, scale="log_odds")
    uniform = float(target.of(logits[None, None]))
    assert result.baseline_margin == pytest.approx(uniform, rel=1e-4, abs=1e-4)
    assert [tuple(edges.shape) for edges in result.edges] == [(4, len(playing), LONG)] * 3
    shares = sum(float(heads.sum()) for heads in result.heads)
    total = shares + result.block.worth + result.gap
    assert total == pytest.approx(result.whole, abs=1e-3)


def test_what_needs_all_rows_says_so_in_one_line():
    few = xa.capture(subject_of("llama"), long_inputs(), rows=[-1])
    for method in (xa.head_mixing, xa.adversarial_attention, xa.attribution_tree):
        given = few if method is not xa.attribution_tree else xa.self_attribution(few)
        with pytest.raises(NotComputableError, match="1 row") as said:
            method(given)
        assert "trace.whole()" in str(said.value)
        assert "\n" not in str(said.value)


def test_a_result_about_rows_is_saved_shown_and_drawn(tmp_path):
    subject = xa.load("sentiment")
    few = xa.capture(subject, "it never drags , a fine film " * 6, rows=[0, 3])
    result = xa.effective_attention(few)
    again = xa.read(result.save(tmp_path / "rows"))
    assert again.rows == (0, 3)
    assert again.row_tokens == ("[CLS]", few.tokens[3])
    table = result.to_pandas()
    picked = table[(table.field == "effective") & (table["query"] == 1)]
    assert set(picked.query_token) == {few.tokens[3]}
    words = result.by("word")
    assert words.effective[0].shape[1] == 2
    assert words.effective[0].shape[2] < result.effective[0].shape[2]
    assert_close(words.raw[0].sum(-1), result.raw[0].sum(-1))
    result.plot(site=0, head=1)
    assert result.html(tmp_path / "rows.html").exists()
    attribution = xa.self_attribution(few)
    assert attribution.strongest(1)[0].query_token in result.row_tokens
    assert "of 2 rows" in repr(few)


def test_a_kernel_that_is_not_understood_is_noticed(monkeypatch):
    monkeypatch.setattr(FusedCall, "_masks_the_future", lambda *_: False)
    with pytest.raises(BrokenInvariantError, match="mask"):
        xa.capture(subject_of("llama"), long_inputs(), rows=[5])


def test_alternatives_of_an_asked_row():
    subject = subject_of("llama")
    full, few = (xa.capture(subject, long_inputs(), rows=rows) for rows in (None, [20, 39]))
    where = {"site": 1, "head": 2, "samples": 2}
    every = xa.alternative_attention(full, **where)
    asked = xa.alternative_attention(few, **where)
    assert asked.query == every.query == 39
    assert asked.freedom == every.freedom
    assert_close(asked.row, every.row, rtol=0, atol=1e-5)
    assert xa.alternative_attention(few, query=20, **where).query == 20
    with pytest.raises(BadRequestError, match="query 3"):
        xa.alternative_attention(few, query=3, **where)


def test_companions_of_rows_are_those_of_all():
    """Methods that need the rows of the answer alone say the same; the others are left out."""
    subject = speaker("llama")
    few = xa.capture(subject, "a good film and a fine story", rows=[-1])
    names = ["raw", "mean_attention", "effective", "contribution_weights", "gradient_input"]
    asked = xa.companions(few, methods=[*names, "occlusion"])
    for name, result in xa.companions(few.whole(), methods=[*names, "occlusion"]).items():
        assert_close(asked[name].scores, result.scores, rtol=1e-3, atol=1e-5)
    with pytest.raises(NotComputableError, match="rollout"):
        xa.companions(few, methods=["rollout"])
    first = xa.capture(subject, "a good film and a fine story", rows=[0])
    with pytest.raises(BadRequestError, match="not kept"):
        xa.companions(first, methods=["raw"], target=xa.choose_target(few))


def test_masks_of_flash_kernels():
    """Flash kernels mask the future, windows and padding by themselves."""
    query, none = torch.zeros(1, 1, 6, 4), torch.zeros(1, 1, 0, 6)
    module, rows = torch.nn.Module(), torch.tensor([1, 5])
    padding = torch.tensor([[0, 1, 1, 1, 1, 1]])

    def seen(mask, **details):
        call = FusedCall(
            0, module, query, query, query, none, None, details, mask, "flash_attention_2"
        )
        return call.requested(rows).visible

    assert seen(None)[0, 0].int().tolist() == [[1, 1, 0, 0, 0, 0], [1] * 6]
    assert seen(None, is_causal=False) is None
    assert seen(padding, sliding_window=3)[0, 0].int().tolist() == [
        [0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
    ]
