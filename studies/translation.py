"""How were `translation` and `translation-additive` made? By this recipe; `make models` runs it.

1. Multi30k (Elliott et al., 2016), English to German: 29,000 captions. Train on `train`; every
   choice (sizes, epoch, average) is made on `val`. A killed run goes on when it is started again.
2. Pack: 8-bit matrices, the tokenizer beside them.
3. Translate `test_2016_flickr` once, with the weights as packed and before, and write the card.

    python studies/translation.py --data DATA/multi30k --work FOLDER [--only train] [names]

`gru` is the third model, a GRU without attention that reads the source into one vector. It is there
to be compared with (`reference.py`) and is not packed.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gru_translator import PlainConfig
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from exhibit_a.embedded.weights import EMBEDDED, load_embedded, pack_alone
from exhibit_a.models import AdditiveConfig, TransformerConfig
from exhibit_a.models.configs import TranslatorConfig
from exhibit_a.training.data import read_pairs
from exhibit_a.training.train import RECORD, train
from exhibit_a.training.translating import bleu, translate

BEAMS = 4
TEST = "test_2016_flickr"
LONGEST = 80  # tokens of a translation


@dataclass(frozen=True)
class Recipe:
    """One translator: its sizes, how it is trained, and the name under which it is packed."""

    config: TranslatorConfig
    options: Mapping[str, Any]
    packed: str | None = None
    paper: str = ""


RECURRENT = {"vocab_size": 5000, "d_model": 256, "dropout": 0.2}
SHORT = {
    "epochs": 14,
    "batch_tokens": 1500,
    "learning_rate": 2e-3,
    "warmup": 400,
    "patience": 8,
    "half": True,
}
RECIPES = {
    "transformer": Recipe(
        TransformerConfig(
            vocab_size=5000,
            d_model=128,
            encoder_layers=4,
            decoder_layers=4,
            num_heads=4,
            d_ff=256,
            dropout=0.1,
        ),
        {
            "epochs": 24,
            "batch_tokens": 2000,
            "learning_rate": 3e-3,
            "warmup": 800,
            "patience": 12,
            "bleu_every": 3,
            "half": True,
        },
        "translation",
        "Attention Is All You Need (Vaswani et al., 2017): 4 + 4 layers, 4 heads of width 32",
    ),
    "additive": Recipe(
        AdditiveConfig(**RECURRENT, d_attention=256),
        {**SHORT, "bleu_every": 2},
        "translation-additive",
        "Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau et al., "
        "2015): a GRU that reads from both sides, one that writes, and one head between them",
    ),
    "gru": Recipe(PlainConfig(**RECURRENT), {**SHORT, "bleu_every": 2}),
}


def main() -> None:
    options = parse_options()
    for name in options.names or RECIPES:
        saved = trained_translator(name, options.data, options.work)
        if options.only != "train" and RECIPES[name].packed:
            pack_alone(saved, options.out / str(RECIPES[name].packed))
            write_card(name, saved, options.data, options.out)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make the embedded translators.")
    parser.add_argument("names", nargs="*", choices=[*RECIPES, []], help="of these; all if none")
    parser.add_argument("--data", type=Path, required=True, help="the folder of Multi30k")
    parser.add_argument("--work", type=Path, required=True, help="trained models, kept")
    parser.add_argument("--out", type=Path, default=EMBEDDED, help="where the packed models go")
    parser.add_argument("--only", choices=["train"], help="do not pack")
    return parser.parse_args()


def trained_translator(name: str, data: Path, work: Path) -> Path:
    """The trained model, from an earlier run if there was one."""
    folder = work / name
    if folder.is_dir():
        return folder
    recipe = RECIPES[name]
    learn, dev = files(data, "train"), files(data, "val")
    return train(recipe.config, learn, dev=dev, out=folder, **recipe.options)


def files(data: Path, part: str) -> tuple[Path, Path]:
    """The sentences and translations of a part of Multi30k."""
    return data / f"{part}.en", data / f"{part}.de"


def translated(model: PreTrainedModel, tokenizer: Any, data: Path, part: str) -> tuple[Any, float]:
    """The translations of a part by beam search, and their BLEU."""
    pairs = read_pairs(files(data, part))
    sentences = [source for source, _ in pairs]
    written = translate(model, tokenizer, sentences, beams=BEAMS, longest=LONGEST)
    return written, bleu(written, [target for _, target in pairs])


def write_card(name: str, saved: Path, data: Path, folder: Path) -> None:
    """Measure the packed model, beside the one it was made from, and write its card."""
    recipe, packed = RECIPES[name], str(RECIPES[name].packed)
    full = AutoModelForSeq2SeqLM.from_pretrained(saved).eval(), AutoTokenizer.from_pretrained(saved)
    rows = []
    for part in ("val", TEST):
        pair = [translated(*loaded, data, part)[1] for loaded in (full, loaded_from(packed, folder))]
        rows.append(f"| {part} | {pair[0]:.1f} | {pair[1]:.1f} |")
        print(packed, rows[-1])
    record = json.loads((saved / RECORD).read_text())
    card = CARD.format(
        name=packed,
        paper=recipe.paper,
        parameters=sum(weight.numel() for weight in full[0].parameters()) / 1e6,
        beams=BEAMS,
        rows="\n".join(rows),
        data=DATA,
        pairs=record["train_pairs"],
        epochs=len(record["epochs"]),
        hours=record["processor_hours"],
        licences=LICENCES,
    )
    (folder / packed / "README.md").write_text(card, encoding="utf-8")
    size = sum(file.stat().st_size for file in (folder / packed).iterdir())
    print(f"{folder / packed}: {size / 1e6:.2f} MB")


def loaded_from(name: str, folder: Path) -> tuple[PreTrainedModel, Any]:
    return load_embedded(name, folder=folder)


DATA = (
    "Multi30k (Elliott et al., 2016): English captions of photographs and their German "
    "translations, made by professionals. Every choice was made on val."
)
LICENCES = (
    "the repository of Multi30k names none; its English captions come from Flickr30k (Young et "
    "al., 2014), which is given out for non-commercial research and education."
)
CARD = """---
license: apache-2.0
language: [en, de]
pipeline_tag: translation
---
# {name}: What does this say in German?

A translator to try Exhibit A on: small enough to come with the package, real enough to have learnt
where to look. {paper}. {parameters:.1f} million parameters.

## BLEU

sacrebleu on plain text, beam search with {beams} beams; the weights before packing, and as shipped
(8-bit matrices), loaded as `exhibit_a.load("{name}")` does.

| measured on | before packing | as shipped |
|---|---|---|
{rows}

## Origin

* Trained from nothing on {pairs:,} pairs: {epochs} epochs, {hours:.1f} processor hours.
* Data: {data}
* Recipe: `make models`, which is `studies/translation.py`; it also wrote this card.
* Licences of the data: {licences}
* Licence of these weights: Apache-2.0. The data are not part of the package.

## Limits

It has only seen captions: one or two dozen words on people, animals and things in a photograph.
Everything else it turns into a caption. It has never seen a question, a name or a long sentence,
and it is fluent where it is wrong. It is an exhibit for studying attention.
Do not decide anything about people with it.
"""

if __name__ == "__main__":
    main()
