"""Every option of every task: its value arrives, and what is no option is refused in one line."""

import functools
import inspect
import json
from dataclasses import replace
from types import NoneType
from typing import Literal, get_args, get_origin

import pytest
from support.command import run
from support.corpora import examples, save_texts
from support.subjects import speaker

import exhibit_a as xa
from exhibit_a import corpus
from exhibit_a.commands.corpus import RunVerb
from exhibit_a.corpus.plan import COLUMNS, PLANNED
from exhibit_a.corpus.tasks import PermutationTask, names, task_of, tasks
from exhibit_a.errors import BadRequestError
from exhibit_a.examples import Example
from exhibit_a.methods import registry

ANSWERS = [Example("0", "a fine film", answer="fine"), Example("1", "the plot is", answer="a film")]


@pytest.fixture(scope="module")
def subject():
    return speaker()


@pytest.fixture(scope="module")
def importance(subject, tmp_path_factory):
    saved = tmp_path_factory.mktemp("importance") / "saved.safetensors"
    return str(xa.head_importance(subject, examples(4), by="attention").save(saved))


@pytest.fixture
def outcome(subject, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(RunVerb, "subject", lambda _: subject)
    data = save_texts(tmp_path / "texts.tsv", 2)

    def corpus_run(*words):
        code, _, err = run(capsys, "corpus", "run", data, "--out", tmp_path / "run", *words)
        return code, err

    return corpus_run


def other_value(hint, default):
    """A value of a type that is not the default."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Literal:
        return next(word for word in kinds if word != default)
    if kinds and "Sequence" in str(get_origin(hint)):
        return [other_value(kinds[0], None)]
    if kinds:
        return other_value(kinds[0], default)
    number = default if isinstance(default, int | float) else 2
    return {bool: not default, int: number + 1, float: number / 4, str: "another"}[hint]


def options_of(name, importance):
    """A value for every option of a task, and which of them must be given."""
    fields = (task_of(tasks()[name]) if name in tasks() else PermutationTask).model_fields
    values = {
        field: other_value(about.annotation, about.default) for field, about in fields.items()
    }
    values |= {"importance": importance} if "importance" in values else {}
    values |= {"seed": 3} if name not in tasks() or "seed" in tasks()[name].options else {}
    return values, {field for field, about in fields.items() if about.is_required()}


def watch(name, monkeypatch):
    """The options with which a method is called, once it is called."""
    method, seen = registry.find(name), {}

    @functools.wraps(method.function)
    def function(*args, **kwargs):
        inspect.signature(method.function).bind(*args, **kwargs)
        seen.update(kwargs)
        raise BadRequestError("seen")

    monkeypatch.setitem(registry._known, name, replace(method, function=function))
    return seen


@pytest.mark.parametrize("name", names())
def test_every_value_arrives(name, importance, outcome, tmp_path, monkeypatch):
    values, required = options_of(name, importance)
    seen = watch(name, monkeypatch) if name in tasks() else {}
    for number, (option, value) in enumerate(values.items()):
        seen.clear()
        given = {field: values[field] for field in (*required, option)}
        words = [word for n, v in given.items() for word in ("--set", f"{n}={json.dumps(v)}")]
        out = str(tmp_path / str(number))
        code, err = outcome("--method", name, "--out", out, *words)
        if code == 0:  # batch by batch, without the method's own function
            plan = corpus.open(out).card.plan
            arrived = plan.parameters | {"seed": plan.seed}
        else:
            assert err == "error: seen\n"
            arrived = seen
        if option != "importance":  # the path of a result, which is read
            assert arrived[option] == value, option


@pytest.mark.parametrize(
    "name",
    sorted(
        {*inspect.signature(corpus.run).parameters, *COLUMNS, *PLANNED} - {"seed", "parameters"}
    ),
)
def test_what_belongs_to_the_run_is_not_set(name, outcome, tmp_path):
    code, err = outcome("--method", "trial", "--set", f"{name}=1")
    assert (code, err.count("\n")) == (2, 1)
    assert name in err
    assert not (tmp_path / "run").exists()


def test_two_seeds_are_refused(outcome):
    code, err = outcome("--seed", "1", "--set", "seed=2")
    assert (code, err.count("\n"), "seed" in err) == (2, 1, True)
    assert outcome("--seed", "2", "--set", "seed=2")[0] == 0


def test_a_trial_is_given_each_answer_once(tmp_path):
    run = functools.partial(corpus.run, speaker("gpt2"), ANSWERS, "trial", heat_maps=False)
    assert run(tmp_path / "run").counts["examples"] == 2
    with pytest.raises(BadRequestError, match="target_text"):
        run(tmp_path / "twice", target_text="fine")


def test_a_number_that_only_some_texts_have_is_missing_for_the_others(tmp_path):
    run = corpus.run(speaker("gpt2"), ANSWERS, "attribution_tree", tmp_path / "run")
    assert corpus.open(run.path).to_pandas()["reader"].isna().tolist() == [False, True]
