"""Values that nobody expects: words, numbers, texts and paths."""

import random

LONG = 3000

TEXTS = (
    "",
    " ",
    "\n\t\r",
    "\0",
    "a\0film",
    "\ud800",
    "a \udfff film",
    "\x1b]0;title\x07 fine",
    "\x1b[31mred\x1b[0m film",
    "".join(map(chr, range(32))),
    "\x7f\x80\x9f",
    "‮mlif enif a",
    "فيلم رائع",
    "סרט טוב",
    "e" + "́" * 500,
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "👩‍👩‍👧‍👦" * 50,
    "🏳️‍🌈🇩🇪👍🏽",
    "a" * LONG,
    "a-" * LONG,
    "word " * LONG,
    "\ufeffa film",
    "\u200b\u200c\u200d\u2060",
    "\U000e0041\U000e0042",
    "𝔞 𝔣𝔦𝔫𝔢 𝔣𝔦𝔩𝔪",
    "ﷺ ﷽",
    "ǅ ß İ ı ﬁ",
    "[CLS] [SEP] [MASK] [PAD] [UNK]",
    "<s></s><|endoftext|>{{bos}}",
    "%s%n%x {} {0} ${HOME} $(id) `id`",
    "<script>alert(1)</script>",
    "'; DROP TABLE films; --",
    "a\u2028film\u2029is\u0085fine",
    "\uffff\ufffe\ufdd0",
    "１２３ ４５６",
    "-" * 50,
    "--help",
)

WORDS = (
    *TEXTS,
    "nothing",
    "../../etc/passwd",
    "/dev/null/x",
    "/",
    ".",
    "~",
    "-1",
    "0",
    "1",
    "3",
    "99",
    "4294967296",
    "18446744073709551616",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "1_000",
    "0x10",
    "1.5",
    "1,2,,3",
    "1:2",
    "none",
    "True",
    "[]",
    "{}",
    "null",
    "sentiment",
    "attention",
)


def text(chance: random.Random) -> str:
    """A text that is hard on a tokenizer: one of those above, or some of them mixed."""
    if chance.random() < 0.4:
        return chance.choice(TEXTS)
    pieces = [chance.choice(TEXTS)[:40] for _ in range(chance.randint(1, 4))]
    pieces += [_any_character(chance) for _ in range(chance.randint(0, 20))]
    chance.shuffle(pieces)
    return chance.choice(("", " ", "\n")).join(pieces)


def _any_character(chance: random.Random) -> str:
    planes = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF))
    return chr(chance.randint(*chance.choice(planes)))
