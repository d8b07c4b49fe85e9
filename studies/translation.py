"""How were `translation` and `translation-additive` trained? This is the recipe, whole.

Multi30k (Elliott et al., 2016), English to German: 29,000 captions. Every choice (sizes, epoch,
average) is made on `val`; `test_2016_flickr` is translated once, at the end.

    python studies/translation.py --data DATA/multi30k --work FOLDER [transformer | additive]

A killed run goes on where it was when the same command is given again.
"""

import argparse
from pathlib import Path

from exhibit_a.models import TransformerConfig
from exhibit_a.training.fit_translator import TranslatorSchedule
from exhibit_a.training.translator import train_translator

RECIPES = {
    "transformer": (
        TransformerConfig(
            vocab_size=5000,
            d_model=128,
            encoder_layers=4,
            decoder_layers=4,
            num_heads=4,
            d_ff=256,
            dropout=0.3,
        ),
        TranslatorSchedule(
            epochs=60, batch_tokens=3000, learning_rate=3e-3, warmup=1200, average=5, patience=12
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the embedded translators.")
    parser.add_argument("name", nargs="?", choices=list(RECIPES), default="transformer")
    parser.add_argument("--data", type=Path, required=True, help="the folder of Multi30k")
    parser.add_argument("--work", type=Path, required=True, help="where models and checkpoints go")
    options = parser.parse_args()
    config, schedule = RECIPES[options.name]
    folder = train_translator(
        config,
        (options.data / "train.en", options.data / "train.de"),
        dev=(options.data / "val.en", options.data / "val.de"),
        out=options.work / options.name,
        schedule=schedule,
    )
    print(f"saved in {folder}")


if __name__ == "__main__":
    main()
