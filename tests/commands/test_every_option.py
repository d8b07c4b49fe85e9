"""Every option of every verb: what is said arrives, and what makes no sense is refused."""

import dataclasses
import importlib
from functools import wraps
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from support.cases import tiny_trial
from support.command import run
from support.corpora import examples, save_model, save_texts
from support.fuzz.command_lines import verbs
from support.subjects import speaker, talking

import exhibit_a as xa
import exhibit_a.methods.registry as registry
from exhibit_a.methods.doctor import diagnose
from exhibit_a.results.result import Result
from exhibit_a.trace.capture import capture

TEXT = "a fine film is not dull"
NEEDED = {  # what a verb must be given, beside a model
    ("compare",): (TEXT, "a dull film"),
    ("context",): ("what is it", "a fine film", "a dull plot"),
    ("corpus", "run"): ("data.tsv", "--out", "new"),
    ("corpus", "resume"): ("run",),
    ("corpus", "summary"): ("run",),
    ("corpus", "diff"): ("run", "run"),
    ("train",): ("model", "data.tsv", "--out", "new"),
    ("view",): ("result.safetensors", "--no-open"),
    ("patch",): (TEXT, "--counterfactual", "the plot is not fine ."),
    ("faithful",): ("data.tsv", "--by", "raw"),
    ("doctor",): ("model",),
    ("serve",): (),
}
OVER_DATA = ("heads", "prune", "triggers", "permute", "tokens")
NEW_TRANSLATOR = ("transformer", "data.tsv", "--out", "new")
OF_CURVES = (
    *("--limit", "--by", "--order", "--scope", "--fractions", "--counts", "--overlap"),
    *("--json", "--out", "--plot"),
)
BESIDE = {  # what must be said together with an option
    ("doctor", "--pair"): ("--text", TEXT),
    ("doctor", "--truncate"): ("--text", TEXT),
    ("adversary", "--alpha"): ("--keys", "data.tsv"),
    ("adversary", "--limit"): ("--keys", "data.tsv"),
    ("adversary", "--text"): ("--keys", "data.tsv"),
    ("adversary", "--label"): ("--keys", "data.tsv"),
    ("prune", "--save"): ("--remove", "0.5"),
    **{("prune", name): ("--rank-on", "6") for name in OF_CURVES},
    ("triggers", "--count"): ("--attack", "data.tsv"),
    ("triggers", "--seed"): ("--attack", "data.tsv"),
    ("train", "--dev-translations"): ("--dev", "data.tsv"),
    ("train", "--size"): ("--translations", "data.tsv"),
}
SEAMS = (  # what verbs call beside registered methods
    *(f"commands.{module}.load_quietly" for module in ("options", "compare", "model", "web")),
    *("commands.corpus.load_quietly", "commands.options.present", "commands.options.save_figure"),
    *(f"commands.{module}.print_json" for module in ("model", "corpus", "context", "explain")),
    *("trace.capture.capture", "examples.read_examples", "examples.passages.read_passages"),
    *("methods.attribution.context.context_attribution", "methods.doctor.diagnose"),
    *("methods.heads.curve.measure_pruning", "methods.heads.removal.prune"),
    *("trials.trial.trial", "trials.comparison.compare", "training.train.train"),
    *("training.train.save_model", "corpus.run", "corpus.resume", "corpus.open", "corpus.diff"),
    *("results.store.read", "report.html.write_page", "report.terminal.show"),
    *("serve.application.application", "serve.connections.Server", "commands.web._listening"),
)
SHARED = (
    *("--model", "--pair", "--messages", "--answer", "--generate", "--truncate", "--words"),
    *("--text", "--label", "--limit", "--rows", "--json", "--out", "--plot", "--seed"),
)
SEEN_ON_SCREEN = ("--timing", "--open")  # looked at where the verbs themselves are tested
INSTEAD = {  # of what is usually needed
    ("compare", "--with"): (TEXT,),
    ("context", "--text"): ("what is it", "data.tsv"),
    **{("train", name): NEW_TRANSLATOR for name in ("--translations", "--size")},
    ("train", "--dev-translations"): (*NEW_TRANSLATOR, "--translations", "data.tsv"),
}


VERBS = verbs(left_out=())


def every_option():
    """Each verb with each of its options."""
    for verb, parameters in sorted(VERBS.items()):
        for parameter in parameters:
            if parameter.param_type_name == "option" and parameter.opts[0] != "--help":
                yield verb, parameter


def case(verb, option):
    """What all verbs share is tried quickly with three of them."""
    flag = option.opts[0]
    slow = flag in SHARED and verb[0] not in ("explain", "effective", "heads")
    marks = pytest.mark.slow if slow else ()
    return pytest.param(verb, option, id=f"{' '.join(verb)} {flag}", marks=marks)


OPTIONS = [(v, option) for v, option in every_option() if option.opts[0] not in SEEN_ON_SCREEN]


def command_line(verb, option, *said):
    """A command line that gives a verb all it needs, and the option."""
    flag = option.opts[0]
    beside = BESIDE.get((verb[0], flag), ())
    needed = NEEDED.get(verb, ("data.tsv",) if verb[0] in OVER_DATA else (TEXT,))
    needed = INSTEAD.get((verb[0], flag), needed)
    if flag in ("--messages", "--keys") or "--keys" in beside:
        needed = needed[1:]
    if flag in needed:  # a needed option is the one that is tried
        place = needed.index(flag)
        needed = needed[:place] + needed[place + 2 :]
    model = any(p.opts[0] == "--model" for p in VERBS[verb]) and flag != "--model"
    return (*verb, *needed, *beside, *(("--model", "model") if model else ()), *said)


def sensible(option):
    """A value that makes sense, as it is said, and as it should arrive."""
    flag, kind = option.opts[0], option.type_descriptor.annotation
    if kind is bool:
        off = option.secondary_opts and option.default is not False
        return ((option.secondary_opts[0] if off else flag),), None
    known = {
        "--steps": ("17", 17),
        "--rows": ("0,-1", [0, -1]),
        "--fractions": ("0,0.375", (0.0, 0.375)),
        "--counts": ("0,7", (0, 7)),
        "--sites": ("0,2", (0, 2)),
        "--maps": ("rotation", "rotation"),
        "--target": ("LABEL_1", "LABEL_1"),
        "--set": ("rtol=0.375", 0.375),
        "--size": ("d_model=16", None),
        "--methods": ("raw,flow", "flow"),
        "--messages": ("messages.json", "content"),
        "--plot": ("new.svg", "new.svg"),
        "--remove": ("0.375", None),
        "--template": ("{passages} {question}", "{"),
        "--host": ("localhost", "localhost"),
        "--attack": ("data.tsv", "data.tsv"),
        "--engine": ("ray", "ray"),
        "--too-long": ("skip", "skip"),
        "--save": ("smaller", None),
        "--by": ("taylor", "taylor"),
        "--against": ("other.tsv", "other.tsv"),
        "--keys": ("data.tsv", "data.tsv"),
        "--dev": ("other.tsv", "other.tsv"),
        "--translations": ("data.tsv", None),
        "--html": ("new.html", "new.html"),
    }
    if kind is int:
        said, arrives = ("8517", 8517) if flag == "--port" else ("17", 17)
    elif flag in known:
        said, arrives = known[flag]
    elif kind is float:
        said, arrives = "0.375", 0.375
    elif option.metavar and "|" in option.metavar:
        said = next(word for word in option.metavar.split("|") if word != option.default)
        arrives = said
    else:
        said, arrives = "zebra", "zebra"
    return (flag, said), arrives


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, texts, a saved result and a run."""
    folder = tmp_path_factory.mktemp("options")
    save_model(folder / "model")
    save_texts(folder / "data.tsv", 12)
    save_texts(folder / "other.tsv", 9)
    (folder / "messages.json").write_text('[{"role": "user", "content": "a fine film"}]')
    subject = speaker()
    xa.effective_attention(capture(subject, TEXT)).save(folder / "result.safetensors")
    xa.corpus.run(subject, examples(3), "effective_attention", folder / "run")
    return folder


@pytest.fixture(scope="module")
def results(place):
    """A real result of what verbs ask for, by the name of the function that gives it."""
    subject = speaker()
    effective = xa.effective_attention(capture(subject, TEXT))
    passages = ["w15 w9", "w26 w5"]
    options = {"answer": " w35", "methods": [], "samples": 0}
    return {
        "load": subject,
        "capture": capture(subject, TEXT),
        "read_examples": examples(24),
        "read": effective,
        "trial": tiny_trial(),
        "compare": xa.compare(effective, effective),
        "diagnose": diagnose(subject),
        "context_attribution": xa.context_attribution(talking("gpt2"), "w3", passages, **options),
        "head_importance": xa.head_importance(subject, examples(6), by="taylor"),
        "find_triggers": xa.find_triggers(subject, examples(6)),
        "self_attribution": xa.self_attribution(capture(subject, TEXT)),
        "open": MagicMock(wraps=xa.corpus.open(place / "run")),
        "listening": MagicMock(),
        "result": effective,
    }


@pytest.fixture
def spied(place, results, monkeypatch):
    """Whatever verbs call is watched, and gives a result that is ready."""
    monkeypatch.chdir(place)
    calls = MagicMock()

    def watched(name, function):
        spy = getattr(calls, name)
        spy.return_value = results.get(name, results["result"])
        if name == "open":
            calls.attach_mock(spy.return_value, "opened")
        return wraps(function)(lambda *args, **kwargs: spy(*args, **kwargs))

    for name, entry in registry.methods().items():
        spy = dataclasses.replace(entry, function=watched(name, entry.function))
        monkeypatch.setitem(registry._known, name, spy)
    monkeypatch.setattr(Result, "save", lambda _, path: calls.save(path))
    monkeypatch.setattr(Result, "html", lambda _, path, **kwargs: calls.html(path, **kwargs))
    # All are imported first: a module that is imported meanwhile would keep a spy for good.
    modules = {t: importlib.import_module(f"exhibit_a.{t.rpartition('.')[0]}") for t in SEAMS}
    for target, module in modules.items():
        name = target.rpartition(".")[2]
        function = getattr(module, name)
        name = "load" if name == "load_quietly" else name.strip("_")
        monkeypatch.setattr(f"exhibit_a.{target}", watched(name, function))
    return calls


@pytest.mark.parametrize(("verb", "option"), [case(*each) for each in OPTIONS])
def test_what_is_said_arrives(verb, option, spied, capsys):
    said, arrives = sensible(option)
    code, _, problem = run(capsys, *command_line(verb, option, *said))
    reached = list(spied.mock_calls)
    spied.reset_mock()
    run(capsys, *command_line(verb, option))
    usual = list(spied.mock_calls)
    assert repr(reached) != repr(usual), problem
    if arrives is not None:
        assert str(arrives) in repr(reached), (code, problem, reached)


ANY_WORD = (  # options that take any text, or a new name
    *("--pair", "--answer", "--counterfactual", "--target-text", "--template"),
    *("--out", "--html", "--save"),
    ("doctor", "--text"),
)
NO_SENSE = {float: ("nan", "zebra"), int: ("1.5", "zebra")}


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        case(verb, option)
        for verb, option in OPTIONS
        if not {option.opts[0], (verb[0], option.opts[0])} & set(ANY_WORD)
    ],
)
def test_what_makes_no_sense_is_refused(verb, option, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    kind = option.type_descriptor.annotation
    if kind is bool:
        code, _, err = run(capsys, *command_line(verb, option, f"{option.opts[0]}=zebra"))
        assert (code, err.count("\n")) == (2, 1)
        return
    for value in NO_SENSE.get(kind, ("zebra!",)):
        code, out, err = run(capsys, *command_line(verb, option, option.opts[0], value))
        assert (code, err.count("\n")) == (2, 1), (value, out, err)
        assert err.startswith("error: ")
    assert sorted(place.rglob("*")) == before


def test_a_name_of_a_file_is_not_examined_as_a_word(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    for verb, parameters in VERBS.items():
        names = [p.name for p in parameters if p.param_type_name == "argument"]
        if "text" in names and verb != ("doctor",):
            words = NEEDED.get(verb, ())[1:]
            _, _, err = run(capsys, *verb, "data.tsv", *words, "--model", "model")
            assert '"data.tsv" is a file' in err, verb
    _, _, err = run(capsys, "doctor", "model", "--text", "data.tsv")
    assert '"data.tsv" is a file' in err
    _, _, err = run(capsys, "effective", "model/", "--model", "model")
    assert "is a folder" in err


def test_saved_results_are_compared_as_results_whatever_they_are_called(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    saved = Path("result.safetensors").read_bytes()
    for name in ("a.st", "b"):
        Path(name).write_bytes(saved)
    code, out, _ = run(capsys, "compare", "a.st", "b", "--no-html", "--json")
    assert code == 0
    assert '"result": "Comparison"' in out
    for first, second in (("a.st", TEXT), (TEXT, "a.st"), ("a.st", "data.tsv")):
        code, _, err = run(capsys, "compare", first, second, "--no-html", "--model", "model")
        assert (code, err.count("\n")) == (2, 1)
        assert "a.st" in err or "data.tsv" in err
    assert "is a file" in run(capsys, "compare", "a.st", "--with", "model", "--no-html")[2]
    Path("a.st").unlink()
    Path("b").unlink()
