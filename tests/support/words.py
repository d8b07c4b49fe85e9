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
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=core, model_input_names=inputs, **_marks(options)
    )


def plain_tokenizer() -> PreTrainedTokenizerFast:
    """Words and nothing else: no way to mark a pair."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def silent_tokenizer() -> PreTrainedTokenizerFast:
    """One that drops every sign it does not know."""
    found = plain_tokenizer()
    found.backend_tokenizer.normalizer = normalizers.Replace(Regex(r"[^\w\s]"), "")
    return found


def save_tokenizer(folder: Path) -> None:
    tokenizer().save_pretrained(folder)


def _marks(options: dict) -> dict:
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"}
    return {f"{name}_token": mark for name, mark in names.items()} | options


def marked_tokenizer(*names):
    """One word, one token; only the marks that are named are known to it as special."""
    vocabulary = {word: i for i, word in enumerate([*MARKS.values(), *NUMBERED])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    known = {f"{name}_token": MARKS[name] for name in names or MARKS}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **known)


def word_piece() -> PreTrainedTokenizerFast:
    vocabulary = {piece: number for number, piece in enumerate([*PIECE_MARKS, *WHOLE, *PIECES])}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=32, **marks)
