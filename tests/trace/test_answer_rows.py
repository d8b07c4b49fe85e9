"""What a replay leaves out changes nothing: rows that nobody reads, and copies of one text."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from support.subjects import subject_of, trace_of
from support.zoo import CONTRACT, FAMILIES, HYBRID
from torch.testing import assert_close
from transformers import BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput

from exhibit_a.errors import NotComputableError
from exhibit_a.methods.attribution.path_integral import Scaled
from exhibit_a.subject.subject import load
from exhibit_a.trace import answer_rows, edits
from exhibit_a.trace import replay as replaying
from exhibit_a.trace.answer_rows import rows_read
from exhibit_a.trace.batches import KeptHeads, of_one
from exhibit_a.trace.capture import capture
from exhibit_a.trace.passes import hidden_of_output, with_states
from exhibit_a.trace.replay import replay
from exhibit_a.trace.targets import chosen_target

READS_ONE = ("bert", "llama", "gpt2", "bart", "qwen3", "gemma3", "deepseek-v3", "qwen3-next")


@pytest.fixture(autouse=True)
def _short_texts_too(monkeypatch):
    monkeypatch.setattr(answer_rows, "WORTH", 1)


def asked(name):
    """A trace, its target, and the rows that are read of its last layer."""
    subject = load(HYBRID[name].build()) if name in HYBRID else subject_of(name)
    trace = capture(subject, (CONTRACT | HYBRID)[name].inputs())
    try:
        target = chosen_target(trace, None)
    except NotComputableError:
        pytest.skip("it answers with states")
    return trace, target, rows_read(trace, target)


def with_gradients(trace, target, edit, **options):
    """An answer, and its gradients by what every site averaged."""
    nudge = edits.ContextGradients()
    with torch.enable_grad():
        reached = target(replay(trace, edits.together(edit, nudge), start=0, **options)).sum()
        gradients = torch.autograd.grad(reached, nudge.nudges, materialize_grads=True)
    return reached.detach(), gradients


@pytest.mark.parametrize("name", [*CONTRACT, *HYBRID])
def test_rows_that_nobody_reads_can_be_left_out(name):
    trace, target, rows = asked(name)
    if rows is None:
        assert name not in READS_ONE
        return
    assert len(rows) < len(hidden_of_output(trace.layer_outputs[-1])[0])
    for site in {0, len(trace.sites) - 1}:
        edit = edits.scale(site, 0.4)
        with torch.no_grad():
            whole = target(replay(trace, edit))
            assert_close(target(replay(trace, edit, read=rows)), whole, rtol=1e-4, atol=1e-5)
        whole, gradients = with_gradients(trace, target, edit)
        few, others = with_gradients(trace, target, edit, read=rows)
        assert_close(few, whole, rtol=1e-4, atol=1e-5)
        for found, expected in zip(others, gradients, strict=True):
            assert_close(found, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().amax()))


class _Pooled(BertForSequenceClassification):
    """A classifier that looks at all tokens, by ``pool``."""

    pool = staticmethod(lambda states: states.mean(1))

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, **options):
        states = self.bert(input_ids, attention_mask, token_type_ids, **options)[0]
        return SequenceClassifierOutput(logits=self.classifier(self.pool(states)))


class _Largest(_Pooled):
    """Takes the largest state of all tokens: the gradients of all others are zero."""

    pool = staticmethod(lambda states: states[:, :, :1].amax(1).expand(-1, states.shape[2]))


@pytest.mark.parametrize("kind", [_Pooled, _Largest])
def test_who_looks_at_all_rows_gets_all_rows(kind):
    plain = FAMILIES["bert"].build()
    subject = load(kind(plain.config).eval())
    trace = capture(subject, FAMILIES["bert"].inputs())
    target = chosen_target(trace, None)
    if kind is _Largest:  # which gradients alone would not tell
        leaf = hidden_of_output(trace.layer_outputs[-1]).detach().clone().requires_grad_()
        last = with_states(trace.layer_outputs[-1], leaf)
        ended = replace(trace, layer_outputs=(*trace.layer_outputs[:-1], last))
        reached = target(replay(ended, start=len(trace.layers))).sum()
        (gradients,) = torch.autograd.grad(reached, leaf)
        assert int((gradients != 0).any(-1).sum()) == 1
    assert rows_read(trace, target) is None


@contextmanager
def rows_met(model, *names):
    """How many rows of tokens the named weights met."""
    met = dict.fromkeys(names, 0)

    def count(name):
        return lambda _, args: met.update({name: met[name] + args[0][..., 0].numel()})

    parts = [(name, model.get_submodule(name)) for name in names]
    wrapped = [(part, part.forward) for _, part in parts]
    for name, part in parts:
        inner, note = part.forward, count(name)
        part.forward = lambda *args, inner=inner, note=note: (note(None, args), inner(*args))[1]
    try:
        yield met
    finally:
        for part, _ in wrapped:
            del part.forward


@torch.no_grad()
def test_the_last_layer_ends_where_nobody_reads():
    trace, target, rows = asked("bert")
    last, tokens = trace.layers[-1].module, len(trace.tokens)
    dense, value = f"{last}.intermediate.dense", f"{last}.attention.self.value"
    with rows_met(trace.subject.model, dense, value) as met:
        few = target(replay(trace, edits.scale(0, 0.5), read=rows))
        assert met == {dense: 1, value: tokens + 1}
        whole = target(replay(trace, edits.scale(0, 0.5)))
    assert_close(few, whole)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_copies_of_a_text_meet_weights_once_until_they_differ(name):
    trace = trace_of(name)
    first, tokens = trace.layers[1].module, len(trace.tokens)
    parts = {
        "bert": ("attention.self.value", "attention.output.dense"),
        "llama": ("self_attn.v_proj", "self_attn.o_proj"),
    }
    value, after = (f"{first}.{part}" for part in parts[name])
    kept = torch.ones(3, len(trace.sites), trace.sites[1].heads)
    kept[torch.arange(3), 1, torch.arange(3)] = 0
    with rows_met(trace.subject.model, value, after) as met:
        together = replay(of_one(trace).rows(torch.zeros(3, dtype=torch.long)), KeptHeads(kept))
        assert met == {value: tokens, after: 3 * tokens}
    for copy in range(3):
        alone = replay(trace, edits.drop_heads([(1, copy)])).logits
        assert_close(together.logits[copy : copy + 1], alone, rtol=1e-4, atol=1e-5)
        assert (alone - trace.output.logits).abs().amax() > 1e-4


@torch.no_grad()
def test_rows_that_differ_are_never_taken_for_copies():
    trace = trace_of("bert")
    states = hidden_of_output(trace.layer_outputs[0])
    changed = torch.cat([states, states + 0.5, states * 2])
    outputs = (with_states(trace.layer_outputs[0], changed), *trace.layer_outputs[1:])
    batch = of_one(trace).rows(torch.zeros(3, dtype=torch.long))
    together = replay(replace(batch, layer_outputs=outputs), edits.scale(1, 1.0)).logits
    for copy in range(3):
        alone = (with_states(outputs[0], changed[copy : copy + 1]), *trace.layer_outputs[1:])
        expected = replay(replace(trace, layer_outputs=alone), edits.scale(1, 1.0)).logits
        assert_close(together[copy : copy + 1], expected, rtol=1e-4, atol=1e-5)
    assert (together[0] - together[1]).abs().amax() > 1e-3


@pytest.mark.parametrize("name", [*CONTRACT, *HYBRID])
def test_long_texts_are_replayed_on_fused_kernels_to_the_same_end(name, monkeypatch):
    """Where nothing but contexts is changed, the maps of a long text are never formed."""
    trace, target, rows = asked(name)
    for site in {0, len(trace.sites) - 1}:
        answers = []
        for long in (10**6, 1):
            monkeypatch.setattr(replaying, "LONG", long)
            edit = Scaled(site, torch.tensor([0.3]))
            with torch.enable_grad():
                reached = target(replay(trace, edit, read=rows))
                answers.append((reached.detach(), edit.gradients_of(reached)))
        (eager, gradients), (fused, others) = answers
        assert_close(fused, eager, rtol=1e-4, atol=1e-5)
        assert_close(others, gradients, rtol=1e-3, atol=1e-4 * float(gradients.abs().amax()))
