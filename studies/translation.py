"""How were `translation` and `translation-additive` made? By this recipe; `make models` runs it.

1. Multi30k (Elliott et al., 2016), English to German: 29,000 captions. Train on `train`; every
   choice (sizes, epoch, average) is made on `val`. A killed run goes on when it is started again.
2. Pack: 8-bit matrices, the tokenizer beside them.
3. Translate `test_2016_flickr` once, with the weights as packed and before, and write the
   numbers of the card.

    python studies/translation.py --data DATA/multi30k --work FOLDER [--only train] [names]

`gru` is the third model, a GRU without attention that reads the source into one vector. It is there
to be compared with (`reference.py`) and is not packed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from study import measured_card, parse
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from exhibit_a.embedded.weights import EMBEDDED, load_embedded, pack_alone
from exhibit_a.models import AdditiveConfig, TransformerConfig
from exhibit_a.models.additive import AdditiveDecoder, AdditiveEncoder, AdditiveTranslator
from exhibit_a.models.configs import TranslatorConfig
from exhibit_a.training.data import read_pairs
from exhibit_a.training.train import RECORD, train
from exhibit_a.training.translating import bleu, translate

BEAMS = 4
TEST = "test_2016_flickr"
LONGEST = 80  # tokens of a translation


# How translators read before attention: into one vector (Cho et al., 2014; Sutskever et al.).
#
#     h_j = GRU(h_{j−1}; E x_j)
#     c   = tanh(W_c [→h_n ; ←h_1])                     the whole sentence, whatever its length
#     s_0 = c,  s_i = GRU(s_{i−1}; E y_{i−1}, c)
#     t_i = tanh(U_o s_i + V_o E y_{i−1} + C_o c)
#
# Only for comparison: everything but the way the source is read is as in `AdditiveTranslator`,
# whose decoder it takes over with an attention that always gives the same c.


class PlainConfig(AdditiveConfig):
    """Sizes of a `PlainTranslator`; the attention of the decoder has nothing to choose from."""

    model_type = "study-gru"
    d_attention: int = 1


class PlainEncoder(AdditiveEncoder):
    """A GRU that reads from both sides and keeps what stands at both ends."""

    config_class = PlainConfig

    def __init__(self, config: PlainConfig) -> None:
        super().__init__(config)
        self.ends = nn.Linear(config.d_model, config.d_model)
        self.finish()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """One vector in the place of the annotations."""
        read = super().forward(input_ids, attention_mask, **kwargs)
        half = read.last_hidden_state.shape[-1] // 2
        states = read.last_hidden_state  # padding leaves a state as it is, so the last is the end
        ends = self.ends(torch.cat([states[:, -1, :half], states[:, 0, half:]], dim=-1)).tanh()
        read.last_hidden_state = ends.unsqueeze(1)
        return read


class PlainDecoder(AdditiveDecoder):
    """The decoder of `AdditiveTranslator`; with one vector to look at, it always looks at it."""

    config_class = PlainConfig

    def forward(self, *given: Any, source_mask: Tensor | None = None, **kwargs: Any) -> Any:  # noqa: ARG002
        """There is no padding among one vector."""
        return super().forward(*given, source_mask=None, **kwargs)


class PlainTranslator(AdditiveTranslator):
    """The translator, whole."""

    config_class = PlainConfig
    reads, writes = PlainEncoder, PlainDecoder


AutoConfig.register(PlainConfig.model_type, PlainConfig, exist_ok=True)
AutoModelForSeq2SeqLM.register(PlainConfig, PlainTranslator, exist_ok=True)


# The recipes


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
    options = parse(
        __doc__, ["data", "work"], names=RECIPES, data=Path, work=Path, out=EMBEDDED, only=str
    )
    for name in options.names or RECIPES:
        saved = trained_translator(name, options.data, options.work)
        if options.only != "train" and RECIPES[name].packed:
            pack_alone(saved, options.out / str(RECIPES[name].packed))
            write_card(name, saved, options.data, options.out)


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
    """Measure the packed model, beside the one it was made from, and write the numbers of its
    card."""
    packed = str(RECIPES[name].packed)
    full = AutoModelForSeq2SeqLM.from_pretrained(saved).eval(), AutoTokenizer.from_pretrained(saved)
    both = full, load_embedded(packed, folder=folder)
    rows = []
    for part in ("val", TEST):
        before, shipped = (translated(*loaded, data, part)[1] for loaded in both)
        rows.append(f"| {part} | {before:.1f} | {shipped:.1f} |")
    record = json.loads((saved / RECORD).read_text())
    epochs, hours = len(record["epochs"]), record["processor_hours"]
    pairs = f"{record['train_pairs']:,} pairs"
    about = f"* Trained from nothing on {pairs}: {epochs} epochs, {hours:.1f} processor hours."
    measured_card(packed, rows, folder, about)


if __name__ == "__main__":
    main()
