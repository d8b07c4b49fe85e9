"""Small tokenizers made here, so that tests can speak without downloading one."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = (
    *("a", "fine", "film", "is", "not", "the", "dull", "plot", "but", "great", "acting"),
    *("saves", "it", ".", ",", "really", "very", "long", "text"),
)
NUMBERED = [f"w{i}" for i in range(70)]
MARKS = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
WHOLE = ["good", "bad", "film", "the", "a", "very", "plot"]  # not cut into pieces
PIECE_MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]


def tokenizer(**options) -> PreTrainedTokenizerFast:
    """BERT-like: lower case, whole words, [CLS] text [SEP] pair [SEP]."""
    core = _whole_words([*SPECIAL, *WORDS])
    core.normalizer = normalizers.Lowercase()
    core.post_processor = _marked()
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_input_names=inputs, **_marks(MARKS) | options
    )


def plain_tokenizer() -> PreTrainedTokenizerFast:
    """Words and nothing else: no way to mark a pair."""
    core = _whole_words([*SPECIAL, *WORDS])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def silent_tokenizer() -> PreTrainedTokenizerFast:
    """One that drops every sign it does not know."""
    found = plain_tokenizer()
    found.backend_tokenizer.normalizer = normalizers.Replace(Regex(r"[^\w\s]"), "")
    return found


def save_tokenizer(folder: Path) -> None:
    tokenizer().save_pretrained(folder)


def _whole_words(vocabulary: list[str]) -> Tokenizer:
    ids = {word: i for i, word in enumerate(vocabulary)}
    core = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return core


def _marked() -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )


def _marks(names) -> dict[str, str]:
    return {f"{name}_token": MARKS[name] for name in names}


def marked_tokenizer(*names):
    """One word, one token; only the marks that are named are known to it as special."""
    core = _whole_words([*MARKS.values(), *NUMBERED])
    core.post_processor = _marked()
    return PreTrainedTokenizerFast(tokenizer_object=core, **_marks(names or MARKS))


def word_piece() -> PreTrainedTokenizerFast:
    vocabulary = {piece: number for number, piece in enumerate([*PIECE_MARKS, *WHOLE, *PIECES])}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=32, **marks)
