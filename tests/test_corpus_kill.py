"""Real processes, really killed: nothing is lost, nothing is there twice, not a byte differs."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from corpora import contents, save_model, save_texts

from exhibit_a import corpus

COUNT, WINDOW = 240, 8
PROGRAM = """
import sys, torch, transformers
torch.set_num_threads(1)
transformers.logging.disable_progress_bar()
from exhibit_a import corpus
verb, out, model, data, workers = sys.argv[1:]
print("ready", flush=True)
if verb == "run":
    corpus.run(model, data, "effective_attention", out, workers=int(workers), window=8, tokens=256)
else:
    corpus.resume(out, workers=int(workers))
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A model, a file of texts, and the run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("kill")
    model, data = save_model(folder / "model"), save_texts(folder / "texts.tsv", COUNT)
    corpus.run(model, data, "effective_attention", folder / "whole", window=WINDOW, tokens=256)
    return model, str(data), contents(folder / "whole")


def start(verb, out, material, workers=0):
    model, data, _ = material
    command = [sys.executable, "-c", PROGRAM, verb, str(out), model, data, str(workers)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"ready\n"
    return process


def committed(out):
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def kill_when(process, ready, delay=0.0):
    """SIGKILL when ``ready`` says so and a moment has passed, or let it end if it is faster."""
    while process.poll() is None and not ready():
        time.sleep(0.0005)
    time.sleep(delay)
    process.kill()
    process.wait()
    process.stdout.close()


def finish(out, material, workers=0):
    process = start("resume", out, material, workers)
    assert process.stdout.read() == b"done\n"
    assert process.wait() == 0
    process.stdout.close()
    assert contents(out) == material[2]


@pytest.mark.parametrize("shards", [1, 17])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path, material, shards):
    out = tmp_path / "run"
    kill_when(start("run", out, material), lambda: committed(out) >= shards)
    assert not (out / "manifest.json").exists()
    finish(out, material)


def test_a_killed_worker_is_replaced(tmp_path, material):
    out = tmp_path / "run"
    process = start("run", out, material, workers=2)
    while committed(out) < 3:
        time.sleep(0.001)
    (first, *_) = children(process.pid)
    os.kill(first, signal.SIGKILL)
    assert process.stdout.read() == b"done\n"
    assert process.wait() == 0
    process.stdout.close()
    assert contents(out) == material[2]


def test_no_worker_outlives_a_killed_parent(tmp_path, material):
    out = tmp_path / "run"
    process = start("run", out, material, workers=2)
    while committed(out) < 2:
        time.sleep(0.001)
    orphans = children(process.pid)
    kill_when(process, lambda: True)
    deadline = time.monotonic() + 30
    while any(map(alive, orphans)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(orphans) == 2
    assert not any(map(alive, orphans))
    finish(out, material, workers=2)


def test_an_interrupted_run_says_so_and_resumes(tmp_path, material):
    out = tmp_path / "run"
    process = start("run", out, material)
    while committed(out) < 2:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    process.stdout.close()
    assert not (out / "manifest.json").exists()
    finish(out, material)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_a_run_killed_at_random_again_and_again(tmp_path, material, seed):
    chance, out = random.Random(seed), tmp_path / "run"
    workers = seed % 3
    process = start("run", out, material, workers)
    stop = chance.randint(0, 29)
    kill_when(process, lambda: committed(out) >= stop, chance.random() * 0.05)
    if not (out / "run.json").exists():  # killed before it began: there is nothing to resume
        process = start("run", tmp_path / "second", material, workers)
        out = tmp_path / "second"
        kill_when(process, lambda: committed(out) >= 1)
    for _ in range(chance.randint(0, 2)):
        stop = committed(out) + chance.randint(0, 6)
        kill_when(
            start("resume", out, material, workers),
            lambda stop=stop: committed(out) >= stop,
            chance.random() * 0.05,
        )
    finish(out, material, workers)


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
