"""Make the live pages of the gallery: one for each kind of model, each a file that needs no network.

    python docs/making/gallery.py [FOLDER]

`make docs` does it. The results are kept, so that only this script's own changes make them anew.
"""

import hashlib
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import torch
from PIL import Image, ImageDraw

import exhibit_a as xa
from exhibit_a.embedded.weights import embedded_names

FOLDER = Path(__file__).parents[2] / "build/gallery"
REVIEW = (
    "The story is thin and the middle drags, the jokes are old, and still, against my better "
    "judgement, I liked it, mostly because the two leads are so good together."
)


def classifier() -> xa.Result:
    """A classifier on a review, with its true label."""
    return xa.trial(xa.load("sentiment"), REVIEW, label="positive")


def pair() -> xa.Result:
    """A classifier of pairs."""
    first, second = "A man is playing a guitar on stage.", "Nobody is making music."
    return xa.trial(xa.load("nli"), first, pair=second, label="contradiction")


def causal() -> xa.Result:
    """A language model and the answer that it generated."""
    return xa.trial(xa.load("stories"), "Lily went to the park. She played with her", generate=4)


def image() -> xa.Result:
    """A vision model on a drawing; its weights are random, so only the page is worth a look."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = ViTConfig(image_size=96, patch_size=16, intermediate_size=96, num_labels=3, **sizes)
    drawing = Image.new("RGB", (192, 192), "#d9e8f5")
    pen = ImageDraw.Draw(drawing)
    pen.rectangle((0, 130, 192, 192), fill="#6f9d5a")
    pen.polygon(((40, 130), (96, 60), (152, 130)), fill="#8c4a32")
    pen.ellipse((140, 16, 176, 52), fill="#f2c53d")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        ViTForImageClassification(config).save_pretrained("random-vision-model")
        ViTImageProcessor(size={"height": 96, "width": 96}).save_pretrained("random-vision-model")
        return xa.trial(xa.load("random-vision-model"), drawing)


def translation() -> xa.Result:
    """A model with two stacks: the translator inside, or one with random weights until there is."""
    source, target = "A dog runs through the snow .", "Ein Hund rennt durch den Schnee ."
    subject = xa.load("translation") if "translation" in embedded_names() else _two_stacks()
    return xa.trial(subject, source, target_text=target)


def _two_stacks() -> xa.Subject:
    """A tiny model with an encoder and a decoder, of random weights, that knows some words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    words = ["Ein", "Hund", "rennt", "durch", "den", "Schnee", "."]
    words += ["A", "dog", "runs", "through", "the", "snow"]
    known = {word: place for place, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(known, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    named = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": len(known)}
    layers = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    model = BartForConditionalGeneration(BartConfig(**sizes, **layers, **heads))
    return xa.load(model, tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named))


def compared() -> xa.Result:
    """Two texts of one model side by side."""
    texts = ("A gripping, beautifully shot film.", "A gripping, beautifully shot mess.")
    return xa.compare(*texts, subject=xa.load("sentiment"))


MAKERS: dict[str, Callable[[], xa.Result]] = {
    maker.__name__: maker for maker in (classifier, pair, causal, image, translation, compared)
}


def made(folder: Path = FOLDER) -> dict[str, Path]:
    """Every page; results that this script made before are kept beside them and used again."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "made-by"
    stamp = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    same = kept.exists() and kept.read_text("utf-8") == stamp
    pages = dict[str, Path]()
    for name, maker in MAKERS.items():
        saved = folder / f"{name}.safetensors"
        if not (same and saved.exists()):
            maker().save(saved)
        pages[name] = xa.read(saved).html(folder / f"{name}.html")
    kept.write_text(stamp, encoding="utf-8")
    return pages


if __name__ == "__main__":
    made(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
