"""Tables of methods from the registry, for README.md and docs/methods.md."""

from exhibit_a.embedded.weights import embedded_names
from exhibit_a.methods.source import Declaration, declared

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


def parts() -> dict[str, str]:
    """The table of questions, the methods by room, token scores, and what README shows of them."""
    sections = []
    for room in ROOMS:
        entries = [one for one in ordered() if one.room == room]
        lines = [f"* **{one.question}** `xa.{one.name}`: {one.does}" for one in entries]
        sections.append(f"## {room.capitalize()}\n\n" + "\n".join(lines))
    scores = [f"| `{one.name}` | {one.question} | {one.does} |" for one in companions()]
    *cards, last = [
        f"[`{name}`](src/exhibit_a/embedded/{name}/README.md)" for name in embedded_names()
    ]
    return {
        "all": f"{table()}{COMPARED}",
        "rooms": "\n\n".join(sections),
        "scores": "\n".join(["| name | question | what it does |", "|---|---|---|", *scores]),
        "questions": f"{table(ASKED_FIRST)}{COMPARED}",
        "models": f"Inside are small models: {', '.join(cards)} and\n{last}. Their cards say what "
        "they are for.",
    }
