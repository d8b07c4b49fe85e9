"""A method says once what it is, and is found everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.passes import counted_passes

import exhibit_a as xa
from exhibit_a.corpus import tasks
from exhibit_a.errors import BadRequestError
from exhibit_a.methods import registry
from exhibit_a.methods.custom_methods import result_of
from exhibit_a.methods.registry import Method

PACKAGE = Path(xa.__file__).parent
TEXT = "a gripping , beautifully shot film , though the plot is thin at the end"
TOY = '''"""How long is each token?"""

import torch

from exhibit_a.methods.registry import Cost, method


@method(
    question="How long is each token?",
    room="explanation",
    gives="tokens",
    cost=Cost(forwards=1),
    command="token-length",
)
def token_length(trace, target, power: float = 1.0):
    """Count the letters of each token.

    Args:
        power: the count is raised to this power.
    """
    return torch.tensor([float(len(token)) ** power for token in trace.tokens])
'''
PLUGIN = '''def shout(trace):
    """Which tokens are special?"""
    return trace.special.float()
'''


ASKING = """
import contextlib, io, json, sys
from exhibit_a.commands.main import main

for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(words)
        except SystemExit as left:
            code = left.code
    print(json.dumps([code, out.getvalue()]))
"""


def answers(where, *commands):
    """What the command line answers, with another place to find packages first."""
    place = {"PYTHONPATH": str(where), "HF_HUB_OFFLINE": "1", "COLUMNS": "160"}
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", ASKING, words],
        env=os.environ | place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _ in told] == [0] * len(commands), done.stderr
    return [out for _, out in told]


def found_everywhere(where, name, verb, tmp_path):
    """The method in help, doctor, its verb, faithfulness and a corpus run, by the command line."""
    data = tmp_path / "texts.tsv"
    data.write_text("sentence\tlabel\na fine film\tpositive\na dull plot\tnegative\n")
    listed, priced, asked, judged, run, about = answers(
        where,
        ("--help",),
        ("doctor", "--json"),
        (verb, TEXT, "--json"),
        ("faithful", data, "--by", name, "--json"),
        ("corpus", "run", data, "--method", name, "--out", tmp_path / "run"),
        (verb, "--help"),
    )
    assert verb in listed
    assert name in [row["method"] for row in json.loads(priced)["methods"]]
    assert len(json.loads(asked)["rows"]) == 17
    assert [row["attribution"] for row in json.loads(judged)["rows"]] == [name, "random"]
    assert "largest" in run
    return " ".join(about.replace("│", " ").split())


def test_one_new_file_is_a_method_everywhere(tmp_path):
    """Dropped into a room of a copy of the package, without another line anywhere."""
    copy = tmp_path / "copy" / "exhibit_a"
    shutil.copytree(PACKAGE, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "methods/explanation/token_length.py").write_text(TOY)
    about = found_everywhere(copy.parent, "token_length", "token-length", tmp_path)
    assert "--power" in about
    assert "The count is raised to this power." in about
    code = "import exhibit_a as xa; t = xa.capture(xa.load(), 'a film'); "
    code += "print(xa.companions(t, methods='token_length')['token_length'].scores.tolist())"
    place = os.environ | {"PYTHONPATH": str(copy.parent), "HF_HUB_OFFLINE": "1"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=place, capture_output=True, text=True, check=False
    )
    assert told.stdout.strip() == "[5.0, 1.0, 4.0, 5.0]"


@pytest.mark.slow
def test_an_installed_package_offers_a_method(tmp_path):
    """A plain function, named in the package's entry points."""
    place = tmp_path / "site"
    about = place / "shouting-1.0.dist-info"
    about.mkdir(parents=True)
    (place / "shouting.py").write_text(PLUGIN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[exhibit_a.methods]\nshout = shouting:shout\n")
    assert "Which tokens are special?" in found_everywhere(place, "shout", "shout", tmp_path)


def test_a_package_that_cannot_be_imported_is_one_line(tmp_path):
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[exhibit_a.methods]\nbroken = no_such_module:f\n")
    place = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "exhibit_a", "--help"]
    done = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: The method 'broken'")
    assert done.stderr.count("\n") == 1


def test_maps_of_your_own_are_saved_shown_and_judged(tmp_path):
    subject = xa.load("sentiment")
    trace = xa.capture(subject, TEXT)
    xa.register(lambda t: [m**2 for m in t.attention], name="squared", gives="maps")
    result = result_of("squared", trace)
    torch.testing.assert_close(result.maps[2], trace.attention[2] ** 2)
    again = xa.read(result.save(tmp_path / "maps.safetensors"))
    assert (type(again), again.method) == (xa.HeadMaps, "squared")
    result.html(tmp_path / "maps.html")
    assert result.plot() is not None
    assert {"site", "head", "query_token", "key_token"} <= set(result.to_pandas().columns)
    assert xa.companions(trace, methods=["squared"])["squared"].scores.shape == (17,)
    summary = xa.corpus.run(subject, [TEXT, "a dull film"], "squared", tmp_path / "run", dense=True)
    assert {"mean", "largest"} <= {row["statistic"] for row in summary.rows}
    assert xa.corpus.open(tmp_path / "run").dense(1)["maps/0"].shape == (12, 5, 5)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda trace: torch.ones(3), "3 scores"),
        (lambda trace: torch.full((17,), torch.nan), "not numbers"),
        (lambda trace: "high", "numbers"),
        (lambda trace: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_bad_method_is_one_line_with_its_name(function, message):
    xa.register(function, name="bad_one")
    trace = xa.capture(xa.load("sentiment"), TEXT)
    with pytest.raises(BadRequestError, match="bad_one") as refused:
        xa.companions(trace, methods="bad_one")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_workers_do_not_know_a_method_of_this_session(tmp_path):
    xa.register(lambda trace: torch.ones(len(trace.tokens)), name="here_only")
    with pytest.raises(BadRequestError, match="here_only"):
        xa.corpus.run("sentiment", ["a film"], "here_only", tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_everything_lists_exactly_what_is_registered(capsys):
    known = registry.methods()
    trace = xa.capture(xa.load("sentiment"), "a film")
    with pytest.raises(BadRequestError, match="no companion 'x'") as refused:
        xa.companions(trace, methods="x")
    assert str(refused.value).endswith(", ".join(registry.attributions()) + ".")
    with pytest.raises(BadRequestError) as refused:
        xa.faithfulness(trace.subject, ["a film"], attribution="x")
    assert str(refused.value).endswith(", ".join(registry.attributions()) + ".")
    with pytest.raises(BadRequestError) as refused:
        xa.corpus.run(trace.subject, ["a film"], "x", "out")
    assert str(refused.value).endswith(", ".join(tasks.names()) + ".")
    assert set(tasks.names()) <= {*known, "permutation"}
    estimated = [estimate.method for estimate in xa.diagnose(trace.subject).methods]
    assert set(estimated) == {*known, "capture", "replay", "choose_target"}


QUICK = ("raw", "effective_attention", "occlusion", "pruning_curve", "self_attribution")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name, method in sorted(registry.methods().items())
        if method.takes[0] in ("trace", "subject")
    ],
)
def test_the_doctor_counts_passes_as_they_are(name):
    """The promised number of forward passes, within a factor of two, on the embedded model."""
    method: Method = registry.methods()[name]
    passes = counted_passes(method)
    if passes is None:
        pytest.skip("it is not asked of one text")
    subject = xa.load("sentiment")
    promised = method.cost.counted(len(subject.anatomy.layers), passes.tokens)
    assert promised / 2 <= passes.forwards <= 2 * promised, (promised, passes)


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        (lambda trace: trace.attention[:2], "each site"),
        (lambda trace: [m * torch.inf for m in trace.attention], "not numbers"),
        (lambda trace: 3, "no shape"),
    ],
)
def test_bad_maps_are_one_line_with_their_name(maps, message):
    xa.register(maps, name="bad_maps", gives="maps")
    with pytest.raises(BadRequestError, match=f"'bad_maps'.*{message}"):
        result_of("bad_maps", xa.capture(xa.load("sentiment"), TEXT))
