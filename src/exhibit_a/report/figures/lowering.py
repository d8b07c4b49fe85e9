"""Draws the blocks of a result: charts, grids, maps, stories and trees.

Which block is drawn is the description's choice: its ``Figure``, or else its first block that can
be drawn. The options of a plot follow from the kind of block: a map has ``site`` and ``head``, a
story ``token``, a chart of many places ``count``.
"""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure as Drawn
from torch import Tensor

from exhibit_a.errors import BadRequestError
from exhibit_a.report.blocks import (
    Chart,
    Figure,
    Grid,
    Maps,
    Mode,
    Series,
    Story,
    Tree,
    of_kind,
)
from exhibit_a.report.describe import describe
from exhibit_a.report.describe.heads import curves
from exhibit_a.report.display_units import reading, unit_of
from exhibit_a.report.figures.drawing import (
    LINES,
    MARKERS,
    Canvas,
    Labels,
    Size,
    colour_bar,
    evenly,
    heat_map,
    inner_legend,
    legend,
    literal,
    map_side,
    name_ticks,
    root_scale,
)
from exhibit_a.report.figures.paper import axis_length
from exhibit_a.report.palette import BLUE, GREY, OF_WORD, PALE, SERIES, VERMILION
from exhibit_a.results.result import Result
from exhibit_a.shapes import Options
from exhibit_a.subject.anatomy import check_head
from exhibit_a.trace.units import UnitSpec
from exhibit_a.trials.verdict import WORDS

COMMON = ("ax", "figsize", "cmap", "tokens", "by")
MARK = 0.6  # of the room for a head that the largest mark of a verdict takes
MARKER_OF = dict(zip(WORDS, "sDXo^", strict=True))
GROUP = 0.8  # of the room between two places that the bars of all series take
NAME = 44  # letters of a name next to a lying bar, or of a row of a grid
NAMED = 6  # series of an ordered chart that the legend names
FEW = 20  # points; with fewer, each is marked
WIDEST_TREE = 40  # tokens; of a longer text only those in the tree are shown

Drawable = Figure | Chart | Grid | Maps | Story | Tree


def figure(
    result: Result,
    *,
    ax: Axes | None = None,
    figsize: Size | None = None,
    cmap: str | Colormap | None = None,
    tokens: Labels | None = None,
    by: UnitSpec | None = None,
    **options: object,
) -> Drawn:
    """Draw a result, and give back the figure that it stands in.

    ``ax`` draws into axes of the caller's; a figure of several panels refuses it. ``figsize`` is in
    inches, or "one column" or "two columns" of a paper. ``cmap`` is a colour map or its name.
    ``tokens`` are names to show in place of the tokens: one for each, or such names for each stack,
    or "words" for the tokens without the marks of their tokenizer. ``by`` are the units of the text
    to draw over; without, words where there are any, unless ``tokens`` names the tokens. Other
    options are the figure's.
    """
    if by is None and tokens is not None:
        by = unit_of(result)
    result = reading(result, by)
    kind = type(result).__name__
    description, kinds = describe(result), (Chart, Grid, Maps, Story, Tree)
    plain = [block for block in description if isinstance(block, kinds)]
    block = next(iter([*of_kind(description, Figure), *plain]), None)
    if block is None:
        raise BadRequestError(f"{kind} has no plot. Draw from to_pandas() instead.")
    known = _options_of(block)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise BadRequestError(
            f"The figure of {kind} has no option {unknown[0]!r}; "
            f"choose {', '.join((*COMMON, *known))}."
        )
    canvas = Canvas(kind, ax, figsize, cmap, tokens)
    return canvas.finished(draw(block, canvas, options))


def plot_curves(
    results: Sequence[Any],
    *,
    ax: Axes | None = None,
    figsize: Size | None = None,
    cmap: str | Colormap | None = None,
) -> Drawn:
    """Several pruning curves in one figure: solid where the least important heads go first."""
    canvas = Canvas("PruningCurve", ax, figsize, cmap)
    return canvas.finished(draw(curves(results), canvas, {}))


def _options_of(block: Drawable) -> tuple[str, ...]:
    match block:
        case Figure(panels=panels):
            return tuple(option for panel in panels for option in _options_of(panel))
        case Maps():
            return ("site", "head")
        case Story():
            return ("token",)
        case Chart(most=most) if most is not None:
            return ("count",)
    return ()


def draw(block: Drawable, canvas: Canvas, options: Options) -> Axes:
    """Draw a block on axes of its own."""
    match block:
        case Figure():
            return _side_by_side(block, canvas, options)
        case Maps():
            return _map(block, canvas, options)
        case Tree():
            return _tree(block, canvas)
    of_tokens = getattr(block, "tokens", None) is not None
    lies = isinstance(block, Chart) and not block.upright
    axes = canvas.axes(*_size(block, options), rows=lies or (of_tokens and isinstance(block, Grid)))
    image = _draw_into(axes, block, canvas, options)
    if isinstance(block, Grid) and block.label and not block.words:
        colour_bar(image, axes, block.label)
    _legends([(axes, block)], canvas)
    return axes


def _size(block: Chart | Grid | Story, options: Options) -> tuple[float, float]:
    """Inches that a block takes by itself."""
    if isinstance(block, Grid):
        rows, columns = block.numbers.shape
        if block.tokens is not None:
            return 3.5 + 0.25 * min(columns, 40), 1.6 + min(0.35 * rows, 7)
        cell = max(0.5, 0.09 * max(map(len, block.columns)))
        return 2.8 + min(cell * columns, 8), 1.6 + min(0.35 * rows, 7)
    if isinstance(block, Story):
        return 6.0, 3.6
    count = min(len(block.names), _count(block, options))
    if not block.upright:
        bars = sum(one.mark == "bars" for one in block.series)
        row = 0.2 if block.tokens is not None else 0.15 + 0.14 * bars
        return 6.6, 1.2 + row * count
    if block.tokens is not None:
        return min(max(5.0, 2.0 + 0.16 * count), 10.0), 3.4
    return (4.5, 4.5) if block.notes else (7.0 if block.names else 5.6, 3.4)


def _side_by_side(block: Figure, canvas: Canvas, options: Options) -> Axes:
    """Every panel on axes of its own, with the legends and the colour bar that they share."""
    count = len(block.panels)
    if count == 1:
        return draw(block.panels[0], canvas, options)
    size = block.size or (3.7 * count, 3.4)
    boxes = canvas.panels(count, size, ratios=block.ratios, sharey=block.shared, below=block.below)
    panels = list(zip(boxes, block.panels, strict=True))
    images = [_draw_into(axes, panel, canvas, options) for axes, panel in panels]
    last = block.panels[-1]
    if block.shared and isinstance(last, Grid):
        colour_bar(images[-1], boxes, last.label)
    if block.shared and isinstance(last, Chart):
        for axes in boxes[1:]:
            axes.set_ylabel("")
    _legends(panels, canvas)
    return boxes[0]


def _legends(panels: list[tuple[Axes, Chart | Grid | Story]], canvas: Canvas) -> None:
    """The names of series, where a panel has several, and the signs of verdicts."""
    named = [
        axes
        for axes, panel in panels
        if isinstance(panel, Chart) and not panel.inside
        if len(axes.get_legend_handles_labels()[1]) > 1
    ]
    if named:
        legend(canvas, *named)
    for axes, panel in panels:
        if isinstance(panel, Grid) and panel.words:
            legend(canvas, axes, title=panel.label, title_fontsize="x-small", markerscale=0.7)


def _map(block: Maps, canvas: Canvas, options: Options) -> Axes:
    """The map of one head, next to its other modes where these are differences of each other."""
    site, head = options.get("site"), options.get("head")
    whole = head == "all" and block.additive
    if isinstance(head, str) and not whole:
        wanted = 'a number or "all"' if block.additive else "a number"
        raise BadRequestError(f"head is {wanted}, not {head!r}.")
    weights = block.weights or tuple(
        maps.abs().nan_to_num().sum((1, 2)) for maps in block.modes[0].maps or ()
    )
    if whole:
        weights = tuple(weight.sum(0, keepdim=True) for weight in weights)
    site, head = _choose(weights, site, None if whole else head)
    shown = {mode.name: _shown(mode, block, site, head, whole=whole) for mode in block.modes}
    place = block.sites[site]
    title = f"{place.short}, all heads" if whole else block.map_name(site, head)
    drawn = list(shown) if any(mode.minus for mode in block.modes) else list(shown)[:1]
    limit = max(float(shown[name].nan_to_num().abs().amax()) for name in drawn)
    first = shown[drawn[0]]
    signed = block.modes[0].key != "maps" or bool((first < 0).any())
    queries, keys = place.names
    if len(drawn) == 1:
        boxes = [canvas.axes(map_side(len(keys)) + 2.3, map_side(len(queries)) + 1.5)]
        boxes[0].set_title(title)
    else:
        side = map_side(len(queries), 3.6) + 1.5
        width = len(drawn) * map_side(len(keys), 3.6) + 2.2
        boxes = canvas.panels(len(drawn), (width, side), sharey=True)
        table = block.heads
        if table is not None and block.titled and not callable(table.rows):
            row = table.rows[table.heads.index((site, head))]
            number = next(column.name for column in table.columns if column.key == block.titled)
            title = f"{title}: {number} {row[block.titled]:.3f}"
        boxes[0].figure.suptitle(title, fontsize="large")
    for axes, name in zip(boxes, drawn, strict=True):
        image = heat_map(axes, canvas, shown[name], limit=limit if signed else None)
        axes.set_xlabel("key")
        if len(drawn) > 1:
            axes.set_title(name)
        name_ticks(axes.xaxis, canvas.labels(keys, place.keys))
        name_ticks(axes.yaxis, canvas.labels(queries, place.queries))
    boxes[0].set_ylabel("query")
    colour_bar(image, boxes, block.label or drawn[0])
    return boxes[0]


def _tree(block: Tree, canvas: Canvas) -> Axes:
    """Words along the bottom in reading order, layers upwards, and a line for every edge."""
    tokens, levels = block.tokens, block.levels
    shown = list(range(len(tokens))) if len(tokens) <= WIDEST_TREE else sorted(levels)
    column = {node: place for place, node in enumerate(shown)}
    size = min(max(1.2 + 0.3 * len(shown), 4.0), 10.0), 2.0 + 0.35 * block.layers
    axes = canvas.axes(*size, rows=True)
    for parent, child, thickness in block.drawn:
        ends = [parent, child]
        places, heights = [column[node] for node in ends], [levels[node] for node in ends]
        axes.plot(places, heights, color=BLUE, linewidth=thickness)
    axes.scatter([column[node] for node in levels], list(levels.values()), color=BLUE, zorder=3)
    root = [column[block.root]], [levels[block.root]]
    axes.scatter(*root, color=VERMILION, marker="D", s=70, zorder=4)
    labels = canvas.labels(tokens)
    weights = [float(node in levels) for node in shown]
    name_ticks(axes.xaxis, [labels[node] for node in shown], weights=weights)
    name_ticks(axes.yaxis, [*(f"layer {layer}" for layer in range(block.layers)), "answer"])
    axes.set(xlim=(-0.6, len(shown) - 0.4), ylim=(-0.4, block.layers + 0.4))
    axes.set_title(literal(block.target))
    if len(shown) < len(tokens):
        axes.set_xlabel(f"{len(shown)} of {len(tokens)} tokens: those in the tree")
    return axes


def _draw_into(axes: Axes, block: Chart | Grid | Story, canvas: Canvas, options: Options) -> Any:
    """Draw a panel into axes that are there already; the image, where it is one."""
    match block:
        case Chart():
            return _chart(axes, block, canvas, options)
        case Grid(words=()):
            return _grid(axes, block, canvas)
        case Grid():
            return _verdicts(axes, block)
        case Story():
            return _story(axes, block, canvas, options)


def _chart(axes: Axes, block: Chart, canvas: Canvas, options: Options) -> None:
    """Every series with a colour and a style of its own; bars side by side."""
    count = _count(block, options)
    names = [one.name for one in block.series if not (one.like or one.role)]
    shades = canvas.shades(len(names)) if block.ordered else canvas.series(len(names))
    colours = dict(zip(names, shades, strict=True)) | {
        one.name: PALE for one in block.series if one.role in ("pale", "signed")
    }
    bars = [one for one in block.series if one.mark == "bars" and one.role != "pale"]
    named = evenly(len(block.series), NAMED) if block.ordered else set(range(len(block.series)))
    for number, one in enumerate(block.series):
        label = literal(one.name) if number in named else None
        colour = GREY if one.role == "reference" else colours[one.like or one.name]
        if one.mark == "bars":
            # One bar at each place; a band makes it float.
            shown, width = one.points[:count], GROUP / max(len(bars), 1)
            shift = 0.0 if one not in bars else (bars.index(one) - (len(bars) - 1) / 2) * width
            places = [at + shift for at, _ in shown]
            heights = [value for _, value in shown]
            painted = canvas.by_sign(heights) if one.role == "signed" else colour
            if one.band is not None:
                lows = [low for low, _ in one.band[:count]]
                highs = [high - low for low, high in one.band[:count]]
                axes.bar(places, highs, 0.9, bottom=lows, color=painted, label=label)
            elif block.upright:
                axes.bar(places, heights, width, color=painted, label=label)
            else:
                axes.barh(places, heights, width, color=painted, label=label)
        else:
            _curve(axes, block, one, number, colour, label)
    across, along = (axes.axhline, axes.axvline) if block.upright else (axes.axvline, axes.axhline)
    for line in block.lines:
        rule = across if line.level else along
        style = "--" if line.level else ":"
        rule(line.at, color=GREY, linestyle=style, linewidth=1, label=literal(line.name) or None)
    if bars and any(value < 0 for one in bars for _, value in one.points):
        across(0, color=GREY, linewidth=0.6)
    for at, height, words in block.notes:
        axes.annotate(
            literal(words), (at, height), xytext=(4, 4), textcoords="offset points",
            fontsize="x-small",
        )  # fmt: skip
    x, y = literal(block.x), literal(block.y)
    axes.set(xlabel=x if block.upright else y, ylabel=y if block.upright else x)
    axes.set_title(literal(block.title), fontsize="medium")
    if block.names:
        _name_places(axes, block, canvas, count)
    if block.limits is not None:
        axes.set_ylim(*block.limits)
    if block.scale == "root":
        root_scale(axes)
    if block.scale == "near zero":
        axes.set_yscale("symlog", linthresh=1e-2)
    if block.inside:
        inner_legend(axes)


def _curve(
    axes: Axes, block: Chart, one: Series, number: int, colour: str, label: str | None
) -> None:
    """A line with its band, dots with their error bars, levels, or boxes."""
    places, heights = [at for at, _ in one.points], [value for _, value in one.points]
    marker = MARKERS[number % len(MARKERS)]
    if one.mark == "boxes":
        groups: dict[float, list[float]] = {}
        for at, value in one.points:
            groups.setdefault(at, []).append(value)
        medians = {"color": VERMILION}
        axes.boxplot(list(groups.values()), positions=list(groups), widths=0.6, medianprops=medians)
        return
    if one.mark in ("dots", "levels"):
        if not block.upright:
            places, heights = heights, places
        shape = "_" if one.mark == "levels" else marker
        size = 18 if one.mark == "levels" else 4 if len(places) < 100 else 2
        if one.band is None:
            axes.plot(
                places, heights, shape, color=colour, label=label, markersize=size,
                markeredgewidth=2 if one.mark == "levels" else 1, linestyle="none",
            )  # fmt: skip
            return
        shift = 0.1 * (2 * number - len(block.series) + 1)
        spread = [
            [value - low for value, (low, _) in zip(heights, one.band, strict=True)],
            [high - value for value, (_, high) in zip(heights, one.band, strict=True)],
        ]
        moved = [at + shift for at in places]
        axes.errorbar(moved, heights, spread, fmt=shape, color=colour, label=label)
        return
    several = len(block.series) > len(SERIES)
    style = "--" if one.dashed else LINES[number // len(SERIES) % len(LINES)] if several else "-"
    marked = one.mark == "marked line" and len(places) < FEW
    axes.plot(
        places, heights, color=colour, label=label, linestyle=style,
        marker=marker if marked else None, markersize=4,
        linewidth=3 if one.role == "reference" and not block.notes else 1.5,
    )  # fmt: skip
    if one.band is not None:
        lows, highs = zip(*one.band, strict=True)
        axes.fill_between(places, lows, highs, color=colour, alpha=0.15)


def _name_places(axes: Axes, block: Chart, canvas: Canvas, count: int) -> None:
    """Names at the places 0, 1, 2 …, those with the largest numbers first."""
    names: Sequence[str] = block.names[:count]
    if block.tokens is not None:
        names = canvas.labels(block.names, block.tokens)[:count]
    weights = [0.0] * len(names)
    for one in block.series:
        for at, value in one.points:
            if at < len(weights):
                weights[int(at)] = max(weights[int(at)], abs(value))
    is_word = block.tokens is not None or not block.upright
    shown = weights if is_word else None
    if block.upright:
        name_ticks(axes.xaxis, names, weights=shown)
        if any(one.mark == "bars" for one in block.series):
            axes.set_xlim(-0.7, len(names) - 0.3)
        return
    length = NAME if block.tokens is None else 20
    name_ticks(axes.yaxis, names, weights=shown, length=length)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _grid(axes: Axes, block: Grid, canvas: Canvas) -> Any:
    """A table as colours; with tokens, each row is already relative to its largest number."""
    image = heat_map(axes, canvas, block.numbers, limit=block.limit, linear=True, square=False)
    if block.most is not None:
        image.set_clim(0, block.most)
    names: Sequence[str] = block.columns
    weights = None
    if block.tokens is not None:
        names = canvas.labels(block.columns, block.tokens)
        weights = block.numbers.nan_to_num().abs().amax(0).tolist()
    name_ticks(axes.xaxis, names, weights=weights)
    name_ticks(axes.yaxis, block.rows, length=NAME)
    axes.set_xlabel(block.x)
    axes.set_title(literal(block.title), fontsize="medium")
    return image


def _verdicts(axes: Axes, block: Grid) -> None:
    """A mark for every head, as large as its number and coloured by its word."""
    rows, columns = block.numbers.shape
    largest = float(block.numbers.nan_to_num().amax()) or 1.0
    cell = min(axis_length(axes.xaxis) / columns, axis_length(axes.yaxis) / rows)
    area = (MARK * cell) ** 2
    for word in WORDS:
        heads = [
            (row, column)
            for row, words in enumerate(block.words)
            for column, other in enumerate(words)
            if other == word
        ]
        if heads:
            axes.scatter(
                [column for _, column in heads],
                [row for row, _ in heads],
                s=[area * (0.15 + 0.85 * float(block.numbers[head]) / largest) for head in heads],
                c=OF_WORD[word],
                marker=MARKER_OF[word],
                label=f"{word} ({len(heads)})",
            )
    name_ticks(axes.yaxis, block.rows)
    name_ticks(axes.xaxis, block.columns)
    axes.set(xlabel=block.x, title=literal(block.title))
    axes.set(xlim=(-0.7, columns - 0.3), ylim=(rows - 0.4, -0.6))


def _story(axes: Axes, block: Story, canvas: Canvas, options: Options) -> Any:
    """What is in the vector of one token, layer by layer."""
    token = options.get("token")
    chosen = block.chosen if token is None else token
    if not 0 <= chosen < block.contribution.shape[1]:
        last = block.contribution.shape[1] - 1
        raise BadRequestError(f"There is no token {chosen}; valid are 0 to {last}.")
    shares = block.contribution[:, chosen]
    image = heat_map(axes, canvas, shares, square=False)
    names = canvas.labels(block.source_names, block.sources)
    name_ticks(axes.xaxis, names, weights=shares.amax(0).tolist())
    name_ticks(axes.yaxis, range(len(shares)))
    axes.set_ylabel("layer")
    target = canvas.labels(block.target_names, block.targets)[chosen]
    axes.set_title(f"what is in “{literal(target)}” ({chosen})", fontsize="medium")
    colour_bar(image, axes, "contribution")
    return image


def _shown(mode: Mode, block: Maps, site: int, head: int, *, whole: bool) -> Tensor:
    """The map of one head in one mode, or of all heads of a layer together."""
    if mode.minus is not None:
        by_key = {other.key: other for other in block.modes}
        first, second = (_shown(by_key[key], block, site, head, whole=whole) for key in mode.minus)
        return first - second
    assert mode.maps is not None
    maps = mode.maps[site]
    return maps.sum(0) if whole else maps[head]


def _choose(weights: Sequence[Tensor], site: int | None, head: int | None) -> tuple[int, int]:
    """The site and head that were requested; what is left open goes to the heaviest head.

    A negative site counts from the last.
    """
    sites = range(len(weights))
    if site is not None:
        site = site + len(weights) if -len(weights) <= site < 0 else site
        if site not in sites:
            raise BadRequestError(f"There is no site {site}; this model has 0 to {len(sites) - 1}.")
        sites = range(site, site + 1)
    if head is not None:
        check_head(sites[0], head, max(len(weights[place]) for place in sites))
    heads = [
        (float(weight.nan_to_num()), place, number)
        for place in sites
        for number, weight in enumerate(weights[place])
        if head is None or number == head
    ]
    _, place, number = max(heads, key=lambda known: known[0])
    return place, number


def _count(block: Chart, options: Options) -> int:
    """How many places of a chart are shown."""
    most = options.get("count") or block.most
    return len(block.names) if most is None else int(most)
