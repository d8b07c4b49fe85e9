"""Which models have a truth about attention that is known, and what is it?

Every kind is an ordinary tiny transformers model whose weights were set by hand (plus small noise
everywhere), with one input for it; ``planted(kind, seed)`` builds it in a fraction of a second, the
same one for the same seed. Sizes, layers, heads, texts, confidence and noise follow from the seed.
The truth is checked by intervention alone in ``test_planted.py``.

decisive                 one head looks from the query at the item asked for and copies its class
redundant-same-layer     two heads of one layer do so, and the reader is content with either
redundant-across-layers  the same in two layers, neither of which depends on the other
bag-of-words             no queries, no keys: attention is exactly even, the commoner class wins
no-attention             the query brings its answer along; heads look sharply but write nothing
decoy                    beside a worker, a head stares at a marker that has no value
unread                   beside a worker, a head looks at the right item, and nobody reads it
free                     a worker whose values are the class alone: other weights would do as well
misleading               most of the weight lies on a marker without value, the answer comes from
                         an item of weight .1 to .25
random                   random weights of scale 1 to 64, four families: evidence of nothing
induction                causal: a head notes the token before, a second finds and copies: A B …
                         A gives B. The first only steers the second (``through_maps``): in
                         the game of frozen maps it has no effect, so ``heads`` has no word for it
relay                    causal: a head brings the token before, a second copies what it brought:
                         A B … B? gives A. Both carry the answer, with frozen maps too
free-causal              causal: B … B? gives one of two tokens, by a head whose values are one bit
misleading-causal        causal: B … B? gives B, but most of the weight stays on B?, which has
                         no value
cross-copy               encoder–decoder: a cross-attention head copies the token of its own place
"""

import zlib

import torch

from planted import classifiers, copiers, untrained
from planted.truth import Planted

_BUILDERS = {
    "decisive": classifiers.decisive,
    "redundant-same-layer": classifiers.redundant_same_layer,
    "redundant-across-layers": classifiers.redundant_across_layers,
    "bag-of-words": classifiers.bag_of_words,
    "no-attention": classifiers.no_attention,
    "decoy": classifiers.decoy,
    "unread": classifiers.unread,
    "free": classifiers.free,
    "misleading": classifiers.misleading,
    "random": untrained.random,
    "induction": copiers.induction,
    "relay": copiers.relay,
    "free-causal": copiers.free_causal,
    "misleading-causal": copiers.misleading_causal,
    "cross-copy": copiers.cross_copy,
}
KINDS = tuple(_BUILDERS)


def planted(kind: str, seed: int) -> Planted:
    """The model of a kind that belongs to a seed."""
    random = torch.Generator().manual_seed(zlib.crc32(kind.encode()) + seed)
    return _BUILDERS[kind](random, seed)


__all__ = ["KINDS", "Planted", "planted"]
