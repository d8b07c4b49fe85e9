"""What a model is made of: its attention sites and layers, and the stacks that they stand in.

``observing.py`` finds them out; nothing is looked up by a model's name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from exhibit_a.errors import BadRequestError
from exhibit_a.numerics.precision import at_least_float32
from exhibit_a.subject.packing import is_packed, side_by_side

ANSWERS = {  # the kinds of answers that models give, in words
    "classes": "a class",
    "outputs": "several numbers that are no distribution",
    "value": "one number",
    "tokens": "a token at every place",
    "token classes": "a class at every place",
    "states": "hidden states",
}

VISION = "vision"  # the stack of a model of text and pictures that holds the picture
NO_PRODUCT = "scores that are no products"  # a variant: keys do not say which maps are possible

Args = tuple[object, ...]  # of a module call
Kwargs = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Site:
    """One place where the model attends."""

    index: int
    layer: int  # within its stack
    call: int  # among all layer calls of the model
    stack: str  # "encoder", "decoder" or "vision"
    kind: str  # "self" or "cross"
    heads: int
    kv_heads: int
    d_head: int
    d_query: int | None
    causal: bool
    window: int | None  # how far back (or around) a query sees, where that is limited
    variants: tuple[str, ...]  # "grouped keys", "soft-cap", "sinks", "position bias", …
    module: str
    projection: str | None
    projection_problem: str | None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer call: the module that was called and the stack it stands in."""

    module: str
    stack: str
    index: int  # within its stack


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What was observed of a model, and how faithfully we can follow it."""

    tap: str
    parity: float  # largest difference between our pass and the model's own eager pass
    tolerance: float  # the difference that rounding explains
    sites: tuple[Site, ...]
    layers: tuple[Layer, ...]
    d_model: int
    answers: str  # one of ANSWERS
    max_length: int | None

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks in the order they run."""
        return tuple(dict.fromkeys(layer.stack for layer in self.layers))

    @property
    def main_stack(self) -> str:
        """The stack that the positions of the input belong to."""
        return main_stack(self.sites)

    @property
    def scorers(self) -> list[tuple[int, int]]:
        """What the softmax tap must know to recognise queries before they meet their keys."""
        return [(site.heads, site.d_query or 0) for site in self.sites]


def check_site(sites: Sequence[Site], site: int, head: int | None = None) -> None:
    """Refuse a site or head that is not there, and say which are."""
    if not 0 <= site < len(sites):
        raise BadRequestError(f"There is no site {site}; this model has 0 to {len(sites) - 1}.")
    if head is not None:
        check_head(site, head, sites[site].heads)


def check_head(site: int, head: int, heads: int) -> None:
    """Refuse a head that a site does not have."""
    if not 0 <= head < heads:
        raise BadRequestError(f"Site {site} has no head {head}; its heads are 0 to {heads - 1}.")


def main_stack(sites: Sequence[Site]) -> str:
    """The stack whose positions are those of the input: the first one that is no vision tower.

    Beside text, a picture comes in twice: as patches of the tower, and as tokens among the others.
    """
    first = next((site for site in sites if not site.stack.startswith(VISION)), None)
    if first is None:
        return VISION
    return "encoder" if first.kind == "cross" else first.stack  # nothing attends in the encoder


def key_stack(site: Site, stacks: Iterable[str]) -> str:
    """The stack whose tokens a site looks at: its own, or the other where attention crosses."""
    if site.kind == "self":
        return site.stack
    return next((stack for stack in stacks if stack != site.stack), site.stack)


def output_weight(model: PreTrainedModel, site: Site) -> Tensor | None:
    """The rows of the output projection that each head hits: (head, d_head, d_model)."""
    if site.projection is None:
        return None
    projection = model.get_submodule(site.projection)
    assert isinstance(projection.weight, Tensor)
    weight = at_least_float32(
        projection.weight
        if type(projection.weight) in (Tensor, Parameter)
        else projection.weight.dequantize()
    )
    weight = weight if isinstance(projection, Conv1D) else weight.T
    if len(weight) == site.d_head:  # heads that are added up meet the same rows
        return weight.detach().expand(site.heads, -1, -1)
    return weight.detach().reshape(site.heads, site.d_head, -1)


def first_hidden(args: Args, kwargs: Kwargs) -> Tensor | None:
    """The hidden states a layer was called with."""
    states = args[0] if args else kwargs.get("hidden_states")
    if isinstance(states, Tensor) and is_packed(args, kwargs):
        return side_by_side(states)
    for value in (*args[:1], kwargs.get("hidden_states"), *args[1:], *kwargs.values()):
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3:
            return value
    return None


def layer_name(site: Site, sites: Sequence[Site]) -> str:
    """The layer of a site: "layer 3", "decoder layer 3, cross"."""
    return place_name(site.stack, site.layer, site.kind, {other.stack for other in sites})


def place_name(stack: str, layer: int, kind: str, stacks: set[str]) -> str:
    """The same from a stack, a layer in it and a kind, where ``stacks`` are all there are.

    >>> place_name("encoder", 3, "self", {"encoder"})
    'layer 3'
    >>> place_name("decoder", 3, "cross", {"encoder", "decoder"})
    'decoder layer 3, cross'
    """
    name = f"{stack} layer {layer}" if len(stacks) > 1 else f"layer {layer}"
    return f"{name}, cross" if kind == "cross" else name


def layer_number(site: Site, sites: Sequence[Site]) -> int | str:
    """The same for a column that is called layer: 3, "decoder 3, cross"."""
    name = layer_name(site, sites).replace("layer ", "")
    return site.layer if name == str(site.layer) else name


def head_name(sites: Sequence[Site], site: int, head: int) -> str:
    """A head: "layer 3, head 9"."""
    return f"{layer_name(sites[site], sites)}, head {head}"


def heads_by_layer(sites: Sequence[Site], heads: Iterable[tuple[int, int]]) -> str:
    """Several heads (site, head): "heads 1 and 9 of layer 3, head 2 of layer 5"."""
    numbers: dict[int, list[int]] = {}
    for site, head in sorted(heads):
        numbers.setdefault(site, []).append(head)
    return ", ".join(
        f"{_counted(numbers[site])} of {layer_name(sites[site], sites)}" for site in numbers
    )


def _counted(heads: list[int]) -> str:
    *first, last = map(str, heads)
    return f"heads {', '.join(first)} and {last}" if first else f"head {last}"
