"""Write the questions into README.md, and every method into docs/methods.md, from the registry.

``make map`` runs it; a test sees that both are what the registry says. In README.md the questions
stand between ``<!-- methods -->`` and ``<!-- /methods -->``: those of ASKED_FIRST, in their order.
The models inside the package stand between ``<!-- models -->`` and ``<!-- /models -->``.
"""

import re
from pathlib import Path

from exhibit_a.embedded.weights import embedded_names
from exhibit_a.methods.source import Declaration, declared

ROOT = Path(__file__).parents[2]
README, PAGE = ROOT / "README.md", ROOT / "docs/methods.md"
BETWEEN = re.compile(r"(<!-- methods -->\n).*?(<!-- /methods -->)", re.S)
MODELS = re.compile(r"(<!-- models -->\n).*?(<!-- /models -->)", re.S)
ASKED_FIRST = (
    *("trial", "pictures", "effective_attention", "attention_identifiability"),
    *("self_attribution", "attribution_tree", "context_attribution", "hidden_attribution"),
    *("head_importance", "permutation_test", "faithfulness"),
)
COMPARED = "| What differs between two texts, models or checkpoints? | `xa.compare` | `exhibit-a compare` |"
ROOMS = ("trials", "identifiability", "mixing", "attribution", "heads", "triggers", "explanation")


def ordered() -> list[Declaration]:
    """Every method that answers with a result, by room, those with a verb first."""
    public = [one for one in declared().values() if not _is_companion(one)]
    return sorted(public, key=lambda one: (ROOMS.index(one.room), one.command is None, one.name))


def companions() -> list[Declaration]:
    """The methods that give a score for each token."""
    return [one for one in declared().values() if _is_companion(one)]


def _is_companion(declaration: Declaration) -> bool:
    import exhibit_a

    return declaration.name not in exhibit_a.__all__


def table(names: tuple[str, ...] | None = None) -> str:
    """One row for each method, or for those named: its question, its function and its verb."""
    known = {one.name: one for one in ordered()}
    rows = ["| question | function | command |", "|---|---|---|"]
    for one in map(known.__getitem__, names or known):
        verb = f"`exhibit-a {one.command}`" if one.command else ""
        rows.append(f"| {one.question} | `xa.{one.name}` | {verb} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    """Every method with what it does."""
    sections = []
    for room in ROOMS:
        entries = [one for one in ordered() if one.room == room]
        lines = [f"* **{one.question}** `xa.{one.name}`: {one.does}" for one in entries]
        sections.append(f"## {room.capitalize()}\n\n" + "\n".join(lines))
    scores = [f"| `{one.name}` | {one.question} | {one.does} |" for one in companions()]
    return (
        "# Methods\n\n*Written by `make map` from the registry; do not edit it by hand.*\n\n"
        f"{table()}{COMPARED}\n\n"
        + "\n\n".join(sections)
        + "\n\n## Scores for tokens\n\nWhat `xa.companions` and `xa.faithfulness` know by name, beside the methods above "
        "that can be read as token scores:\n\n| name | question | what it does |\n|---|---|---|\n"
        + "\n".join(scores)
        + "\n"
    )


def readme() -> str:
    """README.md with the questions and the models of today."""
    asked = f"{table(ASKED_FIRST)}{COMPARED}\n"
    text = BETWEEN.sub(lambda m: m[1] + asked + m[2], README.read_text("utf-8"))
    *cards, last = [
        f"[`{name}`](src/exhibit_a/embedded/{name}/README.md)" for name in embedded_names()
    ]
    inside = f"Inside are small models: {', '.join(cards)} and\n{last}. Their cards say what they are for.\n"
    return MODELS.sub(lambda m: m[1] + inside + m[2], text)


if __name__ == "__main__":
    README.write_text(readme(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
