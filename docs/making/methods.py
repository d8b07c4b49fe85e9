"""Tables of methods from the registry, for README.md and docs/methods.md."""

from page_tables import columns

import exhibit_a
from exhibit_a.embedded.weights import embedded_names
from exhibit_a.methods.source import Declaration, declared

ROOMS = ("trials", "identifiability", "mixing", "attribution", "heads", "triggers", "explanation")
QUESTION = {"question": "{one.question}", "function": "`xa.{one.name}`", "command": "{verb}"}


def ordered() -> dict[str, Declaration]:
    """Every method that answers with a result, by room, those with a verb first."""
    public = [one for name, one in declared().items() if name in exhibit_a.__all__]
    public.sort(key=lambda one: (ROOMS.index(one.room), one.command is None, one.name))
    return {one.name: one for one in public}


def questions(*names: str) -> str:
    """The question, function and verb of methods, by default of all; at last that of comparing."""
    these = [ordered()[name] for name in names or ordered()]
    rows = [{"one": o, "verb": f"`exhibit-a {o.command}`" if o.command else ""} for o in these]
    compared = "What differs between two texts, models or checkpoints?"
    last = f"| {compared} | `xa.compare` | `exhibit-a compare` |"
    return f"{columns(rows, QUESTION)}\n{last}"


def models() -> str:
    """The cards of the models inside."""
    cards = [f"[`{name}`](src/exhibit_a/embedded/{name}/README.md)" for name in embedded_names()]
    return f"{', '.join(cards[:-1])} and\n{cards[-1]}"
