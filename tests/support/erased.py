"""What a model answers to texts with tokens taken away, by its own definition."""

import torch

from exhibit_a.methods.explanation.erasure import read_from
from exhibit_a.trace.answers import NUMBERS, logits_at


def answers_to(subject, encodings):
    """The model's distribution for every encoding, of the next token where it goes on."""
    logits = read_from(
        subject, encodings, lambda output, lengths: logits_at(output, lengths - 1).float()
    )
    return logits if subject.anatomy.answers in NUMBERS else torch.softmax(logits, -1)
