"""Which passage did the answer rest on: prompts, referees, methods, and needing none of them."""

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.command import refusal, run
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.examples.passages import read_passages
from exhibit_a.methods.attribution.context import LITTLE
from exhibit_a.methods.attribution.context_ablation import (
    context_prompt,
    lasso,
    predicts,
    random_halves,
)

FACTS = [
    "Tom has a red ball. He is a big boy.",
    "Lily has a blue kite. She likes it very much.",
    "The dog likes to run in the garden.",
    "Mom made a big cake for the party.",
]
QUESTION = "Lily went to the park. She played with her"
TEMPLATE = "{passages}\n\n{question}"
CHAT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


@pytest.fixture(scope="module")
def stories():
    return xa.load("stories")


@pytest.fixture(scope="module")
def chatting(stories):
    tokenizer = copy(stories.tokenizer)
    tokenizer.chat_template = CHAT
    return replace(stories, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def found(stories):
    return xa.context_attribution(
        stories,
        QUESTION,
        FACTS,
        answer=" blue kite",
        template=TEMPLATE,
        methods=["attention_gradient", "gradient_input"],
    )


def test_the_answer_rests_on_the_passage_that_has_it(found):
    assert found.rests_on == (1,)
    assert found.need > LITTLE
    assert found.verdict.startswith("The answer rests on passage 2 (")
    assert found.agreement["attention_gradient"]["leave_one_out"].same_first
    assert found.ranking("regression")[0] == found.ranking()[0] == 1
    strongest = int(found.sentence_scores["attention_gradient"].argmax())
    assert found.sentences[strongest] == "Lily has a blue kite."
    assert found.passes["attention_gradient"] == (2, 1)
    assert found.passes["leave_one_out"] == (len(FACTS) + 2, 0)


def test_leaving_a_passage_out_is_asking_without_it(stories, found):
    """Prompt by prompt, by hand, with nothing of ours but the tokenizer."""

    def log_probability(passages):
        prompt = "\n\n".join([*passages, QUESTION])
        before, whole = (stories.tokenizer(text)["input_ids"] for text in (prompt, prompt + ANSWER))
        with torch.no_grad():
            logits = stories.model(torch.tensor([whole])).logits[0].double().log_softmax(-1)
        places = range(len(before), len(whole))
        return sum(float(logits[place - 1, whole[place]]) for place in places)

    ANSWER = " blue kite"  # noqa: N806 (a constant of the prompt)
    everything = log_probability(FACTS)
    assert found.log_probability == pytest.approx(everything, abs=1e-4)
    assert found.without_passages == pytest.approx(log_probability([]), abs=1e-4)
    for place in range(len(FACTS)):
        lost = everything - log_probability(FACTS[:place] + FACTS[place + 1 :])
        assert float(found.leave_one_out[place]) == pytest.approx(lost, abs=1e-4)
    some = found.subsets[5]
    kept = [fact for fact, stays in zip(FACTS, some.tolist(), strict=True) if stays]
    assert float(found.values[5]) == pytest.approx(log_probability(kept), abs=1e-4)


def test_scores_of_sentences_add_up_to_those_of_passages_and_tokens(stories, found):
    trace = xa.capture(stories, "\n\n".join([*FACTS, QUESTION]), target_text=" blue kite")
    scores = xa.companions(trace, methods="attention_gradient")["attention_gradient"].scores
    prompt = context_prompt(stories, QUESTION, FACTS, TEMPLATE)
    inside = [place for place, whole in enumerate(prompt.sentence_of_token) if whole is not None]
    by_passage = found.scores["attention_gradient"]
    assert_close(by_passage.sum(), scores[inside].sum(), rtol=1e-4, atol=1e-4)
    assert_close(found.sentence_scores["attention_gradient"].sum(), by_passage.sum())


@pytest.mark.parametrize("chat", [False, True])
def test_the_tokens_of_a_sentence_are_its_words(stories, chatting, chat):
    subject = chatting if chat else stories
    passages = ["A «naïve» cat sat.  It slept!", "好看。他笑了。 End", "One\nline. Two 🙂 lines."]
    prompt = context_prompt(subject, "Who slept?", passages, None)
    ids = prompt.ids(range(3))
    texts = [sentence.text for sentence in prompt.sentences]
    assert texts[:4] == ["A «naïve» cat sat.", "It slept!", "好看。", "他笑了。"]
    for number, text in enumerate(texts):
        tokens = [ids[at] for at, whole in enumerate(prompt.sentence_of_token) if whole == number]
        assert subject.tokenizer.decode(tokens).split() == text.split()
    shorter = subject.tokenizer.decode(prompt.ids([0, 2]), skip_special_tokens=True)
    assert passages[1] not in shorter
    assert passages[0] in shorter
    assert ("[assistant]" in shorter) == chat


def test_an_answer_that_needs_no_passage_rests_on_none(stories):
    """Whatever the passages are: the answer follows from the question alone."""
    options = {"methods": ["attention_gradient"], "samples": 0, "template": TEMPLATE}
    question = "Once upon a time, there was a little girl named Lily. She was a little"
    for shift in range(3):
        facts = FACTS[shift:] + FACTS[:shift]
        none = xa.context_attribution(stories, question, facts, answer=" girl", **options)
        assert none.need <= LITTLE
        assert none.rests_on == ()
        assert none.verdict.startswith("None of them: ")


def test_passages_that_say_the_same_stand_in_for_each_other(stories):
    facts = [*FACTS, "Lily has a blue kite. It is a nice blue kite."]
    twice = xa.context_attribution(
        stories, QUESTION, facts, answer=" kite", template=TEMPLATE, methods=["attention_gradient"]
    )
    assert twice.need > LITTLE
    alone = twice.leave_one_out
    assert float(alone[1]) < twice.need / 2
    assert float(alone[4]) < twice.need / 2
    assert set(twice.ranking("regression")[:2]) == {1, 4}
    together = replace(twice, leave_one_out=alone.clamp_max(LITTLE))
    assert set(together.stand_ins) >= {1, 4}
    assert together.rests_on == together.stand_ins
    assert together.verdict.startswith("Several together: passage ")
    alike = replace(together, regression=alone.clamp_max(LITTLE))
    assert alike.rests_on == ()
    assert alike.verdict.startswith("None of them by itself: ")


def test_the_regression_finds_what_was_planted():
    truth = torch.tensor([3.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0])
    kept = random_halves(8, 64, seed=1)
    values = kept.float() @ truth - 7.0
    scores, fit = lasso(kept, values, tokens=1)
    assert_close(scores, truth, rtol=0, atol=0.05)
    assert fit > 0.99
    assert predicts(truth, kept, values) == pytest.approx(1.0)
    gradient, *_ = np.linalg.lstsq(
        np.c_[kept.double().numpy(), np.ones(64)], values.double().numpy(), rcond=None
    )
    assert_close(scores.double(), torch.from_numpy(gradient[:-1]), rtol=0, atol=0.05)
    assert len({tuple(row) for row in random_halves(4, 64, seed=0).tolist()}) == 16


def test_what_was_found_is_kept_drawn_and_shown(found, tmp_path, capsys):
    again = xa.read(found.save(tmp_path / "found.xa"))
    assert again.verdict == found.verdict
    assert_close(again.scores["gradient_input"], found.scores["gradient_input"])
    assert again.passes == found.passes
    table = again.to_pandas()
    assert {"passage", "sentence"} <= set(table.columns)
    assert found.plot().axes
    page = found.html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Lily has a blue kite." in page
    found.show()
    assert "rests on passage 2" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"passages": ["one"]}, "1 passages were given"),
        ({"passages": "one text"}, "list of passages"),
        ({"passages": ["one", ""]}, "empty"),
        ({"template": "{passages} only"}, "{question}"),
        ({"methods": ["magic"]}, "magic"),
        ({"samples": 5}, "5 samples"),
        ({"passages": ["word " * 200, "word " * 200]}, "256"),
    ],
)
def test_bad_requests_are_one_line(stories, changed, message):
    given = {"passages": FACTS, "answer": " kite", "samples": 0, "methods": ["raw"], **changed}
    passages = given.pop("passages")
    with pytest.raises(xa.BadRequestError, match=message.replace("{", "\\{")) as refused:
        xa.context_attribution(stories, QUESTION, passages, **given)
    assert "\n" not in str(refused.value)


def test_passages_come_from_files_of_any_kind(tmp_path):
    expected = ["Tom has a ball.", "Lily has a kite."]
    written = tmp_path / "notes.txt"
    written.write_text("Tom has a ball.\r\n \r\n\r\nLily has a kite.\r\n", newline="")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": 1, "passage": text}) + "\n" for text in expected))
    import pyarrow
    from pyarrow import parquet

    table = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": expected}), table)
    assert [read_passages(file) for file in (written, rows, table)] == [expected] * 3
    assert read_passages(table, column="text") == expected


def test_the_verb_answers_people_and_machines(capsys, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("\n\n".join(FACTS))
    cheap = ["--answer", " blue kite", "--template", r"{passages}\n\n{question}", "--samples", "0"]
    asked = ["context", QUESTION, file, "--methods", "raw,attention_gradient", *cheap]
    code, out, _ = run(capsys, *asked, "--json", "--html", tmp_path / "page.html")
    assert code == 0
    told = json.loads(out)
    assert told["rests_on"] == [2]
    assert told["rows"][0]["passage"] == 2
    assert told["agreement"]["attention_gradient"]["leave_one_out"]["same_first"]
    assert (tmp_path / "page.html").exists()
    assert "passage 2" in run(capsys, *asked)[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["nothing.txt"], "nothing.txt"),
        (["garbage.txt"], "garbage.txt"),
        (["garbage.parquet"], "garbage.parquet"),
        (["image.png"], "image.png"),
        (["empty.txt"], "empty"),
        (["one", "two", "--text", "passage"], "--text"),
    ],
)
def test_bad_files_are_one_line(capsys, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    for name in ("garbage.txt", "garbage.parquet", "image.png"):
        (tmp_path / name).write_bytes(bytes(range(256)))
    (tmp_path / "empty.txt").write_text("\n \n")
    assert message in refusal(capsys, "context", "Who?", *given)
