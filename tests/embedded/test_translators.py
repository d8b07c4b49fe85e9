"""Translators inside the package: packed like the others, loaded by name, put on trial."""

import json
import re
from functools import partial

import pytest
from support.command import run
from translation import RECIPES, PlainConfig, write_card

import exhibit_a as xa
from exhibit_a.embedded import weights
from exhibit_a.embedded.weights import EMBEDDED, embedded_names, load_embedded, pack_alone
from exhibit_a.subject import sources
from exhibit_a.training.train import train
from exhibit_a.training.translating import bleu, translate

PAIRS = [
    (f"{many} {what} {does}", f"{viele} {was} {tut}")
    for many, viele in (("two", "zwei"), ("three", "drei"))
    for what, was in (("dogs", "Hunde"), ("cats", "Katzen"), ("men", "Leute"))
    for does, tut in (("run", "rennen"), ("sleep", "schlafen"))
]
SIZES = {"vocab_size": 70, "d_model": 16, "dropout": 0.0}
CONFIGS = {
    "transformer": xa.models.TransformerConfig(
        **SIZES, encoder_layers=1, decoder_layers=1, num_heads=2, d_ff=32
    ),
    "additive": xa.models.AdditiveConfig(**SIZES, d_attention=8),
    "gru": PlainConfig(**SIZES),
}
FAST = {"epochs": 30, "batch_tokens": 20, "learning_rate": 0.02, "warmup": 20, "average": 1}


@pytest.fixture(scope="module", params=CONFIGS)
def saved(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("saved") / request.param
    options = FAST | {"label_smoothing": 0.0, "bleu_every": 30, "progress": False}
    return train(CONFIGS[request.param], PAIRS, dev=PAIRS, out=out, **options)


@pytest.fixture
def packed(saved, tmp_path, monkeypatch):
    """The package as it will be with this translator in it, and no other model."""
    if saved.name == "gru":
        pytest.skip("only there to be compared with")
    name = RECIPES[saved.name].packed
    pack_alone(saved, tmp_path / name)
    monkeypatch.setattr(sources, "embedded_names", partial(embedded_names, tmp_path))
    monkeypatch.setattr(sources, "load_embedded", partial(load_embedded, folder=tmp_path))
    return name


def test_what_is_packed_translates_as_before(saved, packed, tmp_path):
    subject = xa.load(packed)
    sources_, targets = zip(*PAIRS, strict=True)
    model, tokenizer = subject.model, subject.tokenizer
    assert translate(model, tokenizer, sources_, beams=4) == list(targets)
    full = xa.load(saved).model.state_dict()
    for name, weight in model.state_dict().items():
        step = full[name].abs().amax(-1, keepdim=True) / weights.LARGEST
        assert (weight - full[name]).abs().le(0.51 * step).all(), name
    assert sorted(f.name for f in (tmp_path / packed).iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_translation_is_put_on_trial(packed, capsys, tmp_path):
    page = tmp_path / "page.html"
    code, out, err = run(capsys, "explain", "--model", packed, "two dogs run", "--html", page)
    assert (code, err) == (0, "")
    assert "\nverdict: " in out
    assert "'zwei Hunde rennen'" in out
    kinds = ("encoder layer 0 ", "decoder layer 0 ") if packed == "translation" else ()
    for kind in (*kinds, "alignment by ", "zwei ← "):
        assert kind in out
    header = page.read_text(encoding="utf-8").partition('data-part="header">')[2]
    shown = json.JSONDecoder().raw_decode(header)[0]["sequences"]
    texts = {stack: "".join(names["tokens"]).replace("▁", "") for stack, names in shown.items()}
    assert texts == {"encoder": "twodogsrun</s>", "decoder": "<s>zweiHunderennen"}


def test_a_card_says_what_was_measured(saved, tmp_path):
    if saved.name == "gru":
        pytest.skip("has no card")
    for part in ("val", "test_2016_flickr"):
        for side, end in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in PAIRS)
            (tmp_path / f"{part}.{end}").write_text(text, encoding="utf-8")
    name = RECIPES[saved.name].packed
    pack_alone(saved, tmp_path / name)
    write_card(saved.name, saved, tmp_path, tmp_path)
    card = (tmp_path / name / "README.md").read_text(encoding="utf-8")
    targets = [target for _, target in PAIRS]
    perfect = bleu(targets, targets)  # less than 100, as there are no four words in a row
    assert f"| test_2016_flickr | {perfect:.1f} | {perfect:.1f} |" in card
    pairs = re.search(r"\* Trained from nothing on (\d+) pairs: \d+ epochs", card)
    assert int(pairs[1]) == len(PAIRS)


@pytest.mark.parametrize("name", [recipe.packed for recipe in RECIPES.values() if recipe.packed])
def test_a_translator_is_named_only_when_it_is_there(name):
    there = (EMBEDDED / name / weights.WEIGHTS).exists()
    assert (name in embedded_names()) == there
    if not there:
        with pytest.raises(xa.BadRequestError, match=name):
            xa.load(name)
        return
    size = sum(f.stat().st_size for f in (EMBEDDED / name).iterdir())
    assert size <= 7e6
