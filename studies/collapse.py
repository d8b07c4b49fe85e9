"""Can the four matrices of a head be made two: W_Q·W_Kᵀ and W_V·W_O?

    python studies/collapse.py --data DATA [--sentences 20]

With x̃ = [x, 1], which carries the biases, a head is

    scores = x̃ M x̃ᵀ,  M = W̃_Q W̃_Kᵀ / √d_k          output = softmax(scores) x̃ N,  N = W̃_V W_O

1. Exact? The embedded ``sentiment`` with every head collapsed, in float32 and float64, beside the
model as it is:
   the largest change of a logit.
2. Cheaper? Multiplications are counted. As usual, states of width d are projected to heads of width
k and back;
   scores and contexts are products over k. M and N are as wide as the model, and the products run
   over d. For a head with keys of its own that is cheaper where k > d (d + n) / (2d + n): between
   half of the width (short texts) and all of it (long ones).
3. With rotary positions (the embedded ``stories``) the scores are x_i W_Q R(j − i) W_Kᵀ x_jᵀ:
another matrix for
   every distance. It is shown that those matrices give the model's scores.

What was found goes into the ledger.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from study import Ledger, parse, sentences, spent
from torch import Tensor, nn

import exhibit_a as xa

REPEATS = 10
DISTANCES = 64  # tokens of a text, for the matrices of rotary positions


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
        return (
            tokens * self.width * (2 * inner + 2 * self.key_heads * self.d_head)
            + 2 * tokens**2 * inner
        )

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


def main() -> None:
    options = parse(__doc__, need=["data"], data=Path, sentences=20)
    exactness(
        sentences(options.data, options.sentences),
        Ledger(options.ledger, "`sentiment`", "SST-2 dev, drawn"),
    )
    counts(Ledger(options.ledger, "counted", "none"))
    rotary(Ledger(options.ledger, "`stories`, layer 0, head 0", "random states"))


@torch.no_grad()
def exactness(texts: list[str], ledger: Ledger) -> None:
    """The largest change of a logit, and the processor time of a layer's attention."""
    subject = xa.load("sentiment")
    batches = [subject.tokenizer(text, return_tensors="pt") for text in texts]
    for dtype in (torch.float64, torch.float32):
        model = copy.deepcopy(subject.model).to(dtype).eval()
        own = torch.cat([model(**batch).logits for batch in batches])
        heads = [collapsed_matrices(layer.attention) for layer in model.bert.encoder.layer]
        other = torch.cat([collapsed_answer(model, heads, batch) for batch in batches])
        name = f"largest change of a logit with collapsed heads, {str(dtype).split('.')[1]}"
        ledger.exact(name, float((own - other).abs().max()), len(texts), "sentences")
    states = torch.randn(1, 32, model.config.hidden_size)
    first = model.bert.encoder.layer[0].attention
    ratios = [
        spent(lambda: collapsed_heads(states, *heads[0]))[0] / spent(lambda: first(states))[0]
        for _ in range(REPEATS)
    ]
    name = "processor time of collapsed heads over the usual ones, 32 tokens, as wide as here"
    ledger.mean(name, ratios, "repeats")


def collapsed_matrices(attention: nn.Module) -> tuple[Tensor, Tensor]:
    """M and N of every head of a layer of BERT: (head, d + 1, d + 1) and (head, d + 1, d)."""
    inner, output = attention.self, attention.output.dense
    heads = inner.num_attention_heads
    query, key, value = (
        torch.cat([linear.weight.T, linear.bias[None]]).unflatten(1, (heads, -1)).transpose(0, 1)
        for linear in (inner.query, inner.key, inner.value)
    )
    back = output.weight.T.unflatten(0, (heads, -1))
    return query @ key.mT / query.shape[-1] ** 0.5, value @ back


def collapsed_heads(states: Tensor, scores: Tensor, outputs: Tensor) -> Tensor:
    """The sum of the heads, before the bias of the output."""
    one = torch.cat([states, states.new_ones(*states.shape[:-1], 1)], -1).unsqueeze(1)
    weights = (one @ scores @ one.mT).softmax(-1)
    return (weights @ (one @ outputs)).sum(1)


def collapsed_answer(
    model: nn.Module, heads: list[tuple[Tensor, Tensor]], batch: dict[str, Tensor]
) -> Tensor:
    """The logits with every head collapsed; one text, so that nothing is masked."""
    states = model.bert.embeddings(batch["input_ids"], batch.get("token_type_ids"))
    for layer, matrices in zip(model.bert.encoder.layer, heads, strict=True):
        after = layer.attention.output
        mixed = collapsed_heads(states, *matrices) + after.dense.bias
        states = after.LayerNorm(mixed + states)
        states = layer.output(layer.intermediate(states), states)
    return model.classifier(model.bert.pooler(states))


def counts(ledger: Ledger) -> None:
    """Where it saves multiplications."""
    for shape, said in (
        ("`sentiment`", "32 tokens, as wide as here"),
        ("one head", "one head as wide as the model"),
        ("SmolLM2-135M, keys shared by 3 heads", "keys shared by three"),
    ):
        name = f"operations of collapsed heads over the usual ones, {said}"
        ledger.exact(name, SHAPES[shape].ratio(32), 32, "tokens")


@torch.no_grad()
def rotary(ledger: Ledger) -> None:
    """How many matrices the scores of one head need, and that those give its scores."""
    model = xa.load("stories").model.double()
    attention, config = model.model.layers[0].self_attn, model.config
    width = config.hidden_size // config.num_attention_heads
    states = torch.randn(DISTANCES, config.hidden_size, dtype=torch.float64)
    query, key = (linear.weight[:width] for linear in (attention.q_proj, attention.k_proj))
    (cosine,), (sine,) = model.model.rotary_emb(states[None], torch.arange(DISTANCES)[None])
    own = turned(states @ query.T, cosine, sine) @ turned(states @ key.T, cosine, sine).T
    unit = torch.eye(width, dtype=torch.float64)
    worst, kinds = 0.0, []
    for back in range(DISTANCES):
        turn = turned(unit, cosine[back], sine[back])  # a query that stands so far behind
        kinds.append(query.T @ turn @ key)
        rows = torch.arange(back, DISTANCES)
        scores = (states[rows] @ kinds[-1] * states[rows - back]).sum(-1)
        worst = max(worst, float((scores - own[rows, rows - back]).abs().max()))
    different = 1 + sum(
        float((one - kinds[0]).norm() / kinds[0].norm()) > 1e-6 for one in kinds[1:]
    )
    name = "matrices that replace one head's W_Q·W_Kᵀ under rotary positions, 64 tokens"
    ledger.exact(name, different, DISTANCES, "tokens")
    name = "largest error of the scores by one matrix for each distance, float64"
    ledger.exact(name, worst, DISTANCES, "tokens")


def turned(vectors: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions, half by half."""
    first, second = vectors.chunk(2, -1)
    return vectors * cosine + torch.cat([-second, first], -1) * sine


if __name__ == "__main__":
    main()
