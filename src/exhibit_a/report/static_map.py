"""How is a map drawn with its words where no script may run? As one picture that carries both.

The picture is an SVG inside an ``img`` element: the numbers as a small PNG, the words as text
beside and above it. On GitHub, after nbconvert and in a mail nothing has to run to read it, and the
text of ``alt`` names the strongest links for those who see no picture.
"""

import base64
from collections.abc import Iterator, Sequence
from html import escape

import torch
from torch import Tensor

from exhibit_a.control_characters import escape_controls
from exhibit_a.report.picture import data_uri, enlarged, shaded
from exhibit_a.results.result import TOKEN_AXES, Result
from exhibit_a.results.tables import Leaf, leaves
from exhibit_a.subject.anatomy import Site
from exhibit_a.subject.site_names import head_name, layer_name

SIDE = 440  # pixels of a map, about
LARGEST_CELL = 26
LETTERS = 14  # of a label
LETTER, LINE = 6.0, 11  # pixels that a letter and a line of labels take
SMALLEST = 4  # rows and columns from which numbers are better seen as a map
SHOWN = 2  # maps of a result
NAMED = 3  # links that are told in words

Words = Sequence[str]


def labelled_map(scores: Tensor, limit: float, words: tuple[Words, Words], name: str) -> str:
    """A map as an ``img`` element, its rows and columns called by their words.

    >>> weights = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> labelled_map(weights, 1.0, (["a", "film"], ["a", "film"]), "raw")[:63]
    '<img alt="raw: a → a 0.9, film → film 0.8, film → a 0.2" src="d'
    """
    strongest = ", ".join(_strongest(scores, words))
    drawing = base64.b64encode(_drawing(scores, limit, words).encode()).decode()
    alt = escape(f"{name}: {strongest}" if strongest else name)
    return f'<img alt="{alt}" src="data:image/svg+xml;base64,{drawing}">'


def result_maps(result: Result) -> str:
    """The maps of any result that has some: those with the largest entries in sum.

    Empty where a result has no map, for instance a table of heads.
    """
    maps = list(_maps_of(result))
    if not maps:
        return ""
    strength = [float(scores.abs().nan_to_num().sum()) for _, scores, _ in maps]
    first = sorted(range(len(maps)), key=lambda place: -round(strength[place], 4))[:SHOWN]
    shown = [maps[place] for place in first]
    limit = max(float(scores.abs().nan_to_num().amax()) for _, scores, _ in shown)
    cells = (
        f"<td>{labelled_map(scores, limit, words, name)}<br>{escape(name)}</td>"
        for name, scores, words in shown
    )
    more = "" if len(maps) <= SHOWN else f", {SHOWN} of {len(maps)}: the largest in sum"
    return (
        f"<table><caption>each row looks at the columns{more}</caption>"
        f"<tr>{''.join(cells)}</tr></table>"
    )


def _maps_of(result: Result) -> Iterator[tuple[str, Tensor, tuple[Words, Words]]]:
    """Every map of the first field that is not the model's own: its name, numbers and words."""
    known = list(leaves(result))
    fields = [leaf.field for leaf in known if _is_map(leaf)]
    field = next((name for name in fields if name != "raw"), next(iter(fields), None))
    for leaf in known:
        if leaf.field != field or not _is_map(leaf):
            continue
        along = result.tokens_along(leaf)
        sizes = leaf.tensor.shape[-2:]
        rows, columns = (
            along.get(axis) or tuple(map(str, range(size)))
            for axis, size in zip(leaf.dims[-2:], sizes, strict=True)
        )
        flat = leaf.tensor.detach().cpu().double().reshape(-1, *sizes)
        for place, scores in enumerate(flat):
            yield _name(result, leaf, place, len(flat)), scores, (rows, columns)


def _is_map(leaf: Leaf) -> bool:
    """Whether a tensor ends in rows and columns of which at least one is of words."""
    tensor = leaf.tensor
    return (
        tensor.ndim >= 2
        and min(tensor.shape[-2:]) >= SMALLEST
        and any(axis.removesuffix("_2") in TOKEN_AXES for axis in leaf.dims[-2:])
    )


def _name(result: Result, leaf: Leaf, place: int, count: int) -> str:
    """What a map is called: its field, and its layer and head where it has them."""
    field = leaf.field.replace("_", " ")
    sites: tuple[Site, ...] = getattr(result, "sites", ())
    site = leaf.where.get("site")
    if isinstance(site, int) and sites:
        named = head_name(sites, site, place) if count > 1 else layer_name(sites[site], sites)
        return f"{field}, {named}"
    where = [f"{axis} {label}" for axis, label in leaf.where.items()]
    return ", ".join([field, *where, *([f"{leaf.dims[0]} {place}"] if count > 1 else [])])


def _strongest(scores: Tensor, words: tuple[Words, Words]) -> list[str]:
    sizes = scores.detach().cpu().abs().nan_to_num().reshape(-1)
    edges = []
    for flat in sizes.topk(min(NAMED, len(sizes))).indices.tolist():
        row, column = divmod(flat, scores.shape[1])
        names = (words[0][row], words[1][column])
        pair = " → ".join(escape_controls(name, lines=False) for name in names)
        edges.append(f"{pair} {float(scores[row, column]):.2g}")
    return edges


def _drawing(scores: Tensor, limit: float, words: tuple[Words, Words]) -> str:
    rows, columns = scores.shape
    cell = min(max(SIDE // max(rows, columns), 1), LARGEST_CELL)
    names = [[_short(word) for word in side] for side in words]
    left, top = (8 + LETTER * max(map(len, side), default=0) for side in names)
    width, height = left + cell * columns + 2, top + cell * rows + 2
    picture = data_uri(enlarged(shaded(torch.as_tensor(scores), limit), cell))
    step = -(-LINE // cell)  # where cells are smaller than letters, some words stand for all
    beside = [
        f'<text x="{left - 5:.0f}" y="{top + (row + 0.5) * cell + 3.5:.1f}" '
        f'text-anchor="end">{escape(names[0][row])}</text>'
        for row in range(0, rows, step)
    ]
    above = [
        f'<text transform="translate({left + (column + 0.5) * cell + 3.5:.1f} {top - 5:.0f}) '
        f'rotate(-90)">{escape(names[1][column])}</text>'
        for column in range(0, columns, step)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        'font-family="sans-serif" font-size="10.5" fill="#222">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<image href="{picture}" x="{left:.0f}" y="{top:.0f}" '
        f'width="{cell * columns}" height="{cell * rows}"/>'
        f'<rect x="{left - 0.5:.1f}" y="{top - 0.5:.1f}" width="{cell * columns + 1}" '
        f'height="{cell * rows + 1}" fill="none" stroke="#bbb"/>'
        f"{''.join(beside)}{''.join(above)}</svg>"
    )


def _short(word: str) -> str:
    word = escape_controls(word, lines=False).strip()
    return word if len(word) <= LETTERS else f"{word[: LETTERS - 1]}…"
