"""Real processes, really killed: nothing is lost, nothing is there twice, not a byte differs."""

import os
import random
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass

import pytest
import torch
from support.corpora import contents, save_model, save_texts

from exhibit_a import corpus
from exhibit_a.errors import BadRequestError

COUNT, WINDOW = 48, 4
PAUSE = 0.5


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A model, a file of texts, and the run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("kill")
    model, data = save_model(folder / "model"), save_texts(folder / "texts.tsv", COUNT)
    corpus.run(model, data, "effective_attention", folder / "whole", window=WINDOW, tokens=256)
    return model, str(data), contents(folder / "whole")


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

    def kill(self, number=signal.SIGKILL):
        if not self.ended():
            os.kill(self.pid, number)
            self.wait()


def start(verb, out, material, workers=0, pause=0.0):
    """A run or its continuation, with a pause after every shard for those who must not be late."""
    model, data, _ = material
    pid = os.fork()
    if pid:
        return Child(pid)
    code = 1
    try:
        torch.set_num_threads(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        if verb == "run":
            settings = {"window": WINDOW, "tokens": 256, "workers": workers}
            settings["progress"] = lambda _: time.sleep(pause)
            corpus.run(model, data, "effective_attention", out, **settings)
        else:
            corpus.resume(out, workers=workers)
        code = 0
    finally:
        os._exit(code)


def committed(out):
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def started(tmp_path, material, shards, **how):
    """A run that has committed so many shards, and its folder."""
    out = tmp_path / "run"
    process = start("run", out, material, **how)
    while committed(out) < shards:
        time.sleep(0.001)
    return process, out


def kill_when(process, ready, delay=0.0):
    """SIGKILL when ``ready`` says so and a moment has passed, or let it end if it is faster."""
    while not process.ended() and not ready():
        time.sleep(0.0005)
    time.sleep(delay)
    process.kill()


def finish(out, material, workers=0):
    assert start("resume", out, material, workers).wait() == 0
    assert contents(out) == material[2]


@pytest.mark.parametrize("shards", [1, 9])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, material, shards):
    out = tmp_path / "run"
    process = start("run", out, material, pause=PAUSE)
    kill_when(process, lambda: committed(out) >= shards)
    assert not (out / "manifest.json").exists()
    finish(out, material)


def test_killed_workers_are_replaced_and_none_outlives_a_killed_parent(tmp_path, material):
    process, out = started(tmp_path, material, 2, workers=2)
    (first, second) = children(process.pid)
    os.kill(first, signal.SIGKILL)
    before = committed(out)
    while (
        len(workers := children(process.pid)) < 2 or first in workers or committed(out) < before + 3
    ):
        assert not process.ended()
        time.sleep(0.01)
    assert second in workers
    kill_when(process, lambda: True)
    deadline = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    finish(out, material)


def test_the_holder_of_a_folder_is_named_until_it_is_killed(tmp_path, material):
    process, out = started(tmp_path, material, 1, pause=PAUSE)
    holder = f"{out} is being written by process {process.pid} on {socket.gethostname()}."
    with pytest.raises(BadRequestError, match=re.escape(holder)):
        corpus.resume(out)
    process.kill()
    assert (out / ".holder").exists()  # and yet the lock is free
    finish(out, material)


def test_an_interrupted_run_resumes(tmp_path, material):
    process, out = started(tmp_path, material, 2, pause=PAUSE)
    process.kill(signal.SIGINT)
    assert process.code != 0
    assert not (out / "manifest.json").exists()
    finish(out, material)


@pytest.mark.slow
def test_a_run_with_workers_gives_the_same_bytes(tmp_path, material):
    assert start("run", tmp_path / "run", material, workers=2).wait() == 0
    assert contents(tmp_path / "run") == material[2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_run_killed_at_random_again_and_again(tmp_path, material, seed):
    chance, out = random.Random(seed), tmp_path / "run"
    stop = chance.randint(0, COUNT // WINDOW - 1)
    kill_when(start("run", out, material), lambda: committed(out) >= stop, chance.random() / 20)
    if not (out / "run.json").exists():  # killed before it began: there is nothing to resume
        out = tmp_path / "second"
        kill_when(start("run", out, material), lambda: committed(out) >= 1)
    for _ in range(chance.randint(0, 2)):
        stop = committed(out) + chance.randint(0, 6)
        kill_when(
            start("resume", out, material),
            lambda stop=stop: committed(out) >= stop,
            chance.random() / 20,
        )
    finish(out, material)
    assert contents(out) == material[2]


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(word) for word in listed.stdout.split()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True).stdout
    return bool(state.strip()) and not state.startswith(b"Z")
