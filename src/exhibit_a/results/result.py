"""Results: numbers, the names of their axes, their origin, and the checks on them.

Every method returns a frozen dataclass that extends `Result` or, with maps of sites, `SiteResult`.
Its tensor fields say their axes in their annotations, and the tables are read off those
(``tables.py``):

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Effective(Result):
        effective: tuple[Float[Tensor, "head query key"], ...]   # site, head, query, key
        hidden: tuple[Float[Tensor, "token d_model"], ...] = field(metadata={"over": "layer"})
        rate: dict[str, Float[Tensor, " layer"]]                 # name, layer

A tuple or list adds the axis ``site`` in front and a dict adds ``name``, unless the metadata says
what the field is over. An entry may be None. Where shapes may differ between sites, write the axes
as ``"_head _query _key"``: they have the same names, but their sizes are not compared.
"""

from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from exhibit_a.results import tables
from exhibit_a.results.over_units import Rule, over_units
from exhibit_a.results.providers import provider
from exhibit_a.results.tables import Leaf
from exhibit_a.subject.anatomy import Site, key_stack
from exhibit_a.subject.images import Scene
from exhibit_a.subject.provenance import Provenance
from exhibit_a.trace.layout import Layout
from exhibit_a.trace.units import UnitSpec

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

if TYPE_CHECKING:  # fields of one type are often filled from a dict, which is not meant for this
    MaybeScene = Any
else:
    MaybeScene = Scene | None

TOKEN_AXES = ("query", "key", "token", "source", "target")
SHOWN = 400  # characters of one text in a summary

Kind = TypeVar("Kind", bound="Result")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """What every method returns; a subclass adds its numbers as fields.

    ``checks`` says how exact they are (parity, tolerance, gap …), stored and shown with them.
    """

    kinds: ClassVar[dict[str, type["Result"]]] = {}
    unit_rules: ClassVar[dict[str, Rule]] = {}  # of each field over words; none: tokens are shown
    columns: ClassVar[dict[str, str]] = {}  # of ``to_pandas`` where it is no long table, and why
    token_axes: ClassVar[tuple[str, ...]] = TOKEN_AXES
    tokens: tuple[str, ...] | None = None
    provenance: Provenance
    checks: dict[str, Any] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)  # of the tokens in the text, by stack
    scene: MaybeScene = None  # the picture that was looked at

    def __init_subclass__(cls) -> None:
        """Make the class known to `exhibit_a.read`, by its name."""
        Result.kinds[cls.__name__] = cls
        if "__repr__" not in vars(cls):  # else @dataclass makes one, with all the numbers in it
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    def by(self: Kind, units: UnitSpec = "word") -> Kind:
        """The same result over units of the original text, with the same sums.

        Attributions are added up; attention is averaged over the tokens that look and added up
        over those looked at. Special tokens stay units of their own.

        >>> result = xa.companions(xa.capture(subject, "it never drags"), methods=["raw"])["raw"]
        >>> result.tokens
        ('[CLS]', 'it', 'never', 'drag', '##s', '[SEP]')
        >>> result.by("word").tokens
        ('[CLS]', 'it', 'never', 'drags', '[SEP]')
        >>> result.by(["never drags"]).tokens
        ('[CLS]', 'it', 'never drags', '[SEP]')

        Args:
            units: word, sentence, line, passage or message; or spans of characters, (start, stop)
                or (text, start, stop), as a list or by name; or phrases that stand in the text.
        """
        united: Kind = over_units(self, units)
        return united

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the result to one file that `exhibit_a.read` gives back."""
        from exhibit_a.results.store import save

        return save(self, path)

    def html(self, path: str | PathLike[str], *, by: UnitSpec | None = None) -> Path:
        """Write the result as one HTML file that works without a network.

        It is over the words of the text where there are any; ``by`` asks for other units, or for
        tokens ("token").
        """
        page: Path = provider("page")(self, path, by=by)
        return page

    def plot(self, **options: Any) -> "matplotlib.figure.Figure":
        """Draw the result.

        ``ax`` draws into axes of your own (where the figure has one panel), ``figsize`` and
        ``cmap`` are matplotlib's, ``tokens`` replaces the tokens as labels, ``by`` draws over other
        units of the text than words ("token", "sentence" …); some results take more, such as
        ``site`` and ``head``.
        """
        figure: matplotlib.figure.Figure = provider("figure")(self, **options)
        return figure

    def show(self, *, by: UnitSpec | None = None) -> None:
        """Print a summary over words, or over other units of the text, or tokens ("token")."""
        provider("screen")(self, by=by)

    def to_pandas(self) -> "pandas.DataFrame":
        """All tensors as one long table: field, a column per axis, value (docs/tables.md).

        Axes are positions; where a token stands at the position, ``<axis>_token`` names it. Values
        keep their dtype when all fields share it and are float64 otherwise.
        """
        return tables.long_table(self)

    def to_latex(self, *, top: int | None = None) -> str:
        """The table that the command line prints, as LaTeX; ``top`` keeps the first rows."""
        return str(provider("latex")(self, top=top))

    def to_xarray(self) -> "xarray.Dataset":
        """All tensors as variables of one data set, with positions and tokens as coordinates.

        What does not exist, where shapes differ, is NaN; other booleans are 0 and 1.
        """
        return tables.data_set(self)

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """The tokens along each axis of a tensor; override where several sequences are in play."""
        tokens, sizes = self.tokens or (), zip(leaf.dims, leaf.tensor.shape, strict=True)
        return {axis: tokens for axis, n in sizes if axis in TOKEN_AXES and n == len(tokens) > 0}

    def summary(self) -> str:
        """One paragraph of plain text: the method, the model, the tensors and the checks."""
        origin = f"{type(self).__name__}: {self.provenance.method} on {self.provenance.model}"
        if self.scene is not None:
            origin += f", {self.scene}"
        elif self.tokens is not None:
            unit = next((layout.unit for layout in self.layouts.values()), "token")
            origin += f", {len(self.tokens)} {unit}s ({_text(self.tokens)})"
        shapes = {
            leaf.field: f"{leaf.field}[{', '.join(leaf.axes)}]" for leaf in tables.leaves(self)
        }
        checks = [f"{name} {_text(value)}" for name, value in self.checks.items()]
        return (
            f"{origin}. Tensors: {', '.join(shapes.values()) or 'none'}. "
            f"Checks: {', '.join(checks) or 'none'}."
        )

    __repr__ = summary

    def _repr_html_(self) -> str:
        return str(provider("notebook")(self))

    def checks_html(self, pictures: str = "") -> str:
        """What it is of, ``pictures`` of it as HTML, and its checks: no style, no script."""
        source, checks = self.provenance, self.checks.items()
        origin = " · ".join(filter(None, (source.method, source.model, source.revision)))
        written = next((layout.texts for layout in self.layouts.values()), self.tokens or ())
        kind, origin, text = map(escape, (type(self).__name__, origin, _text(written)))
        rows = [f"<tr><th>{escape(n)}</th><td>{escape(_text(v))}</td></tr>" for n, v in checks]
        return (
            f"<div><p><b>{kind}</b> · {origin}</p><p><code>{text}</code></p>{pictures}"
            f"<table><caption>checks</caption>{''.join(rows)}</table></div>"
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SiteResult(Result):
    """A result about the attention sites of one text, whose axes are the tokens of its stacks."""

    sites: tuple[Site, ...]
    sequences: dict[str, tuple[str, ...]]  # the tokens of each stack
    rows: tuple[int, ...] | None = None  # the queries, where not all were requested,
    row_tokens: tuple[str, ...] = ()  # and their tokens; only the stack that answers has any

    def tokens_of(self, site: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens along the queries and along the keys of a site."""
        stack = self.sites[site].stack
        queries = self.sequences[stack]
        if self.rows is not None:
            queries = self.row_tokens if stack == self.sites[-1].stack else ()
        return queries, self.sequences[key_stack(self.sites[site], self.sequences)]

    def tokens_along(self, leaf: Leaf) -> dict[str, tuple[str, ...]]:
        """Queries and keys of a site may be tokens of different stacks."""
        if "site" not in leaf.where:
            return super().tokens_along(leaf)
        named = dict(zip(("query", "key"), self.tokens_of(int(leaf.where["site"])), strict=True))
        return {axis: named[axis] for axis in leaf.dims if axis in named}


def _text(value: object) -> str:
    words = map(str, value) if isinstance(value, tuple) else [str(value)]
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(words)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"
