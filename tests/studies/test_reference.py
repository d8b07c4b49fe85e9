"""What the study of the reference models is made of: links, scores, sparse attention, and lines."""

import json
from types import SimpleNamespace

import pytest
import reference
import torch
from reference import (
    Gold,
    PosterConfig,
    agreement,
    counted,
    diagonal,
    eager_attention_forward,
    gradient_scores,
    linked,
    over_words,
    read_gold,
    words_of,
)
from torch.testing import assert_close

import exhibit_a as xa
from exhibit_a.training.new_models import learnt_vocabulary
from exhibit_a.training.train import train


def test_links_are_read_and_counted(tmp_path):
    file = tmp_path / "gold.tsv"
    file.write_text("german\tenglish\tlinks\nzwei Hunde da\ttwo dogs\t0-0 1-1 2?1\n", "utf-8")
    (gold,) = read_gold(file)
    assert gold == Gold("zwei Hunde da", "two dogs", {(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)})
    perfect = counted({(0, 0), (1, 1), (2, 1)}, gold)
    assert perfect == {"sure": 2, "possible": 3, "found": 3, "gold": 2}
    assert counted({(0, 1)}, gold) == {"sure": 0, "possible": 0, "found": 1, "gold": 2}
    assert diagonal(3, 2) == {(0, 0), (1, 0), (2, 1)}
    assert diagonal(1, 5) == {(0, 0)}


def test_pieces_are_put_together_to_words():
    text = "zwei Hunde , rennen"
    tokenizer = learnt_vocabulary([text] * 3, 26)
    words = words_of(tokenizer, text)
    assert words[-1] == -1
    assert sorted(set(words[:-1])) == [0, 1, 2, 3]
    assert words[:-1] == sorted(words[:-1])
    assert words.count(1) > 1  # cut into pieces
    scores = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
    table = over_words(scores, [0, 0, 1], [0, 1, 1])
    assert_close(table, torch.tensor([[0.4, 0.6], [0.1, 0.9]]))
    assert linked(table) == {(0, 1), (1, 1)}


def test_entmax_is_what_halving_an_interval_finds():
    """The attention of the poster's model, with a mask, from the definition of τ."""
    seeded = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 2, 9, 4, generator=seeded) * 3 for _ in range(2))
    mask = torch.zeros(9, 9)
    mask[:, 5:] = torch.finfo(torch.float32).min
    module = torch.nn.Module()
    module.config = PosterConfig(normaliser="entmax")
    _, weights = eager_attention_forward(module, query, key, key, mask, scaling=0.5)
    scores = (query @ key.mT * 0.5 + mask).double()
    low, high = scores.amax(-1) / 2 - 1, scores.amax(-1) / 2
    for _ in range(80):
        middle = (low + high) / 2
        total = (scores / 2 - middle[..., None]).clamp_min(0).square().sum(-1)
        low, high = torch.where(total > 1, middle, low), torch.where(total > 1, high, middle)
    expected = (scores / 2 - low[..., None]).clamp_min(0).square()
    assert_close(weights.double(), expected, rtol=0, atol=1e-5)
    assert (weights[..., 5:] == 0).all()
    assert (weights[..., :5] == 0).any()


def test_gradients_do_not_go_through_the_row():
    """With a row that is even whatever the words are, both gradients are the same."""
    torch.manual_seed(0)
    config = xa.models.RecurrentConfig(vocab_size=30, d_model=8, d_attention=4)
    model = xa.models.RecurrentClassifier(config).eval()
    ids = torch.tensor([[1, 5, 9, 7, 2]])

    def through_everything():
        words = model.embedding(ids).detach().requires_grad_()
        states = model.reading[0](words)
        context, _ = model.answering[0](model.query.expand(1, 1, -1), states)
        chance = model.classifier(context[0, 0]).softmax(-1)[-1]
        return (torch.autograd.grad(chance, words)[0] * words).sum(-1).abs()[0].detach()

    assert not torch.allclose(gradient_scores(model, ids), through_everything(), rtol=1e-3)
    with torch.no_grad():
        model.answering[0].attention.energy.weight.zero_()
    assert_close(gradient_scores(model, ids), through_everything())
    assert agreement(torch.arange(9.0), torch.arange(9.0) ** 2) == (pytest.approx(1.0), True)


def test_a_sparse_classifier_is_followed(tmp_path):
    config = PosterConfig(
        normaliser="entmax", vocab_size=40, d_model=8, encoder_layers=1, num_heads=2, d_ff=8
    )
    reviews = [{"text": f"a {kind} film", "label": kind} for kind in ("good", "bad")] * 4
    options = {"epochs": 1, "progress": False}
    subject = xa.load(train(config, reviews, out=tmp_path / "model", **options))
    trace = xa.capture(subject, "a good film")
    assert_close(trace.attention[0].sum(-1), torch.ones(2, len(trace.tokens)))


def test_lines_are_added_once(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["reference.py", "complexity", "--out", str(tmp_path)])
    sizes = reference.work_of_one_layer
    monkeypatch.setattr(reference, "work_of_one_layer", lambda count, *_: sizes(count // 8, 8, 2))
    reference.main()
    file = tmp_path / "reference-complexity.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[1]["looking"]["operations"] == 4 * 8**2 * 8
    assert rows[1]["projecting"]["operations"] == 4 * 2 * 8 * 8**2
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    reference.main()
    again = [json.loads(line) for line in file.read_text().splitlines()]
    assert again[:-1] == rows[:-1]
    assert again[-1]["tokens"] == 1024 // 8


def test_a_pair_is_aligned_by_every_map():
    torch.manual_seed(0)
    gold = Gold("zwei Hunde", "two dogs", {(0, 0), (1, 1)}, {(0, 0), (1, 1)})
    tokenizer = learnt_vocabulary([gold.german, gold.english], 60)
    config = xa.models.AdditiveConfig(vocab_size=len(tokenizer), d_model=8, d_attention=4)
    subject = xa.load(xa.models.AdditiveTranslator(config).eval(), tokenizer=tokenizer)
    row = reference.aligned(subject, gold)
    assert set(row["counts"]) == {"attention", "effective", "self-attribution", "reliance"}
    assert row["diagonal"] == {"sure": 2, "possible": 2, "found": 2, "gold": 2}
    for counts in row["counts"].values():
        assert [count["found"] for count in counts] == [2]


def test_two_translators_are_compared_by_bootstrap(tmp_path):
    folder = tmp_path / "multi30k"
    folder.mkdir()
    lines = [f"{n} men and {n} dogs run through the snow" for n in range(12)]
    for end in ("en", "de"):
        (folder / f"test_2016_flickr.{end}").write_text("\n".join(lines) + "\n")
    worse = [line.replace("the", "a") if n % 2 else line for n, line in enumerate(lines)]
    rows = [{"key": "a", "translations": lines}, {"key": "b", "translations": worse}]
    file = tmp_path / "reference-bleu.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = SimpleNamespace(out=tmp_path, data=tmp_path)
    found = reference.bootstrapped(options, "a", "b")
    assert found["scores"][0] == pytest.approx(100)
    assert found["scores"][1] < 95
    assert found["p_value"] < 0.05
    low, high = found["difference"]["interval"]
    assert low < found["scores"][0] - found["scores"][1] < high
    every = torch.arange(len(lines))[None]
    assert reference.resampled(worse, lines, every) == [pytest.approx(found["scores"][1])]
