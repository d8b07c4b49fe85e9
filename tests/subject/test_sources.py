"""Where a model comes from, and what is refused because it did not arrive whole."""

import json

import pytest
import transformers as hf
from support.words import save_tokenizer
from support.zoo import FAMILIES

from exhibit_a.errors import BadRequestError, UnsupportedModelError
from exhibit_a.subject.subject import load
from exhibit_a.trace.capture import capture
from exhibit_a.training.train import load_base


@pytest.fixture
def folder(tmp_path):
    FAMILIES["bert"].build().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    return tmp_path


def reconfigured(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


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
    reconfigured(folder, **changes)
    with pytest.raises((BadRequestError, UnsupportedModelError), match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_head_that_is_not_there_is_not_made_up(folder):
    config = hf.AutoConfig.from_pretrained(folder)
    hf.BertModel(config).save_pretrained(folder)
    reconfigured(folder, architectures=["BertForSequenceClassification"])
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
