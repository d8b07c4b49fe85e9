"""Make the live pages of the gallery: one for each kind of model, each a file that needs no network.

    python docs/making/gallery.py

`make docs` makes the pages; results are kept and made anew when this script, the version or the
models inside the package change. docs/gallery.md shows them.
"""

import hashlib
import tempfile
from contextlib import chdir
from pathlib import Path

import torch
from PIL import Image, ImageDraw

import exhibit_a as xa
from exhibit_a.embedded.weights import EMBEDDED, WEIGHTS, embedded_names

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/gallery"
TRANSLATES = "translation" in embedded_names()
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
    if TRANSLATES:
        return xa.trial(xa.load("translation"), source)  # its own translation
    return xa.trial(_two_stacks(), source, target_text=target)


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
    texts = ("A gripping film.", "A gripping mess.")
    return xa.compare(*texts, subject=xa.load("sentiment"))


MAKERS = (classifier, pair, causal, translation, image, compared)


def made(folder: Path = FOLDER) -> dict[str, Path]:
    """Every page; results that this script made before are kept beside them and used again."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "made-by"
    made_by = Path(__file__).read_bytes(), xa.__version__.encode(), *map(_digest, embedded_names())
    stamp = hashlib.sha256(b"".join(made_by)).hexdigest()
    same = kept.exists() and kept.read_text("utf-8") == stamp
    pages = dict[str, Path]()
    for maker in MAKERS:
        name = maker.__name__
        saved = folder / f"{name}.safetensors"
        if not (same and saved.exists()):
            maker().save(saved)
        pages[name] = xa.read(saved).html(folder / f"{name}.html")
    kept.write_text(stamp, encoding="utf-8")
    return pages


def _digest(model: str) -> bytes:
    """Of the weights of a model inside."""
    return hashlib.sha256((EMBEDDED / model / WEIGHTS).read_bytes()).digest()
