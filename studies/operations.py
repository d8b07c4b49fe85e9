"""How many multiplications does the attention of a layer take, as usual and with collapsed heads?

As usual, states of width d are projected to heads of width k and back; scores and contexts are
products over k. Collapsed (``collapse.py``), every head has one d × d matrix for its scores and one
for its output, and the products run over d. For a head with keys of its own that is cheaper where
k > d (d + n) / (2d + n): between half of the width (short texts) and all of it (long ones).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """The attention of one layer, in numbers; keys and values may be shared by several heads."""

    width: int
    heads: int
    d_head: int
    key_heads: int

    def usual(self, tokens: int) -> int:
        """Multiplications of four projections and two products."""
        inner = self.heads * self.d_head
        projected = tokens * self.width * (2 * inner + 2 * self.key_heads * self.d_head)
        return projected + 2 * tokens**2 * inner

    def collapsed(self, tokens: int) -> int:
        """Multiplications where every head has one matrix for its scores, one for its output."""
        return 2 * self.heads * (tokens * self.width**2 + tokens**2 * self.width)

    def ratio(self, tokens: int) -> float:
        """Collapsed over usual."""
        return self.collapsed(tokens) / self.usual(tokens)

    def needed_width(self, tokens: int) -> float:
        """How wide a head must be for the collapsed one to be cheaper, with its own keys."""
        return self.width * (self.width + tokens) / (2 * self.width + tokens)

    @property
    def cached(self) -> tuple[int, int]:
        """Numbers kept for each token read so far: keys and values, or the one vector x."""
        return 2 * self.key_heads * self.d_head, self.width


SHAPES = {
    "`sentiment`": Layer(384, 12, 32, 12),
    "BERT-base": Layer(768, 12, 64, 12),
    "SmolLM2-135M, keys shared by 3 heads": Layer(576, 9, 64, 3),
    "two heads": Layer(384, 2, 192, 2),
    "one head": Layer(384, 1, 384, 1),
}
