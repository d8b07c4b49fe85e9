"""Write docs/verdict.md from the data files of the study (``studies/verdict.py``).

``make map`` runs it; a test sees that the page is what the files in docs/data give. A part of the
study that has not been run is named as such.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "studies"))

import verdict_words as tally  # noqa: E402
import verdict_words as words  # noqa: E402

from exhibit_a.trials.verdict import CONTESTED, EVIDENCE, MISLEADING, NO_EFFECT, WORDS  # noqa: E402

PAGE, DATA, FIGURES = ROOT / "docs/verdict.md", ROOT / "docs/data", ROOT / "docs/figures"
WANTED = {EVIDENCE: 0.95, CONTESTED: 0.9, MISLEADING: 0.9, NO_EFFECT: 0.95}
ADVICE = ("show", "caution", "do not show")
MISSING = "*Not measured yet.*"
ENOUGH = 100  # sentences, for a tree that is not all luck
TEXTS = (  # what the three screenshots show
    "A short text: the answer rests on where a few heads look, and most maps of it may be shown.",
    "A confident answer that stays when all heads look evenly: no map may be shown.",
    "Praise and blame: many heads carry the answer, and maps of weights tell less than attribution.",
)


def parts() -> dict[str, str]:
    """The sections of the page that numbers decide."""
    rows = words.rows(DATA / "planted.jsonl")
    return {
        "screenshots": screenshots(),
        "thresholds": thresholds(),
        "planted": planted(rows),
        "sentences": sentences(words.rows(DATA / "sentences.jsonl")),
        "language": language(words.rows(DATA / "language.jsonl")),
        "estimators": estimators(
            words.rows(DATA / "reliance.jsonl"), words.rows(DATA / "reliance-planted.jsonl")
        ),
        "passes": passes(words.rows(DATA / "passes.jsonl")),
        "pictures": pictures(),
    }


def table(header: tuple[str, ...], lines: list[tuple[object, ...]]) -> str:
    """A table of the page."""
    rows = [header, ("---",) * len(header), *lines]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


def screenshots() -> str:
    """Three texts as a person who must decide sees them, where they have been taken."""
    taken = [number for number in (1, 2, 3) if (FIGURES / f"verdict-{number}.png").exists()]
    if not taken:
        return ""
    shown = [f"{TEXTS[n - 1]}\n\n![the page of text {n}](figures/verdict-{n}.png)" for n in taken]
    return "## Three texts\n\n" + "\n\n".join(shown)


def thresholds() -> str:
    """Where the lines are drawn, and how much room there is."""
    path = DATA / "calibration.json"
    if not path.exists():
        return f"## Where the lines are drawn\n\n{MISSING}"
    known = json.loads(path.read_text("utf-8"))
    lines = []
    for name, curve in known["curves"].items():
        default, word = getattr(words.LIMITS, name), tally.JUDGED[name]
        low, high = tally.plateau(curve, default, 0.95)
        place = curve["line"].index(default)
        numbers = f"{curve['precision'][place]:.2f}, {curve['recall'][place]:.2f}"
        lines.append((f"`{name}`", f"{default:g}", word, numbers, f"{low:g} to {high:g}"))
    header = ("threshold", "default", "decides", "precision, recall there", "all ≥ .95 from … to")
    nulls = known["nulls"]
    return f"""## Where the lines are drawn

On {known["models"]} planted models with seeds of their own (0 to 19; what is reported below has other
seeds) every threshold was moved while the others stayed. The last column says how far: within it, precision and
recall of the word that the threshold decides, and of *evidence*, all stay at .95 or above.

{table(header, lines)}

![precision and recall against each threshold](figures/verdict-calibration.svg)

Planted heads do much or nothing, so their plateaus are wide; what heads of a real model do by chance narrows them. On
{known["sentences"]} sentences and `sentiment`, {_at(nulls["carries"], 0.05, "real")} of the heads carry (share ≥ .05 of
the margin); were their rows permuted, {_at(nulls["carries"], 0.05, "permuted")} would. Of the heads that carry,
{_at(nulls["points"], 0.5, "real")} point (cosine ≥ .5); with their rows permuted, {_at(nulls["points"], 0.5, "permuted")}.
Where shares have a standard error, the heads that carry are chosen with a false-discovery rate of 5 %
(Benjamini and Hochberg).

Contributions are compared with the *median* key of a row: the mean would credit a key without value with what the others
speak against the answer. {_apart(words.rows(DATA / "planted-calibration.jsonl"))} A row points in its own sense, be that
for or against the answer: the first head of a relay has a decisive row that points, and a second one that speaks against
the answer and points as well. Pointing alone does not tell
rows from rows dealt at random (a sharp row points wherever it looks); that is what coherence is for. Of the heads that
carry, {_at(nulls["coherence"], 0.5, "real")} have a coherence of .5 or more; with their rows permuted,
{_at(nulls["coherence"], 0.5, "permuted")}."""


def _apart(rows: list[dict[str, Any]]) -> str:
    """How far planted evidence and planted misleading heads lie apart."""
    pointing = 5 + words.COLUMNS.index("pointing")
    cosines: dict[str, list[float]] = {EVIDENCE: [], MISLEADING: []}
    for row in rows:
        numbers = {(head[0], head[1]): head[pointing] for head in row["heads"]}
        for site, head, word in row["truth"]:
            if word in cosines:
                cosines[word].append(numbers[site, head])
    return (
        f"On the seeds for calibration the cosine of {len(cosines[MISLEADING])} misleading heads is at most "
        f"{max(cosines[MISLEADING]):.2f}, that of {len(cosines[EVIDENCE])} heads that are evidence at least "
        f"{min(cosines[EVIDENCE]):.2f}."
    )


def _at(null: dict[str, Any], line: float, name: str) -> str:
    return f"{null[name][null['line'].index(line)]:.0%}"


def planted(rows: list[dict[str, Any]]) -> str:
    """How often the words are right where the truth is known."""
    if not rows:
        return f"## Are the words true?\n\n{MISSING}"
    heads, texts = tally.of_heads(rows), tally.of_texts(rows)
    known = [row for row in rows if row["kind"] != "random"]
    untaught = [row for row in rows if row["kind"] == "random"]
    kinds = dict.fromkeys(row["kind"] for row in rows)
    by_kind = [_kind([row for row in rows if row["kind"] == kind], kind) for kind in kinds]
    scores = [
        (
            f"**{word}**",
            *(
                _marked(score(outcomes, word), WANTED[word])
                for outcomes in (heads, texts)
                for score in (tally.precision, tally.recall)
            ),
        )
        for word in WANTED
    ]
    evident = sum(row["word"] == EVIDENCE for row in untaught)
    evident_heads = sum(head[2] == EVIDENCE for row in untaught for head in row["heads"])
    idle, shared = tally.decisive_without_effect(known), tally.shared_heads(known)
    header = ("word", "heads: precision", "heads: recall", "texts: precision", "texts: recall")
    return f"""## Are the words true?

{len(rows)} models whose truth is known, because their weights were set by hand or are random numbers
(`tests/planted`; seeds from 3000, used for nothing else). Each has one text.

{table(header, scores)}

In brackets Wilson's 95 % interval, then how many heads or texts there were. Asked were .95 for *evidence* and *no
effect*, .9 for *contested* and *misleading*; what falls short of that is marked. Precision depends on how many models of
each kind there are; the matrix below has the counts.

* Decisive heads called *no effect*: {idle.right} of {idle.count}.
* Heads that stand in for each other and were said to be shared: {shared.right} of {shared.count}.
* Models with random weights (scale 1 to 64, four families) that got *evidence*: {evident} of {len(untaught)}; of their
  heads: {evident_heads}.

Heads, by what they are (rows) and what they were called (columns):

{_matrix(heads)}

Texts, by kind of model:

{table(("kind", "models", "right word", *WORDS), by_kind)}

{_mistakes(known)}"""


def _kind(rows: list[dict[str, Any]], kind: str) -> tuple[object, ...]:
    given = Counter(row["word"] for row in rows)
    return (kind, len(rows), rows[0]["expected"], *(given[word] or "" for word in WORDS))


def _marked(share: tally.Share, asked: float) -> str:
    return str(share) if share.value >= asked else f"**{share}: too low**"


def _matrix(outcomes: tally.Outcomes) -> str:
    lines = [
        (f"**{right}**", *(outcomes[right, given] or "" for given in WORDS)) for right in WANTED
    ]
    return table(("", *WORDS), lines)


def _mistakes(rows: list[dict[str, Any]]) -> str:
    """Every head with a wrong word, by name."""
    wrong = []
    for row in rows:
        right = {(site, head): word for site, head, word in row["truth"]}
        for site, head, word, _, _, *columns in row["heads"]:
            numbers = dict(zip(words.COLUMNS, columns, strict=True))
            if right.get((site, head), word) != word:
                wrong.append(
                    f"* {row['kind']}, seed {row['seed']}, layer {site}, head {head}: {word} instead of "
                    f"{right[site, head]} (distance {numbers['distance']:.2f}, cosine "
                    f"{numbers['pointing']:.2f}, coherence {numbers['coherence']:.2f})"
                )
    if not wrong:
        return "No head got a wrong word."
    return "Heads with a wrong word:\n\n" + "\n".join(wrong)


def sentences(rows: list[dict[str, Any]]) -> str:
    """What the word for a text follows."""
    title = "## What does the word for a text follow?"
    if not rows:
        return f"{title}\n\n{MISSING}"
    if len(rows) < ENOUGH:
        return f"{title}\n\n{_few(rows)}"
    labels = [row["word"] for row in rows]
    common, count = Counter(labels).most_common(1)[0]
    allowed = max(0.7, count / len(rows) + 0.1)

    trees = json.loads((DATA / "trees.json").read_text("utf-8"))["trees"]
    reached, unseen = trees["confidence, tokens"]
    words_given = ", ".join(f"{word} {n}" for word, n in Counter(labels).most_common())
    heads = sum((Counter(row["heads"]) for row in rows), Counter())
    of_heads = ", ".join(f"{word} {n / heads.total():.0%}" for word, n in heads.most_common())
    named = [row for row in rows if row["set"]]
    return f"""{title}

{len(rows)} sentences of the SST-2 development set, `sentiment`. Words for texts: {words_given}. Words for
heads: {of_heads}. In {len(named)} texts a set of heads was named that takes half of what all heads take; it has
{median(row["set"] for row in named):g} of 72 heads (median), and random sets of as many take
{median(row["random loss"] / row["loss"] for row in named):.0%} of what it takes (median).

The first version's word could be told from the model's confidence and the length of the text. Of all decision trees
of depth 3 (splits at 40 quantiles of every feature) the best one reproduces this part of the words; a tree chosen on nine
tenths of the sentences gets this part of the other tenth right (ten folds):

{table(("features", "right", "right where it has not seen the word"), [(name, f"{seen:.0%}", f"{new:.0%}") for name, (seen, new) in trees.items()])}

The commonest word is *{common}* ({count / len(rows):.0%}), so a tree on confidence and length (`tokens`) may reach
{allowed:.0%}; it reaches {reached:.0%}{"" if reached <= allowed else ", **which is too much**"}, and {unseen:.0%} on
sentences it has not seen. The word is drawn from three
numbers: how far the answer moves when all heads look evenly, how far valid alternatives lie, and where the weights of the
heads lie that carry it; the tree on `whole`, `distance` and `pointing` (means over heads, by share) says how much of the
word these give back, and the last line what eight leaves fit by luck. Length has an honest part in the word: beyond the
width of a head (32 here) weights are no longer the only valid ones."""


def _few(rows: list[dict[str, Any]]) -> str:
    """What can be said of fewer sentences than a tree needs."""
    given = ", ".join(f"{word} {n}" for word, n in Counter(r["word"] for r in rows).most_common())
    return (
        f"*{len(rows)} of 200 sentences have been asked with the rule of today: {given}. What the word follows cannot be "
        "said from so few.*"
    )


def language(rows: list[dict[str, Any]]) -> str:
    """Whether reliance closes on language models, and names the right heads."""
    title = "## Language models"
    if not rows:
        return f"{title}\n\n{MISSING}"
    names = {"stories": "stories15M (36 heads)", "smol135": "SmolLM2-135M-Instruct (270 heads)"}
    lines = []
    for model, name in names.items():
        mine = [row for row in rows if row["model"] == model]
        if not mine:
            continue
        sure = [row for row in mine if row["determined"]]
        named = [row for row in sure if "random" in row]
        good = sum(row["loss"] >= 3 * row["random"] for row in named)
        lines.append(
            (
                name,
                len(mine),
                f"{len(sure)} ({sum(row['gap'] <= 0.05 for row in sure)} with a gap ≤ 5 %)",
                f"{median(row['points'] for row in mine):g}, {max(row['points'] for row in mine)}",
                f"{median(row['set'] for row in named):g}",
                f"{median(row['loss'] / row['random'] for row in named):.1f}",
                f"{good} of {len(sure)}",
            )
        )
    header = (
        "model",
        "prompts",
        "determined",
        "points: median, most",
        "heads in the smallest set (median)",
        "it moves the margin … times as far as 20 random sets (median)",
        "at least 3 times",
    )
    return f"""{title}

Short prompts (`studies/verdict.py`), the margin of the model's own next token. Where the path does not close within 300
points and sampled orders leave too much open, the word is *undetermined*.

{table(header, lines)}"""


def estimators(rows: list[dict[str, Any]], planted_rows: list[dict[str, Any]]) -> str:
    """Which estimator of reliance is the best for its passes."""
    title = "## Which estimator?"
    if not rows:
        return f"{title}\n\n{MISSING}"
    figure = ""
    if (FIGURES / "reliance-estimators.svg").exists():
        figure = "\n\n![error against passes](figures/reliance-estimators.svg)"
    path = [row["path"] for row in rows]
    spent, close = (median(each[name] for each in path) for name in ("passes", "r"))
    return f"""{title}

Medians over sentences of `sentiment` (72 heads); the error is a part of the margin, and the line is that of `carries`. The
truth is the mean of 160 orders (80 opposite pairs), which has a standard error of its own of
{median(row["noise of the truth"] for row in rows):.4f}.

{_estimates(rows, "sentences")}{figure}

The path takes {spent:.0f} passes (median) and reaches a median correlation of {close:.3f} with the truth on {len(rows)}
sentences; {sum(each["same word"] for each in path) / len(path):.0%} of the heads fall on the same side of the line. {_needed(rows, close, spent)}

{_planted_estimates([row for row in planted_rows if "path" in row])}"""


def _estimates(rows: list[dict[str, Any]], texts: str) -> str:
    """How near every estimator comes, and for how many passes."""
    keys = dict.fromkeys(key for row in rows for key in row if isinstance(row[key], dict))
    lines = []
    for key in keys:
        of_key = [row[key] for row in rows if key in row]
        passes, close, error = (
            median(each[name] for each in of_key) for name in ("passes", "r", "error")
        )
        same = sum(each["same word"] for each in of_key) / len(of_key)
        lines.append(
            (key, len(of_key), f"{passes:.0f}", f"{close:.3f}", f"{error:.4f}", f"{same:.0%}")
        )
    header = ("estimator", texts, "passes", "r with the truth", "mean error", "same side")
    return table(header, lines)


def _needed(rows: list[dict[str, Any]], close: float, spent: float) -> str:
    """How many passes orders need to come as near as the path, or to a correlation of .97."""
    asked = min(close, 0.97)
    compared = {key for row in rows for key in row if key.startswith("orders")}
    enough = [
        median(row[key]["passes"] for row in rows if key in row)
        for key in compared
        if median(row[key]["r"] for row in rows if key in row) >= asked
    ]
    if not enough:
        return "No number of orders that was tried reaches that."
    return (
        f"Orders need {min(enough):.0f} passes for a median correlation of {asked:.3f}, "
        f"{min(enough) / spent:.0f} times as many."
    )


def _planted_estimates(rows: list[dict[str, Any]]) -> str:
    """The same on models whose exact shares are known."""
    if not rows:
        return ""
    sure = [row for row in rows if row["determined"]]
    return f"""On {len(rows)} planted models with 6 to 12 heads the truth is exact: all sets of heads are tried, which is what
`xa.reliance` does there. Had it been the path instead, {len(sure)} would have been determined. Budgets beyond the number of
all sets are left out.

{_estimates(rows, "models")}"""


def passes(rows: list[dict[str, Any]]) -> str:
    """What a trial costs, counted."""
    title = "## What a trial costs"
    if not rows:
        return f"{title}\n\n{MISSING}"
    lines = [
        (row["tokens"], f"{row['trial']:g}", row["pictures"], ", ".join(row["left out"]) or "–")
        for row in sorted(rows, key=lambda row: row["tokens"])
    ]
    header = ("tokens", "trial, pictures apart", "pictures", "left out as too much")
    return f"""{title}

Forward passes of `sentiment`, counted in its layers (a pass that begins at the fourth of six layers is half a one); of
pictures, shortened texts. At most 150 and 250 were asked. What a trial takes by processor time stands on the page of
[costs](speed.md#a-trial).

{table(header, lines)}"""


def pictures() -> str:
    """How often each picture is worth showing, where that has been counted."""
    path = DATA / "pictures.json"
    if not path.exists():
        return ""
    known = json.loads(path.read_text("utf-8"))
    lines = []
    for name, entry in known["pictures"].items():
        shares = (f"{entry['advice'][word]['share']:.0%}" for word in ADVICE)
        lines.append((f"`{name}`", *shares, f"{entry['median p']:.2f}", _mean(entry["lost"])))
    following = known["following"]
    difference = following["difference"]
    return f"""## Pictures: may this heat map be shown?

{known["sentences"]} sentences of the SST-2 development set, `sentiment`: how often each picture got each advice, its median
p-value against random orders, and its comprehensiveness (what the answer's probability loses without the first 1, 5, 10,
20 and 50 % of the words; mean and 95 % interval). No ranking could be judged on {known["no ranking can be judged"]:.0%}.

{table(("picture", *ADVICE, "median p", "comprehensiveness"), lines)}

Following the advice: {_mean(following["advised"])}; always showing last-layer attention:
{_mean(following["always last-layer attention"])}; random orders: {_mean(following["random orders"])}. Difference between
the first two: {_mean(difference)}, p = {difference["p"]:.4f} (signs of paired differences flipped). The advice rests on
deletions of the same text: the difference says what is gained by trying pictures before one is shown, not that a picture
is better on other texts."""


def _mean(entry: dict[str, Any]) -> str:
    low, high = entry["interval"]
    return f"{entry['mean']:.3f} [{low:.3f}, {high:.3f}]"
