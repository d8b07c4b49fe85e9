"""Which pieces are words made of? Byte-pair encoding, learnt from the text itself.

The most frequent pair of neighbouring pieces becomes a piece, again and again, until there are as
many as asked for (Sennrich et al., 2016). The marker ▁ stands for the blank before a word, so that
pieces can be put together again exactly. Both languages of a translator share one vocabulary.
"""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PADDING, START, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL = [PADDING, START, END, UNKNOWN]  # their ids are 0, 1, 2 and 3


def learnt_vocabulary(
    texts: Iterable[str], size: int, *, lowercase: bool = False, starts: bool = False
) -> PreTrainedTokenizerBase:
    """A tokenizer with at most ``size`` pieces, learnt from the texts; every text gets an end.

    ``starts`` puts a token in front as well, whose state can answer for the whole text.

    >>> tokenizer = learnt_vocabulary(["two dogs run", "two dogs sleep"], 40)
    >>> tokenizer.decode(tokenizer("two dogs run")["input_ids"], skip_special_tokens=True)
    'two dogs run'
    """
    pieces = Tokenizer(models.BPE(unk_token=UNKNOWN))
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    pieces.normalizer = normalizers.Sequence(steps)
    pieces.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    )
    pieces.decoder = decoders.Metaspace()
    trainer = BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    single = f"{START} $A {END}" if starts else f"$A {END}"
    pieces.post_processor = processors.TemplateProcessing(
        single=single,
        pair=f"{single} $B {END}",
        special_tokens=[(token, SPECIAL.index(token)) for token in (START, END)],
    )
    return of_pieces(pieces)


def of_pieces(pieces: Tokenizer) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocabulary that was learnt here, now or before a training was killed."""
    named = {"pad_token": PADDING, "bos_token": START, "eos_token": END, "unk_token": UNKNOWN}
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces, clean_up_tokenization_spaces=False, **named
    )
