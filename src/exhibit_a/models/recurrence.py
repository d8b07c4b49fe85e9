"""Recurrent networks: they read token by token, with a state that they carry along.

GRU (Cho et al., 2014)                         LSTM (Hochreiter and Schmidhuber, 1997)
  r = σ(W_r x + U_r s)                           i, f, o = σ(W x + U s), each its own
  z = σ(W_z x + U_z s)                           g = tanh(W_g x + U_g s)
  n = tanh(W_n x + r ∘ U_n s)                    c = f ∘ c + i ∘ g
  s = (1 − z) ∘ n + z ∘ s                        s = o ∘ tanh(c)

The maps W of the tokens are one product for the whole text; only the maps U of the state wait for
the token before. Padding leaves the state as it is, on whichever side it stands.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from exhibit_a.shapes import Hidden

Mask = Bool[Tensor, "batch token"] | None
State = Float[Tensor, "batch state"]
Gates = Float[Tensor, "batch gates"]


def gru(given: Gates, carried: Gates, state: State) -> State:
    """One step of a GRU: ``given`` is W x and ``carried`` is U s, for r, z and n together."""
    (r, z, n), (r_state, z_state, n_state) = given.chunk(3, -1), carried.chunk(3, -1)
    r, z = (r + r_state).sigmoid(), (z + z_state).sigmoid()
    n = (n + r * n_state).tanh()
    return (1 - z) * n + z * state


def lstm(given: Gates, carried: Gates, state: State) -> State:
    """One step of an LSTM; the state holds s and c behind one another."""
    _, c = state.chunk(2, -1)
    i, f, g, o = (given + carried).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return torch.cat([o.sigmoid() * c.tanh(), c], dim=-1)


class Recurrence(nn.Module):
    """One direction of reading; ``cell`` is "gru" or "lstm"."""

    def __init__(self, cell: str, width: int, d_state: int) -> None:
        super().__init__()
        self.step, gates = (gru, 3) if cell == "gru" else (lstm, 4)
        self.parts = 1 if cell == "gru" else 2  # an LSTM carries s and c
        self.d_state = d_state
        self.given = nn.Linear(width, gates * d_state)
        self.carried = nn.Linear(d_state, gates * d_state)

    def forward(
        self, hidden_states: Hidden, real: Mask = None, *, backward: bool = False
    ) -> Float[Tensor, "batch token d_state"]:
        """The state after every token, read from the left or from the right."""
        given = self.given(hidden_states)
        batch, count, _ = given.shape
        state = given.new_zeros(batch, self.parts * self.d_state)
        states: list[Tensor] = [state] * count
        for place in reversed(range(count)) if backward else range(count):
            carried = self.carried(state[:, : self.d_state])
            following = self.step(given[:, place], carried, state)
            if real is not None:
                following = torch.where(real[:, place, None], following, state)
            states[place] = state = following
        return torch.stack(states, dim=1)[..., : self.d_state]


class BidirectionalLayer(nn.Module):
    """h_j = [→h_j ; ←h_j]: what was read up to j from the left, and from the right."""

    def __init__(self, cell: str, d_model: int) -> None:
        super().__init__()
        self.forwards = Recurrence(cell, d_model, d_model // 2)
        self.backwards = Recurrence(cell, d_model, d_model // 2)

    def forward(self, hidden_states: Hidden, real: Mask = None) -> Hidden:
        """The annotation of every token."""
        left = self.forwards(hidden_states, real)
        right = self.backwards(hidden_states, real, backward=True)
        return torch.cat([left, right], dim=-1)
