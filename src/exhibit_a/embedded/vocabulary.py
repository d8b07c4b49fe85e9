"""Makes a tokenizer of a list of pieces.

A SentencePiece vocabulary of the BPE kind is a list of pieces with a score each. A text gets a
blank in front and is cut into characters (or the bytes of a character that is no piece). Of all
neighbours that make a piece together the pair with the best score is merged, the leftmost first,
until none is left. The fast tokenizers want the pairs in order instead. They follow from the
pieces, so only these are stored: 300 kB in place of 3.6 MB.

1. A piece has the score that is stored for it, or minus its place in the list: that is how such a
   vocabulary is learnt. Pieces of blanks alone have the lowest score.
2. A pair of pieces that makes a piece has the score of what it makes.
3. Special tokens and bytes, at the head of the list, are never made by merging.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import generate_merges

VOCABULARY = "vocabulary.json"
UNKNOWN, BEGINNING, END = SPECIAL = ("<unk>", "<s>", "</s>")
BLANK = "▁"


@dataclass(frozen=True)
class Vocabulary:
    """Pieces in the order of their ids, and the scores that do not follow from it."""

    pieces: Sequence[str]
    scores: Mapping[str, float]
    unmerged: int  # the number of pieces at the head that are special tokens and bytes
    max_length: int  # of a text that the model can read

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The fast tokenizer that merges by score; it begins every text with ``<s>``."""
        ids = {piece: place for place, piece in enumerate(self.pieces)}
        scores = {piece: self.scores.get(piece, -float(place)) for piece, place in ids.items()}
        merges = generate_merges(ids, scores, skip_tokens=self.pieces[: self.unmerged])
        model = BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token=UNKNOWN)
        rules = Tokenizer(model)
        rules.normalizer = normalizers.Sequence(
            [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]
        )
        rules.decoder = decoders.Sequence(
            [
                decoders.Replace(BLANK, " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
        rules.post_processor = TemplateProcessing(
            single=[BEGINNING, "$A"],
            pair=[BEGINNING, "$A", BEGINNING, "$B:1"],
            special_tokens=[(BEGINNING, ids[BEGINNING])],
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=rules,
            unk_token=UNKNOWN,
            bos_token=BEGINNING,
            eos_token=END,
            model_max_length=self.max_length,
        )

    def save(self, path: Path) -> None:
        """Write the vocabulary as JSON."""
        content = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))
        path.write_text(content + "\n", encoding="utf-8")


def read_vocabulary(path: Path) -> Vocabulary:
    """Read what `Vocabulary.save` wrote."""
    return Vocabulary(**json.loads(path.read_text(encoding="utf-8")))
