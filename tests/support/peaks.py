"""How much memory does some work take at most? Measured in a process of its own.

    python -m support.peaks WORK TOKENS

prints the peak of the resident memory above what the loaded model takes, in megabytes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS = 8
WIDTH = 192


def peak_of(work: str, tokens: int) -> float:
    """Megabytes that the work takes at most."""
    run = [sys.executable, "-m", "support.peaks", work, str(tokens)]
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    known = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(run, check=True, capture_output=True, text=True, env=known)
    return float(done.stdout)


def subject(layers: int = 6) -> Any:
    """A small Llama with as much attention as anything else."""
    import torch
    import transformers

    import exhibit_a as xa

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=8192,
    )
    return xa.load(transformers.LlamaForCausalLM(config).eval())


def works() -> dict[str, Callable[[Any, Any], Any]]:
    """What can be measured, given the model and its inputs."""
    import exhibit_a as xa

    return {
        "capture": lambda s, inputs: xa.capture(s, inputs),
        "rows": lambda s, inputs: xa.capture(s, inputs, rows=slice(-ROWS, None)),
        "effective_attention": lambda s, inputs: xa.effective_attention(xa.capture(s, inputs)),
        "contribution_weights": lambda s, inputs: xa.contribution_weights(xa.capture(s, inputs)),
        "sink_diagnosis": lambda s, inputs: xa.sink_diagnosis(xa.capture(s, inputs)),
        "self_attribution": lambda s, inputs: xa.self_attribution(xa.capture(s, inputs)),
        "reliance": lambda s, inputs: xa.reliance(xa.capture(s, inputs), rows="all"),
        "trial": lambda s, inputs: xa.trial(s, inputs, heat_maps=False),
    }


def main(work: str, tokens: int) -> None:
    import torch

    model = subject()
    ids = torch.randint(0, 512, (1, tokens), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    run = works()[work]
    run(model, {name: part[:, :64] for name, part in inputs.items()})  # what is loaded once
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    made = run(model, inputs)
    sys.stdout.write(f"{_memory('VmHWM') - before}\n")
    del made


def _memory(name: str) -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
