"""A layer of a long text is projected with little more memory than its maps take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/support/long_layer.py"
ROOM = 0.15  # gigabytes beside the maps and the libraries, which leaves 2 for 12 heads


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["bidirectional", "causal"])
def test_twelve_heads_at_4096_tokens_stay_below_two_gigabytes(kind, threads):
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    run = [sys.executable, str(SCRIPT), kind]
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=environment)
    told = json.loads(done.stdout)
    assert told["tokens"] == 4096
    assert told["maps_gigabytes"] == pytest.approx(2 * 12 * 4096**2 * 4 / 1e9)
    taken = told["peak_gigabytes"] - told["libraries_gigabytes"] - told["maps_gigabytes"]
    assert taken < ROOM
