"""Masks of every kind that a model may have, and attention under them."""

import torch

KINDS = ("all", "padded", "causal", "causal, padded left", "sliding", "local", "prefix", "any")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def mask(kind, n, keys=None, generator=None):
    """Which keys each of ``n`` queries may see."""
    query, key = torch.arange(n)[:, None], torch.arange(keys or n)
    return {
        "all": torch.ones(n, keys or n, dtype=torch.bool),
        "padded": (key < max(1, (keys or n) - 3)).expand(n, -1),
        "causal": query >= key,
        "causal, padded left": (query >= key) & (key >= 2),
        "sliding": (query >= key) & (query - key < 7),
        "local": (query - key).abs() < 5,
        "prefix": (query >= key) | (key < 4),
        "any": torch.rand(n, keys or n, generator=generator) < 0.7,
    }[kind]


def attention_over(visible, heads, generator, dtype=torch.float64):
    """Random attention that gives no weight to what is not visible."""
    scores = torch.randn(heads, *visible.shape, generator=generator, dtype=dtype)
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1).nan_to_num(0)
