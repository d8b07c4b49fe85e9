"""Tiny tokenizers of four kinds, trained on the spot, and texts in eight scripts."""

import random

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers as training
from transformers import PreTrainedTokenizerFast

WORDS = {
    "latin": ["the", "film", "drags", "naïve", "cafe\u0301", "isn't", "well-made", "3.14", "Größe"],
    "han": ["这部电影", "很好看", "。", "演员", "不错", "，", "中文"],
    "arabic": ["الفيلم", "جميل", "جدًّا", "،", "قصة", "ممتازة", "؟"],
    "devanagari": ["हिन्दी", "में", "लिखा", "हुआ", "क्षत्रिय", "।", "फ़िल्म"],
    "thai": ["ภาษาไทย", "ดีมาก", "หนัง", "เรื่องนี้", "ๆ"],
    "cyrillic": ["Фильм", "очень", "хороший", "—", "й", "ёлка"],
    "hangul": ["한국어", "문장", "영화", "재미있다", "ㅋㅋ"],
    "emoji": [
        "👨‍👩‍👧",
        "👍🏽",
        "🇩🇪🇫🇷",
        "❤️",
        "1️⃣",
        "ok",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ],
}
MARKS = ["<unk>", "<s>", "</s>", "<pad>"]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
NO_SPACES = ("han", "thai")


def texts(count: int, seed: int = 0) -> list[str]:
    """Made-up texts, the scripts in turn, with odd spaces, line breaks and punctuation."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        script = list(WORDS)[number % len(WORDS)]
        words = chance.choices(WORDS[script], k=chance.randint(1, 7))
        if chance.random() < 0.3:
            words.append(chance.choice(WORDS[chance.choice(list(WORDS))]))
        gaps = ["", " "] if script in NO_SPACES else [" ", " ", "  ", ", ", ". ", "\n", "!"]
        made.append("".join(word + chance.choice(gaps) for word in words))
    return made


def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    """One tokenizer of each kind; trained on few texts, so that most words are cut."""
    sample = texts(60, seed=1)
    kinds = {"bytes": _bytes(), "unigram": _unigram(), "pieces": _pieces(), "fallback": _fallback()}
    trained = {}
    for name, (tokenizer, trainer) in kinds.items():
        tokenizer.train_from_iterator(sample[:20] if name == "fallback" else sample, trainer)
        first, second = (tokenizer.token_to_id(mark) for mark in ("<s>", "</s>"))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> $B </s>",
            special_tokens=[("<s>", first), ("</s>", second)],
        )
        trained[name] = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            unk_token="<unk>",
            bos_token="<s>",
            eos_token="</s>",
            pad_token="<pad>",
        )
    return trained


def _bytes() -> tuple[Tokenizer, training.Trainer]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, training.BpeTrainer(
        vocab_size=360, special_tokens=MARKS, initial_alphabet=letters, show_progress=False
    )


def _unigram() -> tuple[Tokenizer, training.Trainer]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer, training.UnigramTrainer(
        vocab_size=300, special_tokens=MARKS, unk_token="<unk>", show_progress=False
    )


def _pieces() -> tuple[Tokenizer, training.Trainer]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, training.WordPieceTrainer(
        vocab_size=300, special_tokens=MARKS, show_progress=False
    )


def _fallback() -> tuple[Tokenizer, training.Trainer]:
    """Like Llama's: spaces are letters, and what is not known is written in bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return tokenizer, training.BpeTrainer(
        vocab_size=330, special_tokens=MARKS + BYTES, limit_alphabet=25, show_progress=False
    )
