"""Examples with an answer: every way over a corpus explains it, and other models leave it alone."""

import json
from dataclasses import replace

import pytest
import torch
from support.subjects import speaker
from support.words import plain_tokenizer
from support.zoo import FAMILIES, VOCABULARY
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a import corpus
from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example, fingerprint, read_examples, stream_examples
from exhibit_a.trace.answers import NOTHING, gold_of_replies
from exhibit_a.trace.edits import replace as put
from exhibit_a.trace.replay import replay

ASKED = [
    Example("a", "the plot is dull", answer="but the acting is great"),
    Example("b", "a film", answer="very fine"),
    Example("c", "it is not the acting", answer="dull"),
]


@pytest.fixture(scope="module")
def talker():
    """A tiny language model that says words, and is surer of them than a random one."""
    model, words = FAMILIES["llama"].build(), plain_tokenizer()
    with torch.no_grad():
        model.lm_head.weight.mul_(8)
        model.lm_head.weight[[*words.all_special_ids, *range(len(words), VOCABULARY)]] = 0
    return xa.load(model, tokenizer=words)


def traced(talker, example):
    return xa.capture(talker, example.text, target_text=example.answer)


def would_say(trace):
    """Whether the model's likeliest tokens are those of the answer."""
    said = trace.output.logits[0, trace.reply.position :].argmax(-1)
    return tuple(said[: len(trace.reply.ids)].tolist()) == trace.reply.ids


def test_answers_are_read_from_files_and_are_part_of_an_example(tmp_path):
    path = tmp_path / "asked.jsonl"
    rows = [{"text": one.text, "answer": one.answer, "id": one.id} for one in ASKED]
    path.write_text("\n".join(map(json.dumps, [*rows, {"text": "no answer", "answer": None}])))
    *read, without = read_examples(path)
    assert read == ASKED
    assert without.answer is None
    assert read_examples(path, answer="text")[0].answer == ASKED[0].text
    with pytest.raises(BadRequestError, match=r'no column "reply".*\(--answer, answer=\)'):
        read_examples(path, answer="reply")
    other = replace(ASKED[0], answer="else")
    assert len({fingerprint(one) for one in (ASKED[0], other, replace(other, answer=None))}) == 3
    same = [{"text": "a", "answer": " b"}, {"text": "a", "answer": " c"}]
    assert len({example.id.partition("-")[0] for example in stream_examples(same)}) == 2


def test_gold_answers_of_different_lengths_stand_side_by_side(talker):
    traces = [traced(talker, example) for example in ASKED]
    gold = gold_of_replies([trace.reply for trace in traces])
    assert gold.marks.sum(1).tolist() == [5, 2, 1]
    for row, trace in enumerate(traces):
        alone = gold.rows(torch.tensor([row]))
        right, loss = alone.right_and_loss(trace.output)
        target = xa.choose_target(trace, "answer")
        assert_close(-loss, target(trace.output), rtol=1e-5, atol=1e-5)
        assert_close(alone.share(trace.output), target(trace.output), rtol=1e-5, atol=1e-5)
        assert bool(right) == would_say(trace)
    said = traces[1].output.logits[0].argmax(-1)[traces[1].reply.position :][:2]
    spoken = replace(gold.rows(torch.tensor([1])), tokens=torch.tensor([[*said.tolist(), NOTHING]]))
    assert bool(spoken.right_and_loss(traces[1].output)[0])


@pytest.mark.parametrize("method", ["self_attribution", "attention_gradient", "reliance"])
def test_a_corpus_run_explains_the_answers(talker, tmp_path, method):
    corpus.run(talker, ASKED, method, tmp_path / "run")
    table = corpus.open(tmp_path / "run").to_pandas("examples").set_index("id")
    for example in ASKED:
        trace, row = traced(talker, example), table.loc[example.id]
        assert tuple(row["tokens"]) == trace.tokens
        if method == "self_attribution":
            found = xa.self_attribution(trace)
            assert_close(torch.tensor(row["change"]), found.change.float(), rtol=1e-3, atol=1e-4)
            assert row["answer"] == example.answer
            likely = xa.choose_target(trace, "answer", scale="probability")(trace.output)
            assert row["probability"] == pytest.approx(float(likely), rel=1e-4)
        elif method == "reliance":
            assert row["margin"] == pytest.approx(xa.reliance(trace).margin, rel=1e-4, abs=1e-4)
        else:
            (found,) = xa.companions(trace, methods=["attention_gradient"]).values()
            assert_close(
                torch.tensor(row["token_scores"]), found.scores.float(), rtol=1e-3, atol=1e-5
            )


def test_a_permutation_test_is_right_where_the_whole_answer_would_be_said(talker):
    spoken = [
        Example(one.id, one.text, answer=xa.capture(talker, one.text, generate=3).reply.text)
        for one in ASKED
    ]
    test = xa.permutation_test(talker, spoken, repeats=2, sites=[0])
    said = [would_say(traced(talker, example)) for example in spoken]
    assert test.own_correct.tolist() == said
    assert any(said)
    assert test.checks["labels"] == "given"
    assert torch.equal(test.correct[..., said], ~test.flipped[..., said])
    others = xa.permutation_test(talker, ASKED, repeats=2, sites=[0])
    assert others.own_correct.tolist() == [would_say(traced(talker, one)) for one in ASKED]
    trace = traced(talker, spoken[0])
    seen = trace.visible[0].float()
    evenly = (seen / seen.sum(-1, keepdim=True)).expand_as(trace.attention[0])
    even = replay(trace, put(0, evenly[None]))
    places = slice(trace.reply.position, trace.reply.position + len(trace.reply.ids))
    before, after = (
        torch.softmax(output.logits[0, places].float(), -1) for output in (trace.output, even)
    )
    moved = (before - after).abs().sum(-1).div(2).mean()
    assert_close(test.uniform_change[0, 0], moved, rtol=1e-4, atol=1e-6)


def test_other_models_leave_the_answer_alone(tmp_path):
    reader = speaker()
    plain = [replace(example, answer=None) for example in ASKED]
    runs = [
        corpus.run(reader, examples, "effective_attention", tmp_path / str(number))
        for number, examples in enumerate((ASKED, plain))
    ]
    assert str(runs[0].rows) == str(runs[1].rows)
    rows = [{"text": "fine", "reply": "yes"}]
    with pytest.raises(BadRequestError, match="answer"):
        corpus.run(reader, rows, "effective_attention", tmp_path / "named", answer="reply")
