"""Model folders: read whole, or refused in one line that helps."""

import json
import pickle

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from support.command import refusal as refusal_of
from support.corpora import save_model
from support.words import save_tokenizer, tokenizer
from support.zoo import FAMILIES

from exhibit_a.errors import BadRequestError, UnsupportedModelError
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.training.train import load_base

INDEX = "model.safetensors.index.json"
QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path)
    return tmp_path


@pytest.fixture
def parted(tmp_path):
    """A folder whose weights are spread over several files."""
    FAMILIES["bert"].build().save_pretrained(tmp_path, max_shard_size="20KB")
    save_tokenizer(tmp_path)
    return tmp_path


def change(folder, name="config.json", **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder):
    """The line with which a folder is refused."""
    with pytest.raises(BadRequestError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def saved(folder, model, **changes):
    """A model in a folder, whose configuration is then changed."""
    model.save_pretrained(folder)
    change(folder, **changes)
    return folder


@pytest.mark.parametrize(
    ("family", "changes", "layers"),
    [
        ("bert", {"num_hidden_layers": 1}, "bert.encoder.layer"),
        ("gpt2", {"n_layer": 1}, "transformer.h"),
        ("t5", {"num_layers": 1}, "encoder.block"),
        ("t5", {"num_decoder_layers": 1}, "decoder.block"),
        ("llama", {"num_hidden_layers": 1}, "model.layers"),
    ],
)
def test_layers_that_the_configuration_leaves_out_are_not_dropped(
    tmp_path, family, changes, layers
):
    line = refusal(saved(tmp_path, FAMILIES[family].build(), **changes))
    assert f"3 layers ({layers})" in line
    assert "describes 1" in line


@pytest.mark.parametrize("head", ["BertForSequenceClassification", "BertModel"])
def test_nor_are_they_where_the_head_is_missing_or_left_out(tmp_path, head):
    model = FAMILIES["bert"].build()
    part = model.bert if head != "BertModel" else model
    saved(tmp_path, part, num_hidden_layers=1, architectures=[head])
    assert "3 layers" in refusal(tmp_path)


def test_weights_beside_the_layers_may_be_left_out(tmp_path):
    """A checkpoint of another kind of head, and what old versions stored."""
    model = FAMILIES["bert"].build()
    weights = model.state_dict() | {
        "cls.predictions.bias": torch.zeros(3),
        "bert.encoder.layer.0.attention.self.distance.weight": torch.zeros(3),
        "bert.embeddings.position_ids": torch.arange(64)[None],
    }
    saved(tmp_path, model)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert len(load(tmp_path).anatomy.layers) == 3


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        (QUERY, torch.int8, "safetensors"),
        (QUERY, torch.bool, "pickle"),
        (QUERY, torch.uint8, "bare"),
        ("classifier.bias", torch.int64, "safetensors"),
    ],
)
def test_a_weight_that_is_no_fraction_is_refused(folder, name, dtype, kind):
    weights = load_file(folder / "model.safetensors")
    weights[name] = (100 * weights[name]).to(dtype)
    if kind == "bare":  # an encoder alone, whose names have no prefix
        weights = {key.removeprefix("bert."): weight for key, weight in weights.items()}
        name = name.removeprefix("bert.")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if kind == "pickle":
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
    line = refusal(folder)
    assert f"{name} as {str(dtype).removeprefix('torch.')}," in line


@pytest.mark.parametrize("content", ["null", "[]", "3", '"bert"', "true", "NaN", "", "{"])
def test_a_configuration_that_is_no_object_is_named(folder, content):
    (folder / "config.json").write_text(content)
    assert "config.json" in refusal(folder)
    with pytest.raises(BadRequestError, match=r"config\.json"):
        load_base(folder, ["good", "bad"])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads: 0"),
        ({"num_attention_heads": -4}, "num_attention_heads: -4"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"num_attention_heads": "four"}, "got str"),
        ({"num_attention_heads": None}, "got NoneType"),
        ({"vocab_size": 10**15}, f"memory; its config.json says vocab_size: {10**15}"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"hidden_size": 10**12}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size: 0"),
        ({"vocab_size": -1}, "vocab_size: -1"),
    ],
)
def test_a_number_that_cannot_be_meant_is_named(folder, changes, word):
    change(folder, **changes)
    assert word in refusal(folder)


@pytest.mark.parametrize("content", ["{", "null", "[]", "3", "{}", '{"weight_map": []}'])
def test_a_damaged_index_is_named(parted, content):
    (parted / INDEX).write_text(content)
    assert INDEX in refusal(parted)


def test_an_index_that_names_no_file_is_refused(parted):
    (parted / "model-00003-of-00007.safetensors").unlink()
    assert "model-00003-of-00007.safetensors" in refusal(parted)
    change(parted, INDEX, weight_map={QUERY: [3]})
    assert "[3]" in refusal(parted)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("tokenizer.json", text) for text in ("", "{", "null", "[]", "{}", '{"model": 3}')),
        *(("tokenizer_config.json", text) for text in ("", "{", "null")),
    ],
)
def test_a_damaged_tokenizer_is_not_called_missing(folder, name, content):
    (folder / name).write_text(content)
    assert name in refusal(folder)
    given = load(folder, tokenizer=tokenizer())  # another one will do
    assert capture(given, "a fine film").tokens


class Code:
    """What a pickle may hold: a call."""

    def __reduce__(self):
        return print, ("this must never run",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("kind", ["code", "model", "arrays", "empty", "no pickle"])
def test_what_torch_advises_about_pickles_is_not_passed_on(folder, kind, capsys):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    if kind in ("code", "model"):
        torch.save({"x": Code()} if kind == "code" else FAMILIES["bert"].build(), file)
    else:
        arrays = {name: weight.numpy() for name, weight in weights.items()}
        contents = {"arrays": pickle.dumps(arrays), "empty": b"", "no pickle": b"nothing"}
        file.write_bytes(contents[kind])
    err = refusal_of(capsys, "doctor", folder)
    assert "safetensors" in err
    assert "weights_only" not in err
    with pytest.raises(BadRequestError, match="safetensors") as caught:
        load_base(folder, ["good", "bad"])
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 5}, r"bert\.encoder\.layer\.3\."),
        ({"intermediate_size": 50}, "9 weights"),
        ({"vocab_size": "many"}, "holds no model"),
        ({"architectures": ["BertForMindReading"]}, "BertForMindReading"),
    ],
)
def test_a_folder_that_does_not_fit_its_configuration_is_refused(folder, changes, message):
    change(folder, **changes)
    with pytest.raises((BadRequestError, UnsupportedModelError), match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_head_that_is_not_there_is_not_made_up(folder):
    config = hf.AutoConfig.from_pretrained(folder)
    hf.BertModel(config).save_pretrained(folder)
    change(folder, architectures=["BertForSequenceClassification"])
    subject = load(folder)
    assert (subject.anatomy.answers, subject.labels) == ("states", ())
    assert [one.tolist() for one in capture(load(folder), "a fine film").hidden] == [
        one.tolist() for one in capture(subject, "a fine film").hidden
    ]
    model, _ = load_base(folder, ["good", "bad"])  # where it is to be trained, that is meant
    assert model.config.num_labels == 2


def test_training_may_begin_without_a_pooler(folder):
    config = hf.AutoConfig.from_pretrained(folder)
    hf.BertForMaskedLM(config).save_pretrained(folder)
    model, _ = load_base(folder, ["good", "bad"])
    assert model.bert.pooler is not None


@pytest.mark.parametrize("name", ["bert", "roberta", "t5", "gpt2"])
def test_no_tokenizer_is_made_up(tmp_path, name):
    FAMILIES[name].build().save_pretrained(tmp_path)
    with pytest.raises(BadRequestError, match="tokenizer"):
        capture(load(tmp_path), "a fine film")
    with pytest.raises(BadRequestError, match="tokenizer"):
        load_base(tmp_path, ["good", "bad"])


def test_broken_weights_of_any_kind_get_one_line(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"no weights at all")
    with pytest.raises(BadRequestError, match="holds no model"):
        load(folder)
    with pytest.raises(BadRequestError, match="Cannot load"):
        load_base(folder, ["good", "bad"])


def test_a_picture_model_that_states_no_size_is_refused():
    vit, gpt = FAMILIES["vit"].build().config, FAMILIES["gpt2"].build().config
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(vit, gpt)
    model = hf.VisionEncoderDecoderModel(config).eval()
    assert load(model).anatomy.stacks  # its encoder states it
    canine = hf.CanineConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    with pytest.raises(UnsupportedModelError, match="vocab_size"):
        load(hf.CanineModel(canine).eval())
