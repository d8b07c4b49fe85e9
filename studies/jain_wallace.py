"""How did Jain & Wallace (2019) compare attention with other scores? By Kendall's τ over the words.

Their gradient scores are |Σ gradient × embedding| of the probability, with the attention row held
as it is: the gradient goes through the annotations only.
"""

import torch
from scipy.stats import kendalltau
from torch import Tensor

from exhibit_a.models import RecurrentClassifier

SIGNIFICANT = 0.05


def gradient_scores(model: RecurrentClassifier, ids: Tensor) -> Tensor:
    """|Σ gradient × embedding| for every token of one text; nothing flows through the row."""
    with torch.no_grad():
        row = model(ids, output_attentions=True).cross_attentions[0][0, 0, 0]
    words = model.embedding(ids).detach().requires_grad_()
    states = words
    for layer in model.reading:
        states = layer(states)
    chance = model.classifier(row @ states[0]).softmax(-1)[-1]
    (gradient,) = torch.autograd.grad(chance, words)
    return (gradient * words).sum(-1).abs()[0].detach()


def agreement(first: Tensor, second: Tensor) -> tuple[float, bool]:
    """Kendall's τ of two rows of scores, and whether it is significant."""
    found = kendalltau(first.numpy(), second.numpy())
    return float(found.statistic), bool(found.pvalue < SIGNIFICANT)
