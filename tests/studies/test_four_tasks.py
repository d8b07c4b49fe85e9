"""What the studies behind the claims are made of, on models and texts small enough for a test."""

import json
from types import SimpleNamespace

import causal
import collapse
import edges
import four_tasks
import gold
import pytest
import study
import torch
from collapse import Layer
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification

import exhibit_a as xa
from exhibit_a.examples import Example


@pytest.fixture(scope="module")
def sentiment():
    return xa.load("sentiment")


def test_collapsed_heads_answer_as_the_model_does():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=16,
    )
    model = BertForSequenceClassification(config).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    batch = {"input_ids": torch.tensor([[2, 7, 9, 11, 3]])}
    heads = [collapse.collapsed_matrices(layer.attention) for layer in model.bert.encoder.layer]
    with torch.no_grad():
        answer = collapse.collapsed_answer(model, heads, batch)
        assert_close(answer, model(**batch).logits, atol=1e-12, rtol=1e-12)
        heads[0][0][1] *= 1.1
        assert not torch.allclose(collapse.collapsed_answer(model, heads, batch), answer)


@pytest.mark.parametrize("shape", [Layer(12, 3, 4, 3), Layer(12, 4, 3, 2)])
def test_multiplications_are_those_that_products_take(shape):
    states, tokens = torch.randn(5, shape.width), 5
    shared = shape.key_heads * shape.d_head
    with FlopCounterMode(display=False) as usual:
        query = states @ torch.randn(shape.width, shape.heads * shape.d_head)
        key, value = (states @ torch.randn(shape.width, shared) for _ in range(2))
        for head in range(shape.heads):
            own = slice(head * shape.d_head, (head + 1) * shape.d_head)
            group = head * shape.key_heads // shape.heads
            seen = slice(group * shape.d_head, (group + 1) * shape.d_head)
            query[:, own] @ key[:, seen].T @ value[:, seen]
        query @ torch.randn(shape.heads * shape.d_head, shape.width)
    assert shape.usual(tokens) == usual.get_total_flops() // 2
    with FlopCounterMode(display=False) as collapsed:
        for _ in range(shape.heads):
            scores = states @ torch.randn(shape.width, shape.width) @ states.T
            scores @ (states @ torch.randn(shape.width, shape.width))
    assert shape.collapsed(tokens) == collapsed.get_total_flops() // 2


def test_a_head_must_be_wider_than_half_of_the_model_to_be_worth_collapsing():
    for tokens in (1, 32, 4096):
        needed = Layer(384, 1, 1, 1).needed_width(tokens)
        assert 192 < needed < 384
        assert Layer(384, 1, int(needed) + 1, 1).ratio(tokens) < 1
        assert Layer(384, 1, int(needed), 1).ratio(tokens) > 1


def test_words_are_judged_against_gold():
    marked = [False, True, False, True]
    assert gold.agreement(marked, [0.1, 0.9, 0.2, 0.8]) == (pytest.approx(1.0), 1.0)
    precision, hits = gold.agreement(marked, [0.9, 0.1, 0.8, 0.2])
    assert hits == 0
    assert precision == pytest.approx((1 / 3 + 2 / 4) / 2)


def test_a_sentence_is_judged_by_every_method(sentiment):
    tree = {"text": "An unflinchingly honest , lovely film .", "label": 4, "tokens": "2233422"}
    trace = xa.capture(sentiment, tree["text"])
    members = gold.tokens_of_words(trace, tree["text"].split(" "))
    assert [len(own) for own in members] == [1, 5, 1, 1, 1, 1, 1]
    assert sorted(place for own in members for place in own) == list(range(1, 12))
    row = gold.measured(sentiment, gold.of_tree(tree))
    assert set(row["scores"]) == {*gold.METHODS, gold.LENGTH, gold.RANDOM}
    assert all(0 <= plausible <= 1 for plausible, _, _ in row["scores"].values())
    wrong = gold.of_tree(tree | {"label": 0})
    assert gold.measured(sentiment, wrong)["scores"] == {}


def test_a_long_review_is_cut_and_loses_runs_of_words(sentiment):
    review = {"text": "a fine film , lovely to see " + "and so on " * 9, "label": "POS"}
    text = gold.of_review(review | {"rationales": [[1, 3], [4, 5], [30, 33]]})
    assert [text.words[place] for place in range(8) if text.gold[place]] == [
        "fine",
        "film",
        "lovely",
    ]
    row = gold.measured(sentiment, text, together=5, longest=20)
    assert (row["tokens"], row["words"], row["gold"]) == (20, 18, 3)  # what is cut off is not gold
    assert set(row["scores"]) == {*gold.METHODS, gold.LENGTH, gold.RANDOM}
    trace = xa.capture(sentiment, " ".join(text.words[:7]))
    members = gold.tokens_of_words(trace, text.words[:7])
    shares = gold.without_runs(trace, members, 5)
    assert len(set(shares[:5])) == len(set(shares[5:])) == 1
    assert sum(shares[:5]) == pytest.approx(gold.lost_without(trace, members, [range(5)])[0])


def test_edges_are_taken_away_by_three_rankings(sentiment):
    row = edges.measured(sentiment, "a charming and often affecting journey .")
    assert set(row["edges"]) == {"attribution", "weight", "random"}
    assert 0 <= row["gap"] < 0.2
    assert row["alike"] > 0.9
    trace = xa.capture(sentiment, "a fine film .")
    ones = [torch.ones(1, *each.shape) for each in trace.attention]
    assert_close(xa.replay(trace, edges.Without(ones)).logits, trace.output.logits)
    ones[-1].zero_()
    without = xa.replay(trace, edges.Without(ones)).logits
    assert_close(without, xa.replay(trace, xa.edits.scale(len(ones) - 1, 0.0)).logits)
    assert not torch.allclose(without, trace.output.logits, atol=1e-3)


def test_heads_go_in_the_order_of_a_table(sentiment):
    examples = [
        Example("0", "a fine film .", None, "positive"),
        Example("1", "dull .", None, "negative"),
    ]
    right = four_tasks.pruned(sentiment, examples, torch.rand(6, 12), "least")
    assert right.shape == (11, 2)
    assert right[0].tolist() == [1, 1]
    assert right[-1].sum() == 1  # without any head every text gets the same answer


def test_two_rankings_are_correlated_over_drawn_heads():
    table = torch.rand(72, generator=torch.Generator().manual_seed(0))
    same = four_tasks.correlations(table, 3 * table + 1)
    assert_close(same, torch.ones_like(same))
    other = torch.rand(72, generator=torch.Generator().manual_seed(1))
    values = four_tasks.correlations(table, other)
    assert float(values[0]) == pytest.approx(
        float(torch.corrcoef(torch.stack([table, other]))[0, 1]), abs=1e-5
    )
    assert 0.05 < float(values[1:].std()) < 0.2  # about 1 / √72


def test_each_example_loses_heads_in_its_own_order(sentiment):
    examples = [
        Example("0", "a fine film .", None, "positive"),
        Example("1", "dull .", None, "negative"),
    ]
    table = four_tasks.own_importance(sentiment, examples, "attention")
    for order in four_tasks.ORDERS:
        right = four_tasks.silenced(sentiment, examples, table, order)
        curve = xa.effectiveness(sentiment, examples, by="attention", order=order)
        assert_close(right.mean(1), curve.accuracy)
    assert four_tasks.own_importance(sentiment, examples, "random").shape == table.shape


def test_a_line_makes_room_for_one_with_the_same_keys(tmp_path):
    file = tmp_path / "lines.jsonl"
    for accuracy in (0.5, 0.75):
        study.put(file, {"task": "RTE", "order": "least", "accuracy": accuracy}, "task")
    study.put(file, {"task": "MRPC", "order": "least", "accuracy": 1.0}, "task")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["task"], row["accuracy"]) for row in rows] == [("RTE", 0.75), ("MRPC", 1.0)]


def test_the_slice_alone_chooses_the_classifier(tmp_path):
    for base, accuracy in (("minilm", 0.6), ("nli", 0.7)):
        folder = tmp_path / f"RTE-from-{base}-at-0.0001"
        folder.mkdir()
        (folder / "training.json").write_text(json.dumps({"dev_accuracy": accuracy}))
    (tmp_path / "RTE-from-nli-at-0.0002").mkdir()  # a training that was stopped has no record
    assert four_tasks.best("RTE", tmp_path).name == "RTE-from-nli-at-0.0001"
    assert four_tasks.best(four_tasks.ALONE, tmp_path).name == "RTE-from-minilm-at-0.0001"
    with pytest.raises(SystemExit, match="run train first"):
        four_tasks.best("MRPC", tmp_path)


def test_a_causal_row_is_determined_while_it_sees_few_tokens():
    subject = xa.load("stories")
    width = subject.anatomy.sites[0].d_head
    text = "Once upon a time there was a little girl named Lily who liked to play outside . " * 4
    trace = causal.cut(subject, text, width + 4)
    rows = causal.of_rows(trace)
    assert rows["nullity"].shape == (len(trace.sites), width + 4)
    assert float(rows["nullity"][1:, -1].mean()) >= 4  # as many as it sees beyond the width
    assert float(rows["nullity"][:, 0].max()) == 0
    sinks = causal.of_sinks(trace)
    assert_close(sinks["kinds"].sum(1), torch.ones(len(trace.sites)))
    assert causal.even_share(1, 3) == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert causal.even_share(2, 3) == pytest.approx(1 / 3)


def test_numbers_of_a_model_are_kept_part_by_part(tmp_path):
    options = SimpleNamespace(docs=tmp_path, base="/models/some-encoder")
    study.keep(options, "mixing", {"heads": [0.123456]})
    study.keep(options, "mixing", {"tokens": {"rate": 1.0}})
    kept = json.loads((tmp_path / "mixing-some-encoder.json").read_text())
    assert kept == {"heads": [0.1235], "tokens": {"rate": 1.0}}
    assert study.figure_name(options, "mixing") == "mixing-some-encoder"
