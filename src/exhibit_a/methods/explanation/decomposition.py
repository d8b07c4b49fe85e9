"""How much of each token is in the output of attention, when vectors count and not weights?

A large weight on a short vector moves little (Kobayashi et al., 2020, 2021). The output of an
attention block is exactly a sum of one vector for each key j, plus what the biases add:

    y_i = Σ_j T_ij + rest_i,   T_ij = g_i(Σ_h α_ij^h f_j^h + [i = j] x_i),   f_j^h = v_j^h W_O^h

with x the residual and g_i(z) = γ ⊙ (z − mean z) / s_i the linear part of the norm that follows
(post-norm layers; in pre-norm layers nothing follows and g is the identity). Where the norm stands
is found by watching a pass: it is the module that consumes residual + projection.

Lengths come from Gram matrices, one for each key: ‖Σ_h α^h f_j^h‖² = αᵀ G_j α with
G_j = (f_j^h · f_j^g). That takes n·H²·d + n²·H² products instead of n²·H·d, and no tensor of
n × n vectors.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from exhibit_a.errors import NotComputableError, UnsupportedModelError
from exhibit_a.numerics.distances import cosine_distance
from exhibit_a.numerics.precision import to_float64
from exhibit_a.subject.anatomy import Args, Kwargs, Site, first_hidden
from exhibit_a.subject.guard import Forward, StopEarly, frozen_eval, here_only, hooked
from exhibit_a.subject.packing import wrap_layers
from exhibit_a.subject.tap import Tap
from exhibit_a.trace import edits
from exhibit_a.trace.answer_rows import one_stack
from exhibit_a.trace.capture import Trace
from exhibit_a.trace.passes import hidden_of_output
from exhibit_a.trace.replay import replay

TOKENS = 4096  # in one pass of copies
AT_ONCE = 2**22  # numbers in a block of decomposed vectors, where vectors themselves are needed

Map = Float[Tensor, "query key"]


@dataclass(frozen=True, eq=False)
class Mixture:
    """The output of one attention block as a sum of one vector for each key."""

    attention: Float[Tensor, "head query key"]
    sources: Float[Tensor, "head key d_model"]  # f, through the norm's γ and centring
    residual: Float[Tensor, "query d_model"]  # likewise; zero where it is left out
    shrink: Float[Tensor, " query"]  # 1 / s
    rest: Float[Tensor, "query d_model"]  # what belongs to no key

    def total(self) -> Float[Tensor, "query d_model"]:
        """The sum of all decomposed vectors and the rest: the output of the block."""
        mixed = torch.einsum("hqk,hkd->qd", self.attention, self.sources)
        return (mixed + self.residual) * self.shrink[:, None] + self.rest

    def norms(self) -> Map:
        """The length of every decomposed vector, through one Gram matrix for each key."""
        vectors = to_float64(self.sources.transpose(0, 1))  # key, head, d_model
        weights = to_float64(self.attention.permute(2, 1, 0))  # key, query, head
        squares = ((weights @ (vectors @ vectors.mT)) * weights).sum(-1).T
        diagonal = self.attention.diagonal(dim1=1, dim2=2)  # head, query
        if len(self.residual) == squares.shape[1]:
            itself = torch.einsum("hq,hqd->qd", diagonal, self.sources)
            added = to_float64(self.residual * (self.residual + 2 * itself)).sum(-1)
            squares = squares + added.diag()
        norms = squares.clamp_min(0).sqrt() * to_float64(self.shrink)[:, None]
        return norms.to(self.attention.dtype).to(self.attention.device)

    def blocks(self) -> Iterator[tuple[slice, Float[Tensor, "row key d_model"]]]:
        """The decomposed vectors themselves, a few queries at a time."""
        _, queries, keys = self.attention.shape
        step = max(1, AT_ONCE // (keys * self.sources.shape[-1]))
        for first in range(0, queries, step):
            rows = slice(first, min(first + step, queries))
            vectors = torch.einsum("hqk,hkd->qkd", self.attention[:, rows], self.sources)
            places = torch.arange(rows.start, rows.stop)
            vectors[torch.arange(len(places)), places] += self.residual[rows]
            yield rows, vectors * self.shrink[rows, None, None]


def mixtures(trace: Trace, *, residual: bool = True) -> list[Mixture]:
    """Every attention block of a trace, taken apart.

    With ``residual`` the residual stream and the norm after it are counted too, as in the second
    paper; without, only what attention itself adds, as in the first.
    """
    sites = one_stack(trace)
    kept = trace.keeping("attention", "values", "hidden")
    blocks = _watch(kept, sites) if residual else [None] * len(sites)
    return [_mixture(kept, site, block) for site, block in zip(sites, blocks, strict=True)]


def norm_maps(trace: Trace, *, residual: bool) -> list[Map]:
    """‖T_ij‖ for every block, every row divided by its sum."""
    return [_shares(mixture.norms()) for mixture in mixtures(trace, residual=residual)]


def alti_maps(trace: Trace) -> list[Map]:
    """How much nearer each decomposed vector brings the output, in the L1 norm, as shares of a row.

    The contribution of key j to row i is max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁) (Ferrando et al., 2022).
    """
    maps = []
    for mixture in mixtures(trace):
        output = mixture.total()[:, None]
        nearer = torch.zeros_like(mixture.attention[0])
        for rows, vectors in mixture.blocks():
            length = output[rows].abs().sum(-1)
            nearer[rows] = length - (output[rows] - vectors).abs().sum(-1)
        maps.append(_shares(nearer.clamp_min(0)))
    return maps


def value_zeroing_maps(trace: Trace) -> list[Map]:
    """How far each position's layer output turns when one key's value is zero, as row shares.

    Only the one layer runs again, for many keys at once (Mohebbi et al., 2023).
    """
    kept = trace.keeping("hidden")
    maps = []
    for site in one_stack(trace):
        plain = hidden_of_output(kept.layer_outputs[site.call])
        keys = plain.shape[1]
        turns = []
        for marks in torch.split(torch.eye(keys, dtype=torch.bool), max(1, TOKENS // keys)):
            edit = edits.zero_values(site.index, marks)
            turned = _layer_output(kept, edit, site.call, len(marks))
            turns.append(cosine_distance(turned, plain))
        maps.append(_shares(torch.cat(turns).T).to(plain.dtype))
    return maps


@dataclass(eq=False)
class _Block:
    """What was seen around one attention block."""

    residual: Tensor
    projected: Tensor
    norm: nn.Module | None = None
    normed: Tensor | None = None
    post_norm: bool = False


@dataclass(eq=False)
class _BlockWatcher:
    """Follows a pass: projections, what consumes residual + projection, and how layers end."""

    sites: tuple[Site, ...]
    names: dict[nn.Module, str]
    entered: list[Tensor | None] = field(default_factory=list)  # states given to running layers
    blocks: list[_Block] = field(default_factory=list)
    open: int = 0  # blocks before this one are closed
    last: Tensor | None = None  # the output of the latest norm

    def enter_layer(self, _: nn.Module, args: Args, kwargs: Kwargs) -> None:
        self.entered.append(first_hidden(args, kwargs))

    def leave_layer(self, _: nn.Module, __: object, output: object) -> None:
        self.entered.pop()
        for block in self.blocks[self.open :]:
            block.post_norm = self.last is not None and _same(self.last, hidden_of_output(output))
        self.open = len(self.blocks)

    def leave_leaf(self, module: nn.Module, args: Args, output: object) -> None:
        if not isinstance(output, Tensor) or not args or not self.entered:
            return
        following = len(self.blocks)
        if following < len(self.sites) and self.names[module] == self.sites[following].projection:
            residual = self.entered[-1]
            if residual is not None and residual.shape == output.shape:
                self.blocks.append(_Block(residual, output))
            return
        states = args[0]
        # A norm has one gain for each channel, and no matrix.
        weights = list(module.parameters(recurse=False))
        if weights and all(weight.ndim == 1 for weight in weights) and isinstance(states, Tensor):
            self.last = output
            for block in self.blocks[self.open :]:
                if block.norm is None and _same(states, block.residual + block.projected):
                    block.norm, block.normed = module, output.reshape(block.residual.shape)


@torch.no_grad()
def _watch(trace: Trace, sites: tuple[Site, ...]) -> list[_Block]:
    """One pass of the model in which the norm after each attention block is observed."""
    model = trace.model
    watcher = _BlockWatcher(sites, {module: name for name, module in model.named_modules()})
    stack = sites[0].stack
    names = [layer.module for layer in trace.layers if layer.stack == stack]
    layers = {name: model.get_submodule(name) for name in names}
    handles: list[RemovableHandle] = []
    with frozen_eval(model), hooked(handles), trace.subject.tapping(Tap()):
        for layer in layers.values():
            handles.append(
                layer.register_forward_pre_hook(here_only(watcher.enter_layer), with_kwargs=True)
            )
            handles.append(layer.register_forward_hook(here_only(watcher.leave_layer)))
            leaves = [module for module in layer.modules() if not any(module.children())]
            handles += [
                leaf.register_forward_hook(here_only(watcher.leave_leaf)) for leaf in leaves
            ]
        model(**trace.inputs)
    blocks = watcher.blocks
    if len(blocks) != len(sites) or any(block.norm is None for block in blocks):
        raise UnsupportedModelError(
            f"In {type(model).__name__} nothing normalises residual + projection right after "
            "attention (parallel branches, a norm in between or a bottleneck), so its blocks "
            "cannot be taken apart. Norms without the residual still can."
        )
    return blocks


def _mixture(trace: Trace, site: Site, block: _Block | None) -> Mixture:
    """One attention block, taken apart; without ``block``, without its residual and norm."""
    weight = trace.output_weight(site.index)
    if weight is None:
        raise UnsupportedModelError(
            f"Site {site.index} has no output projection to follow: {site.projection_problem}."
        )
    attention, values = trace.attention[site.index], trace.values[site.index]
    sources = values @ weight
    bias = getattr(trace.model.get_submodule(site.projection or ""), "bias", None)
    added = torch.zeros_like(sources[0, 0]) if bias is None else bias.detach()
    if block is None or not block.post_norm:
        nothing = torch.zeros_like(attention[0] @ sources[0])
        residual = nothing if block is None else block.residual[0]
        shrink = torch.ones_like(attention[0, :, 0])
        return Mixture(attention, sources, residual, shrink, added.expand_as(residual))
    linear, shrink, shift = _linear_part(block)
    rest = linear(added) * shrink[:, None] + shift
    return Mixture(attention, linear(sources), linear(block.residual[0]), shrink, rest)


def _linear_part(block: _Block) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    """γ ⊙ centring, 1 / s for every position, and β, read off what the norm did."""
    assert block.norm is not None
    assert block.normed is not None
    entered, normed = block.residual[0] + block.projected[0], block.normed[0]
    gain = block.norm.weight
    bias = getattr(block.norm, "bias", None)
    assert isinstance(gain, Tensor)
    shift = torch.zeros_like(gain) if bias is None else bias.detach()

    def centred(states: Tensor) -> Tensor:
        return gain.detach() * (states - states.mean(-1, keepdim=True))

    def not_centred(states: Tensor) -> Tensor:
        return gain.detach() * states

    rounding = max(1e-3, 16 * torch.finfo(normed.dtype).eps)
    for linear in (centred, not_centred):
        mapped = linear(entered)
        shrink = (mapped * (normed - shift)).sum(-1) / mapped.square().sum(-1)
        if torch.allclose(mapped * shrink[:, None] + shift, normed, rtol=rounding, atol=rounding):
            return linear, shrink, shift
    raise NotComputableError(
        f"{type(block.norm).__name__} after attention is no layer norm that can be taken apart."
    )


def _same(first: Tensor, second: Tensor) -> bool:
    if first.numel() != second.numel():
        return False
    folded = first.reshape(second.shape)  # OPT folds batch and token into one axis
    return torch.allclose(folded, second, rtol=1e-4, atol=1e-5)


def _shares(rows: Map) -> Map:
    return rows / rows.sum(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)


@torch.no_grad()
def _layer_output(trace: Trace, edit: edits.Edit, call: int, copies: int) -> Tensor:
    """The output of one layer call with ``edit`` in place; nothing after it is run."""
    outputs: list[Tensor] = []

    def stop(forward: Forward) -> Forward:
        def layer(*args: object, **kwargs: object) -> object:
            outputs.append(hidden_of_output(forward(*args, **kwargs)))
            raise StopEarly

        return layer

    model = trace.model
    modules = [model.get_submodule(trace.layers[call].module)]
    with suppress(StopEarly), frozen_eval(model), wrap_layers(modules, stop):
        replay(trace, edit, start=call, copies=copies)
    return outputs[0]
