"""Verbs about one text that do more than their method: another length, other keys, fewer edges."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from exhibit_a.commands import method_verbs
from exhibit_a.commands.options import AnswerVerb, DataSet, OneText, refuse_together
from exhibit_a.commands.screen import console
from exhibit_a.commands.verb import option
from exhibit_a.progress import progress_bar

if TYPE_CHECKING:
    from exhibit_a.methods.registry import Method
    from exhibit_a.shapes import Options


def _method(name: str) -> "Method":
    from exhibit_a.methods.registry import find

    return find(name)


@dataclass(frozen=True, kw_only=True)
class _OfMethod(OneText, AnswerVerb):
    """What a method says about a text, with options of the verb's own."""

    def run(self) -> None:
        """Answer."""
        registered = _method(self.method)
        self.answer(method_verbs.result(registered, self, **self.changed(registered)))

    def changed(self, registered: "Method") -> "Options":  # noqa: ARG002 - a verb may ask it
        """Options of the method that are not what was given."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Effective(_OfMethod):
    """Show how much of attention can reach the output, and where other attention would do."""

    method: ClassVar[str] = "effective_attention"
    by_length: bool = option(False, help="Growing beginnings of the text instead.")

    def run(self) -> None:
        """Answer."""
        if not self.by_length:
            super().run()
            return
        usual = _method(self.method).options
        changed = {
            f"--{name.replace('_', '-')}": getattr(self, name) != usual[name].default
            for name in ("value_bias", "simplex", "rtol")
        }
        answer = {"--answer": self.reply, "--generate": self.generate, "--messages": self.messages}
        answer["--rows"] = getattr(self, "rows", None)
        refuse_together("--by-length", {"--pair": self.pair} | answer | changed)
        self.answer(method_verbs.result(_method("identifiability_by_length"), self, lengths=None))


@dataclass(frozen=True, kw_only=True)
class Mixing(_OfMethod):
    """Show how much of every token is left in its hidden vector, layer by layer."""

    method: ClassVar[str] = "hidden_attribution"
    exact: bool = option(False, help="All directions instead; slow but exact.")

    def changed(self, registered: "Method") -> "Options":
        """All directions, or as many as the method draws."""
        if not self.exact:
            return {}
        refuse_together("--exact", {"--probes": self.probes != registered.defaults["probes"]})  # type: ignore[attr-defined]
        return {"probes": None}


@dataclass(frozen=True, kw_only=True)
class Attribute(OneText, AnswerVerb):
    """Show the attention edges that the answer rests on."""

    method: ClassVar[str] = "self_attribution"
    top: int = option(12, min=1, help="Edges to show.")

    def run(self) -> None:
        """Answer."""
        self.answer(method_verbs.result(_method(self.method), self), top=self.top)


@dataclass(frozen=True, kw_only=True)
class TreeVerb(OneText, AnswerVerb):
    """Draw the tree of attention edges that lead to the answer."""

    method: ClassVar[str] = "attribution_tree"
    target: str | None = option(
        None, help="Label or token to explain; without, what the model answers."
    )

    def run(self) -> None:
        """Answer."""
        from exhibit_a.methods.attribution.tree import AttributionTree, check_request

        method = _method(self.method)
        options = method_verbs.given(method, self)
        check_request(**{name: options[name] for name in ("threshold", "penalty", "algorithm")})
        tree = method_verbs.result(method, self)
        if not self.json and isinstance(shown := self.shown(tree), AttributionTree):
            console().print(shown.text())
        self.answer(tree)


@dataclass(frozen=True, kw_only=True)
class Adversary(OneText, AnswerVerb):
    """Find attention far from the model's own that gives nearly the same answer."""

    method: ClassVar[str] = "adversarial_attention"
    pair: str | None = option(None, help="The second text; with --keys, its column.")
    keys: Path | None = option(
        None, help="Instead: train adversarial keys on these labelled texts."
    )
    alpha: float = option(0.5, help="With --keys: weight of the answer.")
    limit: int | None = option(None, min=1, help="With --keys: the number of texts.")
    text_column: str | None = option(None, flag="--text", help="With --keys: column of the text.")
    label_column: str | None = option(
        None, flag="--label", help="With --keys: column of the label."
    )

    def run(self) -> None:
        """Answer."""
        from exhibit_a.errors import BadRequestError

        if all(source is None for source in (self.text, self.messages, self.keys)):
            raise BadRequestError("Give either a text, or labelled texts with --keys FILE.")
        if self.keys is not None:
            others = {"a text": self.text, "--messages": self.messages, "--answer": self.reply}
            refuse_together("--keys", others | {"--generate": self.generate})
            method = _method(self.method)
            changed = {
                f"--{method.flags.get(name, name)}": getattr(self, name) != entry.default
                for name, entry in method.options.items()
                if name not in ("target", "seed")
            }
            refuse_together("--keys", changed | {"--truncate": self.truncate})
            keys = _method("adversarial_keys")
            data = DataSet.examples(self, self.keys)  # type: ignore[arg-type]
            with progress_bar(keys.does.rstrip(".")) as bar:
                seed = self.seed  # type: ignore[attr-defined]
                trained = keys.function(
                    self.subject(), data, alpha=self.alpha, seed=seed, progress=bar
                )
            self.answer(trained)
            return
        columns = {"--text": self.text_column, "--label": self.label_column}
        refuse_together("a text", columns | {"--limit": self.limit, "--alpha": self.alpha != 0.5})
        self.answer(method_verbs.result(_method(self.method), self))

    @property
    def data(self) -> Path | None:
        """The labelled texts."""
        return self.keys

    @property
    def pair_column(self) -> str | None:
        """Their second column of text."""
        return self.pair

    @property
    def answer_column(self) -> str | None:
        """They have labels, and no answers."""
        return None
