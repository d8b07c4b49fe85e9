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
    """A model with two stacks and its own translation."""
    return xa.trial(xa.load("translation"), "A dog runs through the snow .")


def compared() -> xa.Result:
    """Two texts of one model side by side."""
    return xa.compare("A gripping film.", "A gripping mess.", subject=xa.load("sentiment"))


def made(folder: Path = FOLDER) -> dict[str, Path]:
    """Every page; results that this script made before are kept beside them and used again."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = [(EMBEDDED / model / WEIGHTS).read_bytes() for model in embedded_names()]
    made_by = Path(__file__).read_bytes(), xa.__version__.encode(), *weights
    stamp, kept = hashlib.sha256(b"".join(made_by)).hexdigest(), folder / "made-by"
    same = kept.exists() and kept.read_text("utf-8") == stamp
    pages = dict[str, Path]()
    for maker in (classifier, pair, causal, translation, image, compared):
        saved = folder / f"{maker.__name__}.safetensors"
        if not (same and saved.exists()):
            maker().save(saved)
        pages[maker.__name__] = xa.read(saved).html(saved.with_suffix(".html"))
    kept.write_text(stamp, encoding="utf-8")
    return pages
