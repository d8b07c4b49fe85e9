"""Checks that the tokenizer begins a text as the model was trained to read it.

Some language models were trained with a beginning token in front of every text, and some of their
tokenizers do not put it there (converted checkpoints forget it). Nothing fails then: the model
reads every text badly. So the perplexity of a short text is compared with and without the token,
in one pass, when the model is loaded. Where the token makes the text at least twice as predictable,
that is said by the doctor, and among the checks of every result about a text without it.
"""

import math
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from exhibit_a.subject.encoding import Tokenizer
from exhibit_a.subject.guard import frozen_eval, without_cache

TEXT = "The sun rises in the east and sets in the west. Water is wet, and snow is white and cold."
TIMES = 2.0  # more perplexing without the token: below, it may as well be missing
FEWEST = 4  # tokens of the text; with fewer, perplexity says nothing


class Beginning(NamedTuple):
    """A beginning token that texts should have and do not get."""

    token: str
    warning: str


def missing_beginning(model: PreTrainedModel, tokenizer: Tokenizer) -> Beginning | None:
    """The token that is missing in front of texts, and how that was seen; None where none is."""
    token = _beginning_of(model, tokenizer)
    if token is None:
        return None
    ids = tokenizer(TEXT)["input_ids"]
    words = model.config.get_text_config().vocab_size
    if token in ids or len(set(ids)) < FEWEST or max(ids) >= words:
        return None  # it is there already, or the tokenizer does not know these words
    count = len(ids) - 1
    without, with_it = (_perplexity(model, row, count) for row in (ids, [token, *ids]))
    if not with_it * TIMES <= without:
        return None
    name = str(tokenizer.convert_ids_to_tokens(token))
    return Beginning(
        name,
        f"this tokenizer puts no {name} in front of a text, and the model seems to want it: the "
        f"perplexity of a short text is {without:.3g} without it and {with_it:.3g} with it. Write "
        "it in front of your texts, or set the tokenizer's add_bos_token",
    )


def _beginning_of(model: PreTrainedModel, tokenizer: Tokenizer) -> int | None:
    """The beginning token of a language model with one stack, if it has one."""
    known = hasattr(tokenizer, "convert_ids_to_tokens")
    if not known or model.config.is_encoder_decoder or not model.can_generate():
        return None
    text = model.config.get_text_config()
    ids = [getattr(source, "bos_token_id", None) for source in (tokenizer, text)]
    size = getattr(text, "vocab_size", 0)
    return next((token for token in ids if isinstance(token, int) and 0 <= token < size), None)


@torch.no_grad()
def _perplexity(model: PreTrainedModel, ids: list[int], count: int) -> float:
    """Of the last tokens: those behind the first word, which has nothing before it."""
    row = torch.tensor([ids], device=model.device)
    inputs = without_cache(model, {"input_ids": row, "attention_mask": torch.ones_like(row)})
    with frozen_eval(model):
        logits = model(**inputs).logits[0, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="none")
    return math.exp(min(float(losses[-count:].mean()), 80.0))
