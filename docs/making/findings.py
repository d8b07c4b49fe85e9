"""Every claim of the founding documents and what became of it, for docs/claims.md.

Every word is derived from the measurements in docs/data/claims.jsonl and the claims in
``studies/claims.py``.
"""

from collections.abc import Mapping

from claims import CLAIMS, DOCUMENTS, UNMEASURED, Claim, Test
from page_tables import Measurement, ledger, table

Known = Mapping[str, Measurement]


def sections(known: Known | None = None) -> str:
    """The claims of every document."""
    said = []
    for document, title in DOCUMENTS.items():
        said.append(f"## {title}")
        these = [(place, c) for place, c in enumerate(CLAIMS, 1) if c.document == document]
        said += [section(*one, ledger() if known is None else known) for one in these]
    return "\n\n".join(said)


def section(number: int, claim: Claim, known: Known) -> str:
    """One claim: what is said, what was found, and how to find it again."""
    rows = [known[test.id] for test in claim.tests if test.id in known]
    commands = dict.fromkeys(row.command for row in rows) or [claim.command]
    lines = [f"Document's number: {claim.number or 'none'}"]
    lines += [tested(test, known) for test in claim.tests]
    lines += [line for line in (claim.cannot, claim.note) if line]
    lines += dict.fromkeys(f"Model: {row.model}; data: {row.data}" for row in rows)
    lines += [f"`{command}`" for command in commands]
    title = f"### {number}. {claim.title}: *{claim.word(known)}*\n\n{claim.says}\n"
    return "\n".join([title, *(f"* {line}" for line in lines)])


def tested(test: Test, known: Known) -> str:
    """One measurement, what the claim allows, and what it says."""
    if test.id not in known:
        return f"{test.id}: {UNMEASURED}; the claim asks for {test}"
    one = known[test.id]
    found = f"**{with_interval(one)}** ({one.count} {one.of})"
    return f"{test.id}: {found}; the claim asks for {test}: {test.outcome(one)}"


def with_interval(found: Measurement) -> str:
    """The value in three digits, and its interval where it has one."""
    low, high = found.interval
    return f"{found.value:.3g}" + ("" if found.exact else f" [{low:.3g}, {high:.3g}]")


def found() -> dict[str, str]:
    """Every measurement as a sentence has it."""
    return {id: f"**{with_interval(one)}**" for id, one in ledger().items()}


def agreement(start: str, beside: str, gold: str) -> str:
    """The methods beside gold of one kind."""
    end, ids = " (AUPRC)", ledger()
    names = [
        id.removeprefix(f"{start}, ").removesuffix(end)
        for id in sorted(ids, key=lambda id: -ids[id].value)
        if id.startswith(f"{start}, ") and id.endswith(end) and " less " not in id
    ]
    lost = f"answer lost without the first fifth of the words, {beside}"
    body = []
    for name in names:
        of_name = f"{start}, {name}{end}", f"{start}, {name} (token F1)", f"{lost}{name}"
        body.append([name.replace("_", " "), *(with_interval(ids[id]) for id in of_name)])
    one = ids[f"{start}, {names[0]}{end}"]
    said = f"{one.count} {one.of} ({one.data}) that {one.model} answers rightly; {gold}. `{one.command}`"
    head = ["method", "AUPRC with people", "token F1 at matched size"]
    return f"{said}\n\n{table([*head, 'answer lost without the first fifth of the words'], body)}"
