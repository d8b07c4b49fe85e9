"""What the founding documents claim, when a measurement bears it out, and whether it can be
measured again.

    python studies/claims.py stored
    python studies/claims.py again --data DATA [--work FOLDER] [--models FOLDER] [--first 3]

``claims.txt`` lists the claims by document: title, wording, the document's number (one that could
not be verified is not repeated), the command that measures it (without one, that of the claim
before), and the tests that decide its word. A test names a measurement and the range that the claim
allows: *yes* where the whole 95 % interval lies in it,
*no* where the whole interval lies outside, *open* where it includes both sides. Tests below
``each`` are put once for every name in the place of EACH. The word then follows, nobody types it:

holds                every test says yes
holds in part        some do
does not hold here   none does, and at least one says no
undecided here       every test is open: the sample is too small
not measured yet     a measurement is missing
cannot be asked here what it takes is not to be had: the claim says why

``stored``  measures nothing: it writes what the numbers that other studies keep in docs/data say
            about the claims. Where a file keeps means with intervals but not the sentences, a
            difference gets the widest interval that the two allow
``again``   runs the cheap studies on small samples into WORK/claims.jsonl, and lays every number
            beside the stored one: it comes out again where the two 95 % intervals meet; a number
            without an interval, where every test of a claim says the same of both. A study that was
            run before, or whose model is not in the folder of models (``make_models.py --bases``
            fills it), is left out. Ends with an error where a number does not
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from study import DOCS, FILE, Ledger, Measurement, kept, parse, rows

HOLDS, IN_PART, NOT_HERE = "holds", "holds in part", "does not hold here"
UNDECIDED, UNMEASURED, CANNOT = "undecided here", "not measured yet", "cannot be asked here"
WORDS = (HOLDS, IN_PART, NOT_HERE, UNDECIDED, UNMEASURED, CANNOT)
YES, NO, OPEN = "yes", "no", "open"
RANGE = re.compile(r"(?:at (least|most)|between (\S+) and) (\S+): (.+)")


@dataclass(frozen=True)
class Test:
    """The range in which a measurement bears a claim out."""

    id: str
    low: float = -math.inf
    high: float = math.inf

    def outcome(self, found: Measurement) -> str:
        """Whether the interval lies inside, outside, or includes both sides."""
        low, high = found.interval
        if self.low <= low and high <= self.high:
            return YES
        return NO if high < self.low or low > self.high else OPEN

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"at most {self.high:g}"
        return (
            f"at least {self.low:g}"
            if math.isinf(self.high)
            else f"between {self.low:g} and {self.high:g}"
        )


def above(name: str, line: float = 0.0) -> Test:
    return Test(name, low=line)


def below(name: str, line: float) -> Test:
    return Test(name, high=line)


def between(name: str, low: float, high: float) -> Test:
    return Test(name, low, high)


@dataclass(frozen=True)
class Claim:
    """A sentence of a document, and what would bear it out here."""

    title: str
    document: str
    says: str
    number: str  # the document's; empty where it gives none
    command: str  # that measures it
    tests: tuple[Test, ...] = ()
    cannot: str = ""  # why it cannot be asked here
    note: str = ""  # what the tests leave out

    def word(self, known: Mapping[str, Measurement]) -> str:
        """The word that the measurements give it."""
        if self.cannot:
            return CANNOT
        if any(test.id not in known for test in self.tests):
            return UNMEASURED
        said = [test.outcome(known[test.id]) for test in self.tests]
        if all(one == YES for one in said):
            return HOLDS
        if YES in said:
            return IN_PART
        return NOT_HERE if NO in said else UNDECIDED


def read_claims(text: str) -> tuple[dict[str, str], tuple[Claim, ...]]:
    """The documents by their short names, and their claims."""
    documents, claims, command = dict[str, str](), list[Claim](), ""
    for block in text.replace("\n  ", " ").split("\n\n"):
        title, *lines = block.splitlines()
        if title.startswith("# "):
            name, _, whole = title[2:].partition(": ")
            documents[name] = whole
            continue
        parts, tests, each = {"number": "", "cannot": "", "note": ""}, list[str](), [""]
        for line in lines[1:]:
            key, _, rest = line.partition(": ")
            if RANGE.match(line):
                tests.append(line)
            elif key == "each":
                each = rest.split()
            elif key == "command":
                command = rest
            else:
                parts[key] = rest
        asked = tuple(test_of(line.replace("EACH", name)) for name in each for line in tests)
        claims.append(
            Claim(title[3:], list(documents)[-1], lines[0], command=command, tests=asked, **parts)
        )
    return documents, tuple(claims)


def test_of(line: str) -> Test:
    """The test that a line of ``claims.txt`` asks for."""
    side, low, limit, name = RANGE.fullmatch(line).groups()
    if low is not None:
        return between(name, float(low), float(limit))
    return above(name, float(limit)) if side == "least" else below(name, float(limit))


DOCUMENTS, CLAIMS = read_claims(Path(__file__).with_name("claims.txt").read_text("utf-8").strip())


# What other studies keep in docs/data

SENTIMENT, REFERENCE = "`sentiment`", "python studies/reference.py"


def stored(options: argparse.Namespace) -> None:
    """Write what claims rest on; a file that is not there yet is passed over."""
    for read in (heat_maps, sentences, complexity, translators, keys_and_heads, first_layer):
        read(options.ledger)


def heat_maps(path: Path) -> None:
    """Whether words that a heat map names take more of the answer with them."""
    if not (DOCS / "heat-maps.json").exists():
        return
    known = json.loads((DOCS / "heat-maps.json").read_text("utf-8"))
    count, command = (
        known["sentences"],
        "python studies/heat_maps.py --data DATA/SST-2 --out docs/data",
    )
    ledger = Ledger(path, SENTIMENT, "SST-2 dev", command)
    lost = {name: entry["lost"] for name, entry in known["heat_maps"].items()}
    lost["random"] = known["following"]["random orders"]
    for first, second, said in (
        ("self_attribution", "raw", "self-attribution less raw attention"),
        ("effective", "raw", "effective less raw attention"),
        ("raw", "random", "raw attention less random orders"),
        ("reliance", "raw", "reliance less raw attention"),
    ):
        one, other = lost[first], lost[second]
        widest = (
            one["interval"][0] - other["interval"][1],
            one["interval"][1] - other["interval"][0],
        )
        title = f"answer lost without the words that are named first, {said}"
        ledger.write(title, one["mean"] - other["mean"], widest, count, "sentences")
    shown = known["heat_maps"]["raw"]["advice"]["show"]
    title = "texts on which the picture of last-layer attention clearly beats chance"
    ledger.write(title, shown["share"], shown["interval"], count, "sentences")


def sentences(path: Path) -> None:
    """What is left of an answer when attention is shuffled or uniform."""
    if found := rows(DOCS / "sentences.jsonl"):
        ledger = Ledger(
            path, SENTIMENT, "SST-2 dev, drawn", "python studies/verdict.py sentences --data DATA"
        )
        turned = sum(row["permuted"] > 1 for row in found)  # of the margin: more than all of it
        ledger.share(
            "answers that turn when every row of every head is shuffled", turned, len(found)
        )
        title = "part of the margin that is lost when every head looks evenly"
        ledger.mean(title, (row["whole"] for row in found))


def complexity(path: Path) -> None:
    """Operations and processor time of looking and projecting, as texts become longer."""
    found = {row["tokens"]: row for row in rows(DOCS / "reference-complexity.jsonl")}
    if not found:
        return
    ledger = Ledger(path, "one layer, random weights", "none", f"{REFERENCE} complexity")
    for name in ("looking", "projecting"):
        growth = found[512][name]["operations"] / found[256][name]["operations"]
        ledger.exact(f"growth of {name} when the text doubles, operations", growth, 512, "tokens")
    for tokens, said in (
        (64, "text half as long as the width"),
        (1024, "text eight times the width"),
    ):
        ratio = found[tokens]["looking"]["seconds"] / found[tokens]["projecting"]["seconds"]
        ledger.exact(f"looking over projecting, processor time, {said}", ratio, tokens, "tokens")


def translators(path: Path) -> None:
    """Whether the Transformer is ahead of the recurrent translator: paired bootstrap over
    sentences."""
    found = {row["key"]: row for row in rows(DOCS / "reference-bleu.jsonl")}
    if row := found.get("transformer and additive"):
        command = f"{REFERENCE} bleu --data DATA --work WORK"
        ledger = Ledger(path, "both trained on Multi30k", "Multi30k test 2016", command)
        title = "BLEU of the Transformer less that of the recurrent translator, Multi30k"
        ahead, count = (
            row["scores"][0] - row["scores"][1],
            len(found["transformer"]["translations"]),
        )
        ledger.write(title, ahead, row["difference"]["interval"], count, "sentences")


def keys_and_heads(path: Path, narrow: int = 4, wide: int = 64) -> None:
    """Accuracy of heads added or side by side, and of narrow keys, over seeds."""
    found = rows(DOCS / "reference-identifiable.jsonl")
    by = {(row["heads"], row["d_key"], row["seed"]): row["accuracy"] for row in found}
    ledger = Ledger(
        path, "encoders from nothing", "SST-2", f"{REFERENCE} identifiable --data DATA --work WORK"
    )
    added = [by["add", key, seed] - by["con", key, seed] for way, key, seed in by if way == "con"]
    less = [by[way, narrow, seed] - by[way, wide, seed] for way, key, seed in by if key == wide]
    if by:
        ledger.mean("accuracy of added less concatenated heads", added, "models")
        ledger.mean("accuracy of keys of width 4 less width 64", less, "models")


def first_layer(path: Path) -> None:
    """Whether only the first layer's attention matters, in a model such as the poster's."""
    found = {row["key"]: row for row in rows(DOCS / "reference-poster.jsonl")}
    if "softmax: losses" not in found:
        return
    lost, count = found["softmax: losses"]["losses"], found["softmax: losses"]["examples"]
    command = f"{REFERENCE} poster --data DATA --work WORK"
    ledger = Ledger(path, "the poster's Transformer, from nothing", "SST-2", command)
    first, *later = (name for name in lost if not name.startswith("all"))
    for name, title in (
        (first, "accuracy lost, weights shuffled in the first layer, the poster's model"),
        (
            max(later, key=lambda name: lost[name][0]),
            "largest loss of accuracy, one later layer shuffled, the poster's model",
        ),
    ):
        value, *ends = lost[name]
        ledger.write(title, value, ends, count, "sentences")


# Again

KEPT = "--docs WORK/docs"  # small samples must not replace what pages are made of
MPNET = "--base MODELS/all-mpnet-base-v2"
EXPLANATION = "explanation --data SST --out WORK/explanation"
STUDIES = (
    "claims stored",
    "collapse --data DATA --sentences 10",
    f"mixing --base sentiment --data SST --sentences 12 --probes 8 --parts mixing {KEPT}",
    f"mixing --base sentiment --data SST --texts 300 --maps linear --parts tokens {KEPT}",
    f"mixing --base sentiment --data SST --sentences 60 --probes 4 --parts heads {KEPT}",
    f"tasks train --data DATA --work WORK/tasks --tasks SST-2 MNLI {KEPT}",
    f"tasks effectiveness --data DATA --work WORK/tasks --tasks SST-2 --ranked 30 {KEPT}",
    f"identifiability {MPNET} --data DATA --texts 2 --longest 512 --parts length {KEPT}",
    f"mixing {MPNET} --data SST --sentences 4 --probes 4 --parts mixing {KEPT}",
    f"causal --base MODELS/SmolLM2-135M-Instruct --data DATA --texts 2 --probes 4 {KEPT}",
    "edges --data DATA --sentences 12 --out WORK/edges.jsonl",
    f"{EXPLANATION} --sentences 100 --shuffles keys --parts permutation report",
    f"{EXPLANATION} --sentences 25 --by raw --parts faithfulness report",
    f"identifiability --base sentiment --data DATA --texts 4 --counted 2 {KEPT}",
    "gold --data DATA --sentences 40 --out WORK/gold.jsonl",
    f"{EXPLANATION} --sentences 4 --parts adversary report",
)


def again(options: argparse.Namespace) -> None:
    """Run what was not run yet, and compare."""
    if options.data is None:
        sys.exit("error: give --data")
    options.models = options.models or options.work / "models"
    options.work.mkdir(parents=True, exist_ok=True)
    new, marks = options.work / "claims.jsonl", options.work / "done.txt"
    for study in STUDIES[: options.first]:
        if marks.exists() and study in marks.read_text().splitlines():
            continue
        if missing := absent_model(study, options.models):
            print(f"left out, for there is no {missing}: {study}")
            continue
        run(study, options, new)
        with marks.open("a") as file:
            file.write(f"{study}\n")
    sys.exit(compared(kept(FILE), kept(new)))


def absent_model(study: str, models: Path) -> Path | None:
    """The model that a study needs and that is not there."""
    needed = [models / word.removeprefix("MODELS/") for word in study.split() if "MODELS/" in word]
    return next((folder for folder in needed if not folder.is_dir()), None)


def run(study: str, options: argparse.Namespace, ledger: Path) -> None:
    """One study, as its command line would run it."""
    name, *given = study.split()
    folders = {
        "DATA": options.data,
        "SST": options.data / "SST-2",
        "WORK": options.work,
        "MODELS": options.models,
    }
    for place, argument in enumerate(given):
        folder, _, rest = argument.partition("/")
        if folder in folders:
            given[place] = str((folders[folder] / rest).absolute())
    sys.argv = [f"studies/{name}.py", *given, "--ledger", str(ledger)]
    import_module(name).main()


def compared(before: dict[str, Measurement], after: dict[str, Measurement]) -> int:
    """How many numbers do not come out again; each is printed beside the stored one."""
    both = before.keys() & after.keys()
    off = 0
    for name in both:
        same = alike(before[name], after[name])
        off += not same
        print(
            f"{'' if same else 'NOT '}again: {name}: {told(before[name])}; now {told(after[name])}"
        )
    print(f"{len(both) - off} numbers came out again, {off} did not.")
    print(
        f"{len(before) - len(both)} of {len(before)} stored ones take longer than this run: "
        "make studies"
    )
    return off


def alike(before: Measurement, after: Measurement) -> bool:
    """Whether intervals meet; without intervals, whether the claims would be judged alike."""
    if not (before.exact and after.exact):
        return before.overlaps(after)
    tests = [test for claim in CLAIMS for test in claim.tests if test.id == before.id]
    return all(test.outcome(before) == test.outcome(after) for test in tests)


def told(found: Measurement) -> str:
    low, high = found.interval
    return f"{found.value:.3g} [{low:.3g}, {high:.3g}] ({found.count} {found.of})"


def main() -> None:
    parts = {"stored": stored, "again": again}
    options = parse(
        __doc__, part=parts, data=Path, work=Path("build/claims"), models=Path, first=int
    )
    parts[options.part](options)


if __name__ == "__main__":
    main()
