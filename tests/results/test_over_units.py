"""Results over words: the same kind of result, and nothing lost or gained on the way."""

import dataclasses

import pytest
import torch
from support.tokenizers import tokenizers
from support.zoo import FAMILIES

import exhibit_a as xa
from exhibit_a.results.over_units import _rebuilt
from exhibit_a.results.sizes import require_sizes
from exhibit_a.subject.images import Scene

TEXT = "The drags film . Naïve"
WORDS = ("<s>", "The", "drags", "film", ".", "Naïve", "</s>")


@pytest.fixture(scope="module")
def reader():
    """A tiny classifier that reads pieces of words."""
    torch.manual_seed(0)
    model = FAMILIES["bert"].build(vocab_size=300)
    return xa.load(model, tokenizer=tokenizers()["pieces"])


@pytest.fixture(scope="module")
def trace(reader):
    return xa.capture(reader, TEXT)


@pytest.fixture(scope="module")
def trial(reader):
    return xa.trial(reader, TEXT, probes=2, heat_maps=False)


def slow_sum(tensor, dim, of, mean=False):
    """Straight from the definition: the tokens of each unit, one after the other."""
    rows = []
    for unit in range(max(of) + 1):
        members = [place for place, mine in enumerate(of) if mine == unit]
        total = sum(tensor.double().select(dim, place) for place in members)
        rows.append(total / len(members) if mean else total)
    return torch.stack(rows, dim)


def places(trace):
    """The word of each token, counted by hand: a piece that is continued belongs to its word."""
    of = []
    for token in trace.tokens:
        of.append(of[-1] if token.startswith("##") else (of[-1] + 1 if of else 0))
    return of


def test_attributions_are_added_up(trial, trace):
    of = places(trace)
    for result, name in ((trial.attribution, "scores"), (trial.reliance, "edges")):
        united = result.by("word")
        assert type(united) is type(result)
        assert united.tokens == united.sequences["encoder"] == WORDS
        for tokens, words in zip(getattr(result, name), getattr(united, name), strict=True):
            expected = slow_sum(slow_sum(tokens, 1, of), 2, of)
            assert (words.double() - expected).abs().amax() < 1e-6
            assert abs(float(words.double().sum() - tokens.double().sum())) < 1e-6
    shares = trial.reliance.by("word").token_scores.double()
    assert abs(float(shares.sum() - trial.reliance.token_scores.double().sum())) < 1e-6


def test_attention_is_averaged_over_rows_and_added_up_over_keys(trial, trace):
    of, united = places(trace), trial.by("word")
    for tokens, words in zip(trial.attention, united.attention, strict=True):
        expected = slow_sum(slow_sum(tokens, 1, of, mean=True), 2, of)
        assert (words.double() - expected).abs().amax() < 1e-6
        assert (words.sum(-1) - 1).abs().amax() < 1e-5
    shares = united.hidden.contribution.sum(-1)
    assert (shares - 1).abs().amax() < 1e-5
    assert united.effective.by("word").raw[0].shape == united.attention[0].shape


def test_a_trial_over_words_is_a_trial(trial, tmp_path):
    united = trial.by("word")
    assert united.tokens == united.tree.tokens == united.hidden.source_tokens == WORDS
    assert united.special.tolist() == [True, *[False] * 5, True]
    assert united.verdicts == trial.verdicts
    assert united.checks["units"] == "words"
    assert united.by("sentence").tokens == ("<s>", TEXT[:16], TEXT[17:], "</s>")
    again = xa.read(united.save(tmp_path / "words"))
    assert again.layouts == united.layouts
    assert xa.read(trial.save(tmp_path / "tokens")).by("word").tokens == WORDS


def test_a_word_stands_in_a_tree_where_its_first_piece_entered(trial, trace):
    tree, words, number = trial.tree, trial.tree.by("word"), places(trace)
    assert words.root == number[tree.root]
    assert {edge.child for edge in words.edges} | {words.root} == {number[n] for n in tree.nodes}
    entered = {words.root}
    for edge in words.edges:  # from the top down, below what is there already
        assert edge.parent in entered
        entered.add(edge.child)


def test_results_without_sums_and_without_text_refuse_in_one_line(trace):
    counts = xa.attention_identifiability(trace.keeping("keys"))
    with pytest.raises(xa.NotComputableError, match="no sums"):
        counts.by("word")
    ids = {"input_ids": torch.tensor([[3, 4, 5, 6]])}
    plain = xa.capture(xa.load(trace.subject.model), ids)
    with pytest.raises(xa.NotComputableError, match="knows no text"):
        xa.effective_attention(plain).by("word")


def test_rows_that_were_asked_for_stay_rows(reader):
    few = xa.effective_attention(xa.capture(reader, TEXT, rows=[0, 2]))
    assert few.tokens_of(0) == (few.row_tokens, few.tokens)
    words = few.by("word")
    assert words.effective[0].shape == (*few.effective[0].shape[:2], len(WORDS))
    torch.testing.assert_close(words.effective[0].sum(-1), few.effective[0].sum(-1))


def test_ids_without_their_text_have_words_and_a_doubt(trace):
    ids = xa.capture(trace.subject, {"input_ids": trace.inputs["input_ids"]})
    united = xa.effective_attention(ids).by("word")
    assert united.tokens == (*(name.lower().replace("ï", "i") for name in WORDS),)
    assert "decoded pieces: token ids were given" in united.checks["units"]


def test_a_pass_run_again_knows_its_text(trace):
    assert trace.keeping("queries").layouts == trace.layouts


def test_phrases_of_the_text_are_units(trace):
    united = xa.effective_attention(trace).by({"doubt": (4, 14), "end": (0, 17, 22)})
    assert united.tokens == ("<s>", "The", "doubt", ".", "end", "</s>")
    assert (united.raw[0].sum(-1) - 1).abs().amax() < 1e-5


def test_both_texts_of_two_stacks_have_words():
    subject = xa.load(FAMILIES["bart"].build(vocab_size=300), tokenizer=tokenizers()["pieces"])
    trace = xa.capture(subject, TEXT, target_text="drags film")
    united = xa.effective_attention(trace).by("word")
    assert united.sequences["encoder"] == WORDS
    assert "drags" in united.sequences["decoder"]


def test_an_axis_that_is_no_text_has_no_words(trace):
    effective = xa.effective_attention(trace)
    other = {"encoder": tuple(f"x{place}" for place in range(len(trace.tokens)))}
    with pytest.raises(xa.NotComputableError, match="raw"):
        dataclasses.replace(effective, sequences=other).by("word")


def test_what_is_no_tensor_stays():
    (first, second) = _rebuilt((None, torch.zeros(2)), iter([torch.ones(3)]))
    assert first is None
    assert second.sum() == 3


def test_sizes_that_do_not_fit_are_refused(trace):
    effective = xa.effective_attention(trace)
    with pytest.raises(xa.BadRequestError, match="site"):
        require_sizes(dataclasses.replace(effective, sites=effective.sites[:1]))
    with pytest.raises(xa.BadRequestError, match="tokens"):
        require_sizes(dataclasses.replace(effective, tokens=("a",)))


def test_a_summary_names_what_was_looked_at(trace):
    scene = Scene(torch.zeros(8, 8, 3, dtype=torch.uint8), {"vision": (torch.zeros(2, 2).int(),)})
    seen = dataclasses.replace(xa.effective_attention(trace), scene=scene)
    assert ", image 8×8, 2×2 patches. Tensors" in seen.summary()
