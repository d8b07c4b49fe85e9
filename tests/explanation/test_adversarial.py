"""Adversaries: far away attention, the same answer, and nobody cheats about either."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpora import numbered_sentences as sentences
from support.subjects import opinionated, subject_of, talking
from support.words import marked_tokenizer as tokenizer
from support.zoo import FAMILIES
from torch import nn
from torch.testing import assert_close
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from exhibit_a.errors import BadRequestError, NotComputableError, UnsupportedModelError
from exhibit_a.methods.explanation import adversarial_keys as keys_module
from exhibit_a.methods.explanation.adversarial import adversarial_attention
from exhibit_a.methods.explanation.adversarial_keys import adversarial_keys
from exhibit_a.methods.explanation.adversary_search import farthest_corner
from exhibit_a.numerics.distances import jensen_shannon, total_variation
from exhibit_a.subject.guard import frozen_eval
from exhibit_a.subject.subject import load
from exhibit_a.subject.tap import Tap
from exhibit_a.trace.capture import capture


def eager_attention_forward(module, query, key, value, attention_mask, **kwargs):
    probs = (query @ key.mT).softmax(-1)
    return (probs @ value).transpose(1, 2), probs


class OneLookConfig(PretrainedConfig):
    model_type = "one-look"
    vocab_size = 80


class OneLook(nn.Module):
    """One learned question, asked of all tokens: the attention of Jain and Wallace."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.question = nn.Parameter(torch.randn(1, 1, 1, 8))
        self.key, self.out = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, hidden_states):
        attend = AttentionInterface().get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        question = self.question.expand(len(hidden_states), 1, 1, 8)
        key, value = self.key(hidden_states)[:, None], hidden_states[:, None]
        context, _ = attend(self, question, key, value, None)
        return self.out(context.flatten(2)).expand_as(hidden_states)


class OneLookModel(PreTrainedModel):
    config_class = OneLookConfig
    _supports_attention_backend = True
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = nn.Embedding(80, 8)
        self.layers = nn.ModuleList([OneLook(config)])
        self.classifier = nn.Linear(8, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        hidden = self.layers[0](self.embeddings(input_ids))
        return SequenceClassifierOutput(logits=self.classifier(hidden[:, 0]))


@st.composite
def polytopes(draw):
    keys = draw(st.integers(2, 7))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    row = (3 * torch.randn(keys, generator=seeded, dtype=torch.float64)).softmax(-1)
    score = torch.randn(keys, generator=seeded, dtype=torch.float64)
    slack = draw(st.floats(1e-3, 1.0))
    return row, score, slack, seeded


@given(polytopes())
@settings(deadline=None)
def test_no_allowed_distribution_is_farther_than_the_exact_corner(polytope):
    row, score, slack, seeded = polytope
    middle = float(row @ score)
    corner = farthest_corner(row, score, middle - slack, middle + slack)
    assert abs(float(corner @ score) - middle) <= slack + 1e-9
    assert_close(corner.sum(), torch.ones_like(corner.sum()))
    assert (corner > 0).sum() <= 2
    others = (4 * torch.randn(500, len(row), generator=seeded, dtype=row.dtype)).softmax(-1)
    allowed = others[(others @ score - middle).abs() <= slack]
    assert (jensen_shannon(allowed, row) <= jensen_shannon(corner, row) + 1e-12).all()


@pytest.fixture(scope="module")
def one_look():
    torch.manual_seed(0)
    model = OneLookModel(OneLookConfig(num_labels=2)).eval()
    with torch.no_grad():
        model.layers[0].question.normal_(0, 2)
        model.embeddings.weight.normal_(0, 1)
        model.classifier.weight.normal_(0, 1)
    return load(model, tokenizer=tokenizer())


def test_the_search_finds_nothing_better_than_the_exact_optimum(one_look, monkeypatch):
    trace = capture(one_look, "w1 w2 w3 w4 w5 w6")
    exact = adversarial_attention(trace, epsilon=0.02)
    search = "exhibit_a.methods.explanation.adversary_search.AdversarySearch"
    monkeypatch.setattr(f"{search}.exact_optimum", lambda *_: None)
    searched = adversarial_attention(trace, epsilon=0.02, steps=150)
    assert searched.exact.tolist() == [0.0]
    assert searched.divergence[0] <= exact.divergence[0] + 1e-5
    assert searched.divergence[0] >= 0.8 * exact.divergence[0]


class _PutBack(Tap):
    def __init__(self, maps):
        self.maps = maps

    def weighting(self, call):
        return self.maps[call.site][None] if call.site in self.maps else None


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "deberta"])
def test_the_answer_stays_within_epsilon_in_a_plain_run(name):
    subject = opinionated() if name == "bert" else subject_of(name)
    trace = capture(subject, FAMILIES[name].inputs())
    found = adversarial_attention(trace, epsilon=0.05, restarts=2, steps=15)
    position = None if trace.output.logits.ndim == 2 else -1
    for condition, name in enumerate(found.conditions):
        alone = {condition: found.maps[condition]} if name != "all" else None
        maps = alone or dict(enumerate(found.maps_together))
        with torch.no_grad(), frozen_eval(subject.model), subject.tapping(_PutBack(maps)):
            logits = subject.model(**trace.inputs).logits
        ours, own = (
            one[0] if position is None else one[0, position]
            for one in (logits, trace.output.logits)
        )
        assert total_variation(ours.softmax(-1), own.softmax(-1)) <= 0.05 + 1e-5
    for map_, own, visible in zip(found.maps, trace.attention, trace.visible, strict=True):
        assert (map_[:, ~visible] == 0).all()
        assert_close(map_.sum(-1), own.sum(-1))
    assert (found.divergence <= found.bound + 1e-6).all()
    assert (found.bound <= math.log(2) + 1e-6).all()
    assert found.divergence[-1] > 0


def test_rows_that_are_never_read_can_be_anything():
    trace = capture(opinionated(), "w1 w2 w3 w4")
    found = adversarial_attention(trace, epsilon=0.001, steps=40)
    last = found.rows[-1]
    assert last[:, 1:].mean() > 0.9 * found.bound[-2]


def test_a_free_lunch_needs_more_keys_than_the_values_have_dimensions():
    subject = opinionated()
    words = " ".join(f"w{i}" for i in range(12))
    few, many = (capture(subject, text) for text in ("w1 w2 w3", words))
    options = {"restarts": 1, "steps": 0, "compare": True}
    assert_close(adversarial_attention(few, **options).free[:-1], torch.zeros(3))
    free = adversarial_attention(many, **options).free
    assert (free[:-1] > 0.01).all()
    assert free[-1].isnan()


def test_wrong_requests_to_the_adversary_are_answered():
    trace = capture(opinionated(), "w1 w2 w3")
    with pytest.raises(BadRequestError, match="from 0 to 1"):
        adversarial_attention(trace, epsilon=1.5)
    with pytest.raises(BadRequestError, match="At least one restart"):
        adversarial_attention(trace, restarts=0)
    number = load(FAMILIES["bert"].build(num_labels=1), tokenizer=tokenizer())
    with pytest.raises(NotComputableError, match="answers with one number"):
        adversarial_attention(capture(number, "w1 w2"))


@pytest.fixture(scope="module")
def trained():
    subject = opinionated()
    before = {name: weight.clone() for name, weight in subject.model.state_dict().items()}
    result = adversarial_keys(subject, sentences(24), hidden=16, epochs=6, learning_rate=0.01)
    return subject, before, result


def test_training_an_adversary_leaves_the_model_bit_for_bit(trained):
    subject, before, _ = trained
    after = subject.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(weight.requires_grad for weight in subject.model.parameters())


def test_the_models_own_keys_move_nothing(trained):
    _, _, result = trained
    own = result.conditions.index("own")
    assert result.agreement[own] == 1
    for measure in (result.key_distance, result.shift_free_distance, result.divergence):
        assert (measure[own] == 0).all()


def test_the_adversary_runs_away_and_its_opposite_comes_near(trained):
    _, _, result = trained
    away, near = (result.curves[name][:, 1] for name in ("adversary", "opposite"))
    assert away[-1] > away[0]
    assert near[-1] < near[0]
    places = [result.conditions.index(name) for name in ("adversary", "opposite")]
    far, close = result.key_distance[places].mean(-1)
    assert far > close
    assert (result.shift_free_distance <= result.key_distance + 1e-6).all()
    assert (result.divergence <= math.log(2)).all()
    assert set(result.curves) == {"adversary", "opposite", "random, trained"}


def test_keys_moved_by_one_vector_are_far_by_the_posters_measure_and_not_by_ours(monkeypatch):
    subject = opinionated()
    data = keys_module._LabelledBatches(subject, sentences(6), seed=0)

    class Shift(nn.Module):
        def forward(self, given):
            return given + 5 * torch.arange(given.shape[-1]).remainder(3).float()

    measured = keys_module._measure(data, keys_module._KeyChange(Shift(), False))
    assert (measured["distance"] > 3).all()
    assert (measured["shift free"] < 1e-4).all()
    assert (measured["divergence"] < 1e-4).all()
    assert measured["agrees"].mean() == 1


def test_wrong_requests_for_keys_are_answered():
    subject = opinionated()
    with pytest.raises(BadRequestError, match="alpha"):
        adversarial_keys(subject, sentences(4), alpha=2)
    with pytest.raises(BadRequestError, match="has no label"):
        adversarial_keys(subject, ["w1 w2", "w3 w4"])
    with pytest.raises(BadRequestError, match="does not know"):
        adversarial_keys(subject, sentences(8, labels=3))
    with pytest.raises(UnsupportedModelError, match="two stacks"):
        adversarial_keys(talking("bart"), sentences(4))
