"""Every claim of the founding documents and what became of it, for docs/claims.md.

Every word is derived from the measurements in docs/data/claims.jsonl and the claims in
``studies/claims.py``.
"""

from collections.abc import Mapping

from claims import CLAIMS, DOCUMENTS, UNMEASURED, WORDS, Claim, Test
from collapse import SHAPES
from study import FILE, Measurement, kept


def parts(known: Mapping[str, Measurement] | None = None) -> dict[str, str]:
    """What stands on the page beside its words."""
    found = kept(FILE) if known is None else known
    numbers = {claim.title: place for place, claim in enumerate(CLAIMS, start=1)}
    sections = []
    for document, title in DOCUMENTS.items():
        claims = [claim for claim in CLAIMS if claim.document == document]
        sections.append(f"## {title}")
        sections += [section(numbers[claim.title], claim, found) for claim in claims]
    return {
        "overview": overview(found),
        "surprises": surprises(found),
        "claims": "\n\n".join(sections),
        "people": people(found),
        "widths": widths(),
        "again": again(),
    }


def overview(known: Mapping[str, Measurement]) -> str:
    """One screen: the claims by their words."""
    lines = ["| word | claims | which |", "|---|---|---|"]
    for word in WORDS:
        these = [
            f"{place}. {claim.title.lower()}"
            for place, claim in enumerate(CLAIMS, start=1)
            if claim.word(known) == word
        ]
        lines.append(f"| **{word}** | {len(these)} | {' · '.join(these) or '–'} |")
    return "\n".join(lines)


MPNET, SMOL = "`all-mpnet-base-v2`", "`SmolLM2-135M-Instruct`"
SURPRISES = (  # what a reader of the documents may not expect, and the measurements it is read from
    (
        (
            "Tokens that are not their own first contributor in the last layer of a model of BERT's size: {}. "
            "The document says about 30 %."
        ),
        f"tokens that are not their own first contributor, last layer, {MPNET}",
    ),
    (
        (
            "Effective weight of a special token over its even share at 512 tokens: {}, where the raw weight is {}. "
            "The rest of it lies in the null space."
        ),
        f"effective weight of a special token at 512 tokens, over its even share, {MPNET}",
        f"weight of a special token at 512 tokens, over its even share, {MPNET}",
    ),
    (
        (
            "Agreement with the words that people marked (AUPRC), effective less raw attention: {}; self-attribution less raw "
            "attention: {}."
        ),
        "agreement with people, effective less raw attention (AUPRC)",
        "agreement with people, self-attribution less raw attention (AUPRC)",
    ),
    (
        (
            "On long reviews, what an answer loses without the first fifth of the words: {} by self-attribution, {} by raw attention; "
            "agreement with the passages that people marked (AUPRC): {} and {}, at random {}. A faithful picture need not be a plausible one."
        ),
        "answer lost without the first fifth of the words, movie rationales, self_attribution",
        "answer lost without the first fifth of the words, movie rationales, raw",
        "agreement with movie rationales, self_attribution (AUPRC)",
        "agreement with movie rationales, raw (AUPRC)",
        "agreement with movie rationales, random (AUPRC)",
    ),
    (
        (
            "Accuracy lost when an example keeps only the two heads of each layer that attribution names: {} on SST-2 (the order knows "
            "the right answer, so accuracy may even rise), {} on RTE."
        ),
        "accuracy lost with only the two first heads of each layer, by attribution (SST-2)",
        "accuracy lost with only the two first heads of each layer, by attribution (RTE)",
    ),
    (
        (
            "Correlation of head importance, MNLI and RTE less MNLI and SST-2: {} by way of MNLI, {} without that way. Likeness of tasks "
            "and of training histories are hard to tell apart."
        ),
        "correlation of head importance, MNLI and RTE less MNLI and SST-2, by attribution",
        "correlation of head importance, MNLI and RTE alone less MNLI and SST-2, by attribution",
    ),
    (
        "Accuracy lost when keys are shuffled in all layers of `sentiment`: {}; the document says six points.",
        "accuracy lost, keys shuffled in all layers",
    ),
    (
        "Processor time of two products instead of four over the usual way, at the width of `sentiment`: {}. It is exact, and slower.",
        "processor time of collapsed heads over the usual ones, 32 tokens, as wide as here",
    ),
)


def surprises(known: Mapping[str, Measurement]) -> str:
    """What came out otherwise than one might think, where it was measured."""
    lines = [
        f"* {said.format(*(f'**{with_interval(known[id])}**' for id in ids))}"
        for said, *ids in SURPRISES
        if all(id in known for id in ids)
    ]
    return "\n".join(["## What surprised", "", *lines])


def section(number: int, claim: Claim, known: Mapping[str, Measurement]) -> str:
    """One claim: what is said, what was found, and how to find it again."""
    lines = [f"### {number}. {claim.title}: *{claim.word(known)}*", "", claim.says]
    lines += ["", f"* Document's number: {claim.number or 'none'}"]
    lines += [f"* {tested(test, known)}" for test in claim.tests]
    if claim.cannot:
        lines.append(f"* {claim.cannot}")
    if claim.note:
        lines.append(f"* {claim.note}")
    rows = [known[test.id] for test in claim.tests if test.id in known]
    for model, data in dict.fromkeys((row.model, row.data) for row in rows):
        lines.append(f"* Model: {model}; data: {data}")
    for command in commands(claim, known):
        lines.append(f"* `{command}`")
    return "\n".join(lines)


def tested(test: Test, known: Mapping[str, Measurement]) -> str:
    """One measurement, what the claim allows, and what it says."""
    if test.id not in known:
        return f"{test.id}: {UNMEASURED}; the claim asks for {test}"
    found = known[test.id]
    return f"{test.id}: **{with_interval(found)}** ({found.count} {found.of}); the claim asks for {test}: {test.outcome(found)}"


def with_interval(found: Measurement) -> str:
    """The value, and its interval where it has one."""
    if found.exact:
        return figure(found.value)
    return f"{figure(found.value)} [{figure(found.interval[0])}, {figure(found.interval[1])}]"


def commands(claim: Claim, known: Mapping[str, Measurement]) -> list[str]:
    """What measured it, or would."""
    used = [known[test.id].command for test in claim.tests if test.id in known]
    return list(dict.fromkeys(used)) or [claim.command]


def figure(number: float) -> str:
    """Three digits are enough."""
    return f"{number:.3g}"


KINDS = {  # of gold, with what stands in the ids of each
    "agreement with people": ("", "words that speak for the label are gold"),
    "agreement with movie rationales": ("movie rationales, ", "words of marked passages are gold"),
}


def people(known: Mapping[str, Measurement]) -> str:
    """Every method beside the words that people marked, where that was measured."""
    title = "## Plausible and faithful\n\n"
    tables = [table for start in KINDS if (table := agreement(start, known))]
    if not tables:
        return f"{title}Which methods name the words that people call good or bad: {UNMEASURED} (`studies/gold.py`)."
    return title + "\n\n".join(tables)


def agreement(start: str, known: Mapping[str, Measurement]) -> str:
    """The methods beside gold of one kind; nothing where that was not measured."""
    end, (beside, gold) = " (AUPRC)", KINDS[start]
    names = [
        name.removeprefix(f"{start}, ").removesuffix(end)
        for name in known
        if name.startswith(f"{start}, ") and name.endswith(end) and " less " not in name
    ]
    if not names:
        return ""
    lines = [
        "| method | AUPRC with people | token F1 at matched size | answer lost without the first fifth of the words |",
        "|---|---|---|---|",
    ]
    for name in sorted(names, key=lambda name: -known[f"{start}, {name}{end}"].value):
        ids = (
            f"{start}, {name}{end}",
            f"{start}, {name} (token F1)",
            f"answer lost without the first fifth of the words, {beside}{name}",
        )
        lines.append(
            f"| {name.replace('_', ' ')} | "
            + " | ".join(with_interval(known[one]) for one in ids)
            + " |"
        )
    one = known[f"{start}, {names[0]}{end}"]
    said = f"{one.count} {one.of} ({one.data}) that {one.model} answers rightly; {gold}. `{one.command}`"
    return said + "\n\n" + "\n".join(lines)


def widths() -> str:
    """Where collapsed heads would save multiplications."""
    lengths = (1, 32, 512, 4096)
    heading = " | ".join("1 token" if tokens == 1 else f"{tokens} tokens" for tokens in lengths)
    lines = [
        f"| attention | {heading} | numbers kept for a token: keys and values, or x |",
        "|---" * 6 + "|",
    ]
    for name, shape in SHAPES.items():
        ratios = " | ".join(f"{shape.ratio(tokens):.2f}" for tokens in lengths)
        lines.append(
            f"| {name}: {shape.width} wide, {shape.heads} × {shape.d_head} | {ratios} | {shape.cached[0]}, {shape.cached[1]} |"
        )
    return f"""## Two products instead of four, by width

With x̃ = [x, 1], a head is softmax(x̃ M x̃ᵀ) x̃ N with M = W̃_Q W̃_Kᵀ/√k and N = W̃_V W_O. That is exact, but M and N are as
wide as the model. Multiplications of collapsed heads over the usual ones, counted (`studies/collapse.py`):

{chr(10).join(lines)}

A head with keys of its own has to be wider than d(d + n)/(2d + n), between half of the model's width d (n small) and all of
it. What can be halved is memory: x alone is kept instead of keys and values, unless heads share those."""


def again() -> str:
    """How a reader checks it."""
    return """## Measure it again

`make claims DATA=FOLDER` runs the cheap studies on smaller samples and says for every number whether the new interval meets
the stored one. `make studies DATA=FOLDER` runs all of them at full size, for hours; each can be stopped and goes on. FOLDER holds SST-2, MNLI-subset, RTE, MRPC, wikitext-2, sst-trees and movie-rationales."""
