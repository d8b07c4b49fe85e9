"""Real processes, really killed: nothing is lost, nothing is there twice, not a byte differs.

A process ends or waits at a named point (after so many shards, at the n-th file that it touches),
so that no test depends on how fast it is.
"""

import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from support.corpora import contents, save_model, save_texts
from support.waiting import until

from exhibit_a import corpus
from exhibit_a.errors import ExhibitError

COUNT, WINDOW = 48, 4
SHARDS = COUNT // WINDOW
TOUCHED = 170  # times that a run opens, renames or removes a file in its folder, or a few more


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A model, a file of texts, and the run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("kill")
    model, data = save_model(folder / "model"), save_texts(folder / "texts.tsv", COUNT)
    corpus.run(model, data, "effective_attention", folder / "whole", window=WINDOW, tokens=256)
    return model, str(data), contents(folder / "whole")


CHILDREN = []


@pytest.fixture(autouse=True)
def _none_is_left():
    """One that waits would wait forever where its test has failed."""
    yield
    while CHILDREN:
        CHILDREN.pop().kill()


@dataclass
class Child:
    """A process of its own, forked from this one: it need not import torch again."""

    pid: int
    code: int | None = None

    def ended(self, flags=os.WNOHANG):
        if self.code is None:
            done, status = os.waitpid(self.pid, flags)
            self.code = os.waitstatus_to_exitcode(status) if done else None
        return self.code is not None

    def wait(self):
        self.ended(0)
        return self.code

    def kill(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def start(verb, out, material, workers=0, **point):
    """A run or its continuation, until something happens at a point (see ``at``)."""
    model, data, _ = material
    pid = os.fork()
    if pid:
        CHILDREN.append(Child(pid))
        return CHILDREN[-1]
    code = 1
    try:
        torch.set_num_threads(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        settings = {"workers": workers, "progress": at(out, **point)}
        if verb == "run":
            settings |= {"window": WINDOW, "tokens": 256}
            corpus.run(model, data, "effective_attention", out, **settings)
        else:
            corpus.resume(out, **settings)
        code = 0
    finally:
        os._exit(code)


def at(out, shards=SHARDS + 1, happens=signal.pause, file=None):
    """After so many shards something happens: without more, the process waits to be killed.

    Or it kills itself before it opens, renames or removes the n-th ``file`` in its folder.
    """
    touched = 0

    def touch(event, about):
        nonlocal touched
        inside = event in ("open", "os.rename", "os.remove") and str(out) in str(about[0])
        touched += inside
        if touched == file:
            kill_itself()

    if file is not None:
        sys.addaudithook(touch)

    def progress(examples):
        if examples >= shards * WINDOW:
            happens()

    return progress


def kill_itself(number=signal.SIGKILL):
    os.kill(os.getpid(), number)


def committed(out):
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def finish(out, material, workers=0):
    assert start("resume", out, material, workers).wait() == 0
    assert contents(out) == material[2]


@pytest.mark.parametrize("shards", [1, 9])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, material, shards):
    out = tmp_path / "run"
    process = start("run", out, material, shards=shards, happens=kill_itself)
    assert process.wait() == -signal.SIGKILL
    assert committed(out) == shards
    assert not (out / "manifest.json").exists()
    finish(out, material)


def test_a_killed_worker_ends_the_run_with_one_line_and_resuming_goes_on(tmp_path, material):
    killed, out = [], tmp_path / "run"

    def kill_a_worker(_):
        if not killed:
            killed.extend(workers_of(os.getpid())[:1])
            os.kill(*killed, signal.SIGKILL)

    model, data, _ = material
    with pytest.raises(ExhibitError, match="resume") as caught:
        corpus.run(
            model,
            data,
            "effective_attention",
            out,
            workers=2,
            progress=kill_a_worker,
            window=WINDOW,
            tokens=256,
        )
    assert "\n" not in str(caught.value)
    assert workers_of(os.getpid()) == []
    assert 0 < committed(out) < SHARDS
    finish(out, material, workers=2)


def test_no_worker_outlives_a_killed_parent(tmp_path, material):
    out = tmp_path / "run"
    process = start("run", out, material, workers=2, shards=2)  # where workers wait for windows
    until(lambda: committed(out) == 2, "two shards")
    workers = workers_of(process.pid)
    assert workers
    process.kill()
    until(lambda: not any(map(alive, workers)), "the end of the workers")
    finish(out, material)


def test_an_interrupted_run_resumes(tmp_path, material):
    out = tmp_path / "run"
    interrupt = partial(kill_itself, signal.SIGINT)
    assert start("run", out, material, shards=2, happens=interrupt).wait() == 1
    assert not (out / "manifest.json").exists()
    finish(out, material)


SCRIPT = """
import sys
from exhibit_a import corpus

model, data, out = sys.argv[1:]
summary = corpus.run(
    model, data, "effective_attention", out, workers=2, window={window}, tokens=256
)
print(summary.counts["examples"])
"""


def script(folder, material, name="run"):
    """A user's script, which is not guarded by ``if __name__ == "__main__"``."""
    (folder / "script.py").write_text(SCRIPT.format(window=WINDOW))
    paths = os.pathsep.join(filter(None, sys.path))
    model, data, _ = material
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), model, data, str(folder / name)],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_workers_do_not_run_the_script_that_started_them(tmp_path, material):
    out, err = (process := script(tmp_path, material)).communicate()
    assert (process.returncode, out, "Error" in err) == (0, f"{COUNT}\n", False)
    assert contents(tmp_path / "run") == material[2]


def test_ctrl_c_reaches_every_process_and_only_the_parent_speaks(tmp_path, material):
    process = script(tmp_path, material)
    until(lambda: workers_of(process.pid), "workers")
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate()
    assert err.count("Traceback (most recent call last)") == err.count("KeyboardInterrupt") == 1
    until(lambda: not any(map(alive, workers)), "the end of the workers")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_run_killed_at_random_again_and_again(tmp_path, material, seed):
    chance, out = random.Random(seed), tmp_path / "run"
    start("run", out, material, file=chance.randint(1, TOUCHED)).wait()
    if not (out / "run.json").exists():  # killed before it began: there is nothing to resume
        out = tmp_path / "second"
        start("run", out, material, shards=1, happens=kill_itself).wait()
    for _ in range(chance.randint(0, 2)):
        start("resume", out, material, file=chance.randint(1, TOUCHED)).wait()
    finish(out, material)


def workers_of(pid):
    """The worker processes of a run."""
    listing = ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)]
    listed = subprocess.run(listing, capture_output=True)
    lines = [line.split(maxsplit=1) for line in listed.stdout.decode().splitlines()]
    return [int(child) for child, words in lines if "spawn_main" in words]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True).stdout
    return bool(state.strip()) and not state.startswith(b"Z")
