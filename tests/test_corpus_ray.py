"""The same bytes from a pool of Ray actors, though one of them is killed."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from corpora import contents, save_model, save_texts

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from exhibit_a import corpus
from exhibit_a.corpus.ray_engine import share_of_cpu
from exhibit_a.errors import BadRequestError

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, and it has many

METHOD, SMALL = "effective_attention", {"window": 8, "tokens": 256}


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """A model, a file of texts, and the run of the local engine."""
    folder = tmp_path_factory.mktemp("ray")
    model, data = save_model(folder / "model"), save_texts(folder / "texts.tsv", 160)
    corpus.run(model, data, METHOD, folder / "whole", **SMALL)
    paths = os.pathsep.join(str(Path(p).resolve()) for p in __import__("sys").path if p)
    os.environ["PYTHONPATH"] = paths  # actors import the package from where this test does
    return model, data, contents(folder / "whole")


def test_actors_leave_room_for_ray_itself():
    for cpus in (1, 2, 4, 64):
        for actors in (1, 2, 7):
            share = share_of_cpu(cpus, actors)
            assert 0 < share <= 1
            assert cpus - actors * share >= min(1, cpus / 2) - 1e-3
    with pytest.raises(BadRequestError, match="has no CPU"):
        share_of_cpu(0, 1)


def run_in_thread(material, out, **options):
    """The run goes on while the test breaks something."""
    model, data, _ = material
    problems = []

    def go():
        try:
            corpus.run(model, data, METHOD, out, engine="ray", **SMALL, **options)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=go)
    thread.start()
    return thread, problems


def committed(out):
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def wait_for(ready, thread, seconds=240):
    deadline = time.monotonic() + seconds
    while not ready() and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)


def actor_pids():
    """Processes of live actors of ours."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::MapWorker(MapBatches(Actor))"):
                found.append(int(process.name))
    return found


@pytest.mark.slow
def test_ray_gives_the_bytes_of_the_local_engine_though_an_actor_is_killed(tmp_path, material):
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    try:
        thread, problems = run_in_thread(material, tmp_path / "run", workers=2)
        wait_for(lambda: committed(tmp_path / "run") >= 3, thread)
        pids = actor_pids()
        assert pids
        os.kill(pids[0], signal.SIGKILL)
        thread.join(400)
        assert problems == []
        assert contents(tmp_path / "run") == material[2]
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_named(tmp_path, material):
    model, data, _ = material
    with pytest.raises(BadRequestError, match="There is no Ray cluster"):
        corpus.run(model, data, METHOD, tmp_path / "run", engine="ray", address="127.0.0.1:1")
