"""The same bytes from a pool of Ray actors, though one of them is killed."""

import os
import signal
import socket
import threading
from pathlib import Path

import pytest
from support.corpora import contents, save_model, save_texts
from support.waiting import until

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


from exhibit_a import corpus
from exhibit_a.corpus.ray_engine import Claim, check_reachable, claim_of, share_of_cpu
from exhibit_a.errors import BadRequestError

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, and it has many

METHOD, SMALL = "effective_attention", {"window": 8, "tokens": 256}
TRIES = 5  # a run may be over before there is somebody to kill; then it is made again


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
        claim_of(0, 0, workers=1, device=None)


def test_actors_claim_a_gpu_each_where_the_model_is_on_one():
    assert claim_of(8, 4, workers=None, device=None) == Claim(7, 1.0, 0)
    assert claim_of(8, 4, workers=None, device="cuda") == Claim(4, 1.0, 1)
    assert claim_of(2, 4, workers=3, device="cuda:0") == Claim(3, 0.3333, 1)
    for gpus, workers in ((0, None), (0, 2), (2, 3)):
        with pytest.raises(BadRequestError, match=f"{gpus} GPUs"):
            claim_of(8, gpus, workers=workers, device="cuda")


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


def actor_pids():
    """Processes of live actors of ours."""
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::MapWorker(MapBatches(Actor))"):
                pids.append(int(process.name))
    return pids


@pytest.mark.slow
def test_ray_gives_the_bytes_of_the_local_engine_though_an_actor_is_killed(tmp_path, material):
    ray.init(
        "local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    try:
        for number in range(TRIES):
            out = tmp_path / str(number)
            thread, problems = run_in_thread(material, out, workers=2)
            until(lambda out=out, found=problems: committed(out) >= 3 or found, "three shards")
            if pids := actor_pids():
                os.kill(pids[0], signal.SIGKILL)
            thread.join(400)
            assert problems == []
            assert contents(out) == material[2]
            if pids:
                break
        assert pids
    finally:
        ray.shutdown()


@pytest.fixture
def two_nodes():
    """A cluster of two machines, as far as Ray can tell, of which this process uses the first."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_a_machine_of_the_cluster_is_killed_and_not_a_byte_differs(tmp_path, material, two_nodes):
    cluster, second = two_nodes
    (raylet,) = [info.process.pid for info in second.all_processes["raylet"]]
    for number in range(TRIES):
        out = tmp_path / str(number)
        thread, problems = run_in_thread(material, out, workers=3, address=cluster.address)
        until(lambda out=out, found=problems: committed(out) >= 3 or found, "three shards")
        there = [pid for pid in actor_pids() if parent(pid) == raylet]
        if there:  # with 3 actors and 1 CPU each, no machine holds all of them
            cluster.remove_node(second, allow_graceful=False)
        thread.join(400)
        assert problems == []
        assert contents(out) == material[2]
        if there:
            break
    assert there


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("[::1]:1", "[::1]:1"),
        ("ray://127.0.0.1:10001", "host:port"),
        ("somewhere", "somewhere"),
        ("host:99999", "host:99999"),
    ],
)
def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path, monkeypatch, address, message):
    monkeypatch.setattr(ray, "init", None)  # which would look for it for a minute
    with pytest.raises(BadRequestError) as caught:
        corpus.run("m", ["fine"], METHOD, tmp_path / "run", engine="ray", address=address)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as there:
        check_reachable(f"127.0.0.1:{there.getsockname()[1]}")

    def silent(where, timeout):
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(BadRequestError, match="timed out"):
        check_reachable("10.0.0.1:6379")
