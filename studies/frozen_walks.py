"""What does the answer do when heads of a BERT classifier take their turns, maps frozen?

The game of ``xa.reliance`` once more, written out by hand, for the referee: 160 orders of 72 heads
are 11,680 settings. Two facts make them cheap. With frozen maps nobody needs queries and keys. And
along an order two neighbours differ in one head, so that all layers below it are the same: a layer
is computed once for every setting of the heads up to it (13, 25, … 73 and not 73 each time). In the
last layer only the row is needed that the answer is read from.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from exhibit_a.methods.attribution.head_game import HeadGame


class FrozenWalks:
    """The layers of a BERT classifier, with the maps of one text."""

    def __init__(self, game: HeadGame) -> None:
        model = game.trace.subject.model
        self.model, self.layers = model, model.bert.encoder.layer
        self.own = torch.stack(game.own)  # (layer, head, query, key)
        self.even = torch.stack(game.even)
        self.first: Tensor = game.trace.hidden[0]
        self.target = game.target.index

    @torch.no_grad()
    def margins(self, order: Sequence[int]) -> Tensor:
        """The margin before the first and after every head of an order has turned to its map."""
        layers, heads = self.own.shape[:2]
        turned = torch.zeros(len(order) + 1, layers * heads)
        for step, head in enumerate(order, start=1):
            turned[step:, head] = 1.0
        turned = turned.reshape(-1, layers, heads)
        known = torch.zeros(len(turned), dtype=torch.long)  # the state each setting starts from
        states = self.first[None]
        for number, layer in enumerate(self.layers):
            done = turned[:, : number + 1].sum((1, 2)).long()  # tells settings apart up to here
            fresh = torch.cat([done.new_ones(1), done.diff()]).bool()
            shares = turned[fresh, number][..., None, None]
            maps = torch.lerp(self.even[number], self.own[number], shares)
            last = number + 1 == layers
            states = _layer(layer, states, known[fresh], maps[:, :, :1] if last else maps)
            known = fresh.long().cumsum(0) - 1
        pooled = torch.tanh(self.model.bert.pooler.dense(states[:, 0]))
        logits = self.model.classifier(pooled)[known].double()
        others = torch.cat([logits[:, : self.target], logits[:, self.target + 1 :]], 1)
        return logits[:, self.target] - others.logsumexp(1)

    def shares(self, orders: Sequence[Sequence[int]]) -> Tensor:
        """What every head adds, order by order."""
        added = []
        for order in orders:
            credit = torch.zeros(len(order), dtype=torch.double)
            credit[list(order)] = self.margins(order).diff()
            added.append(credit)
        return torch.stack(added)


def _layer(layer: torch.nn.Module, states: Tensor, start: Tensor, maps: Tensor) -> Tensor:
    """A layer over (state, token, width), each map (copy, head, query, key) on its own state."""
    copies, heads, queries, _ = maps.shape
    values = layer.attention.self.value(states).unflatten(-1, (heads, -1)).transpose(1, 2)
    context = (maps @ values[start]).transpose(1, 2).reshape(copies, queries, -1)
    written = layer.attention.output.dense(context) + states[start][:, :queries]
    middle = layer.attention.output.LayerNorm(written)
    inner = F.gelu(layer.intermediate.dense(middle))
    return layer.output.LayerNorm(layer.output.dense(inner) + middle)
