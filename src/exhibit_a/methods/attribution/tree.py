"""How did the words reach the answer?

The attribution tree (Hao et al., AAAI 2021) reads the contributions of all layers as one picture.
With a^l the contributions of layer l, summed over heads, it looks for edges E that maximise

    Σ_l Σ_(i,j)∈E^l  a^l_ij - λ,     each with  a^l_ij / max a^l > τ,

such that every token enters once, below the token that looked at it, in a lower layer. The token
that took most from the others is the root. If the answer is read at one position (the [CLS] token,
the last word of a language model), that reader is no parent, and in the last layer only the edges
of the reader count.

``greedy`` is the released algorithm for any number of layers: layer by layer downwards, a token
joins as soon as it can, to the first token in reading order that looked at it. A token that joins
in a layer cannot be a parent in that same layer. ``exact`` is the true maximum. Because a token may
enter only once, and an early entry can be worth less itself but opens more edges below, this is a
facility location problem, which no arborescence algorithm solves; a small integer program does.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from torch import Tensor

from exhibit_a.errors import BadRequestError, NotComputableError, require_choice
from exhibit_a.extras import extra
from exhibit_a.methods.attribution.path_integral import WALK
from exhibit_a.methods.attribution.self_attribution import SelfAttribution
from exhibit_a.methods.registry import method
from exhibit_a.results.over_units import units_in_words
from exhibit_a.results.result import Result
from exhibit_a.results.tables import record_table
from exhibit_a.trace.units import UnitSpec, units_of

if TYPE_CHECKING:
    import networkx
    import pandas

Algorithm = Literal["greedy", "exact"]
SECONDS = 20.0  # after which the best tree found so far is taken, and the check says so
TINY = 1e-30

# The palette of report, which methods cannot import; a test compares the two.
BLUE, VERMILION, GREY, BLACK = "#0072b2", "#d55e00", "#999999", "#000000"
STEP, RISE, MARGIN = 64, 34, 70  # of a drawing: per token, per layer, and on the left


@dataclass(frozen=True)
class TreeEdge:
    """In this layer, the child entered the tree below the parent."""

    layer: int
    parent: int
    child: int
    score: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AttributionTree(Result):
    """How the words reached the answer, as edges between the positions of one sequence."""

    columns: ClassVar[dict[str, str]] = {
        "layer": "in which the child entered the tree",
        "parent": "position that looked, nearer to the answer",
        "parent_token": "its token",
        "child": "position that was looked at",
        "child_token": "its token",
        "score": "what the answer owes to the edge",
    }
    root: int
    reader: int | None  # where the answer is read, if at one position
    edges: tuple[TreeEdge, ...]
    objective: float
    layers: int
    target: str

    def by(self, units: UnitSpec = "word") -> "AttributionTree":
        """The same tree over units: one stands where the first of its tokens entered the tree."""
        if not self.layouts:
            return super().by(units)  # which says why there are no words
        (layout,) = self.layouts.values()
        united = units_of(layout, units)
        entered, edges = {united.of[self.root]}, list[TreeEdge]()
        for edge in sorted(self.edges, key=lambda edge: -edge.layer):
            child = united.of[edge.child]
            if child not in entered:
                entered.add(child)
                edges.append(replace(edge, parent=united.of[edge.parent], child=child))
        return replace(
            self,
            tokens=united.layout.names,
            layouts=dict.fromkeys(self.layouts, united.layout),
            root=united.of[self.root],
            reader=None if self.reader is None else united.of[self.reader],
            edges=tuple(edges),
            objective=self.objective
            - sum(edge.score for edge in self.edges)
            + sum(edge.score for edge in edges),
            checks=self.checks | {"units": units_in_words(units, [united])},
        )

    @property
    def nodes(self) -> tuple[int, ...]:
        """The positions in the tree, in the order they entered."""
        return (self.root, *(edge.child for edge in self.edges))

    def children(self, node: int) -> list[TreeEdge]:
        """The edges below a position."""
        return [edge for edge in self.edges if edge.parent == node]

    def text(self, *, layer: str = "layer") -> str:
        """The tree drawn with lines, for a terminal; ``layer`` is what a layer is called."""
        lines = [f"{self._name(self.root)}  → {self.target}"]

        def draw(node: int, indent: str) -> None:
            edges = self.children(node)
            for place, edge in enumerate(edges):
                last = place == len(edges) - 1
                branch = "└─ " if last else "├─ "
                share = f"{layer} {edge.layer}  {edge.score:+.2g}"
                lines.append(f"{indent}{branch}{self._name(edge.child)}  {share}")
                draw(edge.child, indent + ("   " if last else "│  "))

        draw(self.root, "")
        return "\n".join(lines)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row for each edge of the tree."""
        rows = [
            asdict(edge)
            | {"parent_token": self._name(edge.parent), "child_token": self._name(edge.child)}
            for edge in self.edges
        ]
        return record_table(rows, self.columns)

    def to_networkx(self) -> "networkx.DiGraph":
        """The tree as a directed graph; nodes carry their token, edges their layer and score."""
        graph = extra("networkx").DiGraph(target=self.target, root=self.root)
        for node in self.nodes:
            graph.add_node(node, token=self._name(node))
        for edge in self.edges:
            graph.add_edge(edge.parent, edge.child, layer=edge.layer, score=edge.score)
        return graph

    def to_json(self) -> str:
        """The tree as JSON: root, tokens, edges."""
        tree = {
            "target": self.target,
            "root": self.root,
            "reader": self.reader,
            "objective": self.objective,
            "tokens": list(self.tokens or ()),
            "edges": [asdict(edge) for edge in self.edges],
        }
        return json.dumps(tree, ensure_ascii=False, indent=1)

    def svg(self) -> str:
        """The tree as a drawing: words along the bottom in reading order, layers upwards."""
        tokens, levels = self.tokens or (), self.levels()
        foot, width = 20 + RISE * (self.layers + 1), MARGIN + STEP * len(tokens)

        def at(node: int) -> tuple[float, float]:
            return MARGIN + STEP * (node + 0.5), 20 + RISE * (self.layers - levels[node])

        shapes = []
        for level in range(self.layers + 1):
            name = "answer" if level == self.layers else f"layer {level}"
            shapes.append(_word(name, 4, 24 + RISE * (self.layers - level), GREY, "start"))
        for edge in self.edges:
            ends = f"{self._name(edge.parent)} ← {self._name(edge.child)}"
            title = f"{ends}, layer {edge.layer}, {edge.score:+.2g}"
            shapes.append(_line(at(edge.parent), at(edge.child), self.thickness(edge), title))
        for node in self.nodes:
            (x, y), colour = at(node), VERMILION if node == self.root else BLUE
            shapes.append(_line((x, y), (x, foot - 14), 0.5, self._name(node), GREY))
            shapes.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>')
        for node, token in enumerate(tokens):
            colour = BLACK if node in levels else GREY
            shapes.append(_word(token, MARGIN + STEP * (node + 0.5), foot, colour, "middle"))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {foot + 16}" '
            f'width="{width}" height="{foot + 16}" font-family="sans-serif" font-size="12">'
            f"<title>{escape(self.target)}</title>\n" + "\n".join(shapes) + "\n</svg>\n"
        )

    def _name(self, node: int) -> str:
        return (self.tokens or ())[node]

    def levels(self) -> dict[int, int]:
        """How high each position stands: at the layer in which it entered the tree."""
        entered = {edge.child: edge.layer for edge in self.edges}
        return {node: entered.get(node, self.layers) for node in self.nodes}

    def thickness(self, edge: TreeEdge) -> float:
        """How thick the line of an edge is drawn: the largest score as four, none as one."""
        return 1 + 3 * edge.score / max(other.score for other in self.edges)


@method(
    question="How did the words reach the answer?", needs=("target",), cost=WALK, command="tree"
)
def attribution_tree(
    attribution: SelfAttribution,
    *,
    threshold: float = 0.4,
    penalty: float = 0.0,
    algorithm: Algorithm = "greedy",
    stack: str | None = None,
) -> AttributionTree:
    """Read the attributions of all layers as one tree of words.

    Whichever algorithm is requested, the objective of both is in the checks.

    >>> attribution = xa.self_attribution(trace)
    >>> print(xa.attribution_tree(attribution).text())
    gripping  → probability of positive
    ├─ a  layer 4 ...
    └─ [SEP]  layer 4 ...
    >>> len(xa.attribution_tree(attribution, threshold=0.9, algorithm="exact").edges)
    3

    Args:
        attribution: the attributions of one text.
        threshold: the weakest edge that counts, as a share of the strongest of its layer.
        penalty: what every edge costs.
        algorithm: greedy, as released with the paper, or exact, the true maximum.
        stack: encoder or decoder; without, the one that answers.
    """
    check_request(threshold, penalty, algorithm)
    stack = stack or attribution.sites[-1].stack
    sites = [
        site.index for site in attribution.sites if site.stack == stack and site.kind == "self"
    ]
    if not sites:
        stacks = ", ".join(attribution.sequences)
        raise BadRequestError(f"There is no stack {stack!r}; this model has {stacks}.")
    maps = [attribution.scores[site].sum(0) for site in sites]
    # The one position whose row counts in the last layer, if there is one.
    counting = attribution.scores[sites[-1]].abs().sum((0, 2)).nonzero().flatten().tolist()
    reader = counting[0] if len(counting) == 1 else None
    root = _root(maps, reader)
    # The edges above the threshold, from the top layer down, then in reading order.
    edges = []
    for layer in reversed(range(len(maps) - (reader is not None))):
        rows = maps[layer].clone()
        if reader is not None:
            rows[reader] = 0
        above = rows / rows.max().abs().clamp_min(TINY) > threshold
        above.fill_diagonal_(False)
        for parent, child in above.nonzero().tolist():
            edges.append(TreeEdge(layer, parent, child, float(rows[parent, child])))
    optimum, proven = _exact(edges, root, penalty)
    trees = {"greedy": _greedy(edges, root, penalty), "exact": optimum}
    worth = {name: sum(edge.score - penalty for edge in tree) for name, tree in trees.items()}
    used = {"threshold": threshold, "penalty": penalty, "algorithm": algorithm, "stack": stack}
    before = attribution.provenance
    return AttributionTree(
        tokens=attribution.sequences[stack],
        layouts={name: attribution.layouts[name] for name in attribution.layouts if name == stack},
        scene=attribution.scene,
        provenance=replace(
            before, method="attribution_tree", parameters={**before.parameters, **used}
        ),
        checks={
            **attribution.checks,
            "greedy objective": worth["greedy"],
            "exact objective": worth["exact"],
            "greedy share of exact": worth["greedy"] / worth["exact"] if worth["exact"] else 1.0,
            "exact is proven": proven,
            "edges above the threshold": len(edges),
        },
        root=root,
        reader=reader,
        edges=tuple(trees[algorithm]),
        objective=worth[algorithm],
        layers=len(maps),
        target=attribution.target,
    )


def check_request(threshold: float, penalty: float, algorithm: str) -> None:
    """Refuse options that no tree can have; cheap enough to check before anything is attributed."""
    require_choice("algorithm", algorithm, get_args(Algorithm))
    if not 0 <= threshold < 1 or not penalty >= 0:
        raise BadRequestError(
            f"A threshold lies in [0, 1) and a penalty is not negative, unlike {threshold} and "
            f"{penalty}."
        )


def _root(maps: list[Tensor], reader: int | None) -> int:
    """The position that took most from the others, over all layers."""
    total = torch.stack(maps).sum(0)
    total = (total - total.diag().diag()).clamp_min(0).sum(1)
    if reader is not None:
        if len(total) == 1:
            raise NotComputableError("A tree needs a second token besides the one that is read.")
        total[reader] = -1
    return int(total.argmax())


def _greedy(edges: list[TreeEdge], root: int, penalty: float) -> list[TreeEdge]:
    """Let every token enter as high as possible, in reading order."""
    entered, tree = {root: math.inf}, []
    for edge in edges:
        if entered.get(edge.parent, -1) <= edge.layer or edge.child in entered:
            continue
        if edge.score > penalty:
            entered[edge.child] = edge.layer
            tree.append(edge)
    return tree


def _exact(edges: list[TreeEdge], root: int, penalty: float) -> tuple[list[TreeEdge], bool]:
    """The edges of largest worth, and whether they are proven to be.

    One yes-or-no variable for each edge. Each child has at most one parent, and an edge needs
    another one that leads to its parent from above.
    """
    edges = [edge for edge in edges if edge.child != root]
    worth = np.array([edge.score - penalty for edge in edges])
    if not (worth > 0).any():
        return [], True
    above: dict[int, list[int]] = {}  # the edges into a token, as seen so far: all higher
    rows: list[int] = []
    columns: list[int] = []
    signs: list[int] = []
    limits: list[int] = []

    def constrain(terms: list[tuple[int, int]], limit: int) -> None:
        rows.extend([len(limits)] * len(terms))
        columns.extend(column for column, _ in terms)
        signs.extend(sign for _, sign in terms)
        limits.append(limit)

    for column, edge in enumerate(edges):
        if edge.parent != root:
            higher = [c for c in above.get(edge.parent, []) if edges[c].layer > edge.layer]
            constrain([(column, 1), *((c, -1) for c in higher)], 0)
        above.setdefault(edge.child, []).append(column)
    for entering in above.values():
        constrain([(column, 1) for column in entering], 1)
    table = coo_array((signs, (rows, columns)), shape=(len(limits), len(edges)))
    solution = milp(
        -worth,
        constraints=LinearConstraint(table.tocsr(), ub=np.array(limits, dtype=float)),
        integrality=np.ones(len(edges)),
        bounds=Bounds(0, 1),
        options={"time_limit": SECONDS, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return _greedy(edges, root, penalty), False
    return [edges[place] for place in np.flatnonzero(solution.x > 0.5)], solution.status == 0


def _word(text: str, x: float, y: float, colour: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(
    start: tuple[float, float],
    end: tuple[float, float],
    thickness: float,
    title: str,
    colour: str = BLUE,
) -> str:
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" '
        f'stroke-width="{thickness:.1f}"><title>{escape(title)}</title></line>'
    )
