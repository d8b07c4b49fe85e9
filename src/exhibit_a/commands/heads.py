"""Verbs about heads over a data set: which matter, how many can go, and what can be built on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from exhibit_a.commands.method_verbs import called
from exhibit_a.commands.options import AnswerVerb, DataSet, refuse_together
from exhibit_a.commands.verb import option
from exhibit_a.progress import progress_bar

if TYPE_CHECKING:
    from exhibit_a.examples import Example
    from exhibit_a.subject.subject import Subject

RANKED_ON = 200  # examples that rank the heads, unless another number is given
COMPARED_ON = 200  # examples on which a smaller model is compared


@dataclass(frozen=True, kw_only=True)
class Heads(DataSet, AnswerVerb):
    """Rank the heads of a model by how much the right answers owe to them."""

    method: ClassVar[str] = "head_importance"
    against: Path | None = option(None, help="A second data set: do the same heads matter there?")
    top: int = option(12, min=1, help="Heads to show.")
    limit: int | None = option(RANKED_ON, min=1, help="Only the first texts, up to this number.")

    def run(self) -> None:
        """Answer."""
        subject = self.subject()
        files = [self.data] if self.against is None else [self.data, self.against]
        first, *others = [self.right(subject, file) for file in files]
        importance = called(self, self.method, subject, first)
        if self.against is None:
            self.answer(importance, top=self.top)
            return
        from exhibit_a.methods.heads.importance import head_similarity

        names = names_apart(self.data, self.against)
        other = called(self, self.method, subject, others[0])
        self.answer(head_similarity(importance, other, names=names), top=self.top)


@dataclass(frozen=True, kw_only=True)
class Prune(DataSet, AnswerVerb):
    """Show how accuracy falls as heads go, or make a model without some of them."""

    method: ClassVar[str] = "pruning_curve"
    by: str = option("attribution", help="Measure that ranks the heads.", metavar="MEASURE")
    order: str = option("least", help="Which heads go first.", metavar="least|most")
    scope: str = option(
        "global", help="Over all heads, or the same share of each site.", metavar="global|site"
    )
    rank_on: int = option(RANKED_ON, min=1, help="Examples to rank on; the others are judged.")
    remove: float | None = option(None, min=0, max=1, help="Take this share of heads out for good.")
    save: Path | None = option(None, help="Folder for the smaller model.", writes=True)

    def run(self) -> None:
        """Answer."""
        from exhibit_a.methods.heads.curve import first_heads

        self._check_request()
        subject = self.subject()
        examples = self._examples(subject)
        ranked = examples[: self.rank_on]
        if self.remove is None:
            importance = called(self, "head_importance", subject, ranked)
            self.answer(called(self, self.method, subject, examples, importance))
            return
        count = self._count(subject)
        importance = called(self, "head_importance", subject, ranked)
        gone = first_heads(importance.ranking, count, self.order, self.scope)
        from exhibit_a.methods.heads.curve import measure_pruning
        from exhibit_a.methods.heads.removal import prune
        from exhibit_a.results.files import free_folder, whole_folder
        from exhibit_a.training.train import save_model

        with progress_bar("taking heads out"):
            smaller = prune(subject, gone)
        if self.save is not None:
            with whole_folder(free_folder(self.save)) as folder:
                save_model(folder, smaller.model, smaller.tokenizer)
        with progress_bar("comparing"):
            measured = measure_pruning(subject, smaller, gone, examples[:COMPARED_ON])
        title = f"without {len(gone)} heads" + (f", saved in {self.save}" if self.save else "")
        self.answer(measured, title=title)

    def _check_request(self) -> None:
        from exhibit_a.errors import BadRequestError
        from exhibit_a.methods.heads.curve import check_request
        from exhibit_a.results.files import free_folder

        if self.save is not None and self.remove is None:
            raise BadRequestError("There is nothing to save yet: say with --remove how much goes.")
        if self.remove is not None:
            of_curves = ("fractions", "counts", "overlap")
            refuse_together("--remove", {f"--{name}": getattr(self, name) for name in of_curves})
        check_request(self.order, self.scope)
        if self.save is not None:
            free_folder(self.save)

    def _examples(self, subject: "Subject") -> "list[Example]":
        """The examples, of which enough are there to rank on, and to judge by."""
        from exhibit_a.errors import BadRequestError
        from exhibit_a.examples import fingerprint
        from exhibit_a.examples.labels import require_variety
        from exhibit_a.methods.heads.removal import require_savable

        if self.save is not None:
            require_savable(subject)
        examples = self.labelled(subject)
        require_variety(examples[: self.rank_on], "to rank on")
        ranked = {fingerprint(example) for example in examples[: self.rank_on]}
        others = [example for example in examples if fingerprint(example) not in ranked]
        if self.remove is None and not others:
            raise BadRequestError(
                f"--rank-on {self.rank_on} leaves none of the {len(examples)} examples to judge "
                "by. Give a smaller --rank-on, or more examples."
            )
        if self.remove is None:
            require_variety(others, "to judge by")
        return examples

    def _count(self, subject: "Subject") -> int:
        """How many heads go; none of them is a mistake."""
        from exhibit_a.errors import BadRequestError
        from exhibit_a.methods.heads.curve import first_heads

        sites = subject.anatomy.sites
        heads = [(site.index, head) for site in sites for head in range(site.heads)]
        count = round((self.remove or 0) * len(heads))
        if not first_heads(heads, count, self.order, self.scope):
            raise BadRequestError(
                f"--remove {self.remove:g} of {len(heads)} heads (--scope {self.scope}) is none of "
                "them; ask for a larger share."
            )
        return count


@dataclass(frozen=True, kw_only=True)
class TriggersVerb(DataSet, AnswerVerb):
    """Find pairs of words that single answers rest on, and see whether they turn others."""

    method: ClassVar[str] = "find_triggers"
    victims: Path | None = option(
        None, flag="--attack", help="Labelled texts to put the patterns into."
    )
    count: int = option(3, min=1, help="Patterns for each class.")
    limit: int = option(500, min=1, help="Only the first texts, up to this number.")
    seed: int = option(0, help="Same seed, same numbers.")

    def run(self) -> None:
        """Answer."""
        subject, examples = self.subject(), self.examples()
        victims = None
        if self.victims is not None:
            victims = self.labelled(subject, self.victims, limited=False)
        patterns = called(self, self.method, subject, examples)
        if victims is None:
            self.answer(patterns, top=self.count * len(patterns.labels))
            return
        self.answer(called(self, "attack", subject, victims, patterns))


def names_apart(first: Path, second: Path) -> tuple[str, str]:
    """What two files are called: by their stems, with as many folders as tell them apart."""
    parts = [file.resolve().with_suffix("").parts for file in (first, second)]
    for length in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-length:]) for part in parts]
        if short[0] != short[1]:
            return short[0], short[1]
    return first.name, f"{second.name} (again)"
