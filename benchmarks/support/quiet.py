"""What every script that times something does first."""

import argparse
from pathlib import Path

import torch
import transformers


def one_quiet_thread() -> None:
    """One thread, so that ratios hold on any machine, and no chatter between the rows."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def begun(description: str) -> Path | None:
    """The file that the measurements go to, if any; from here on it is quiet."""
    asked = argparse.ArgumentParser(description=description.split("\n")[0])
    asked.add_argument("--out", type=Path, help="write the measurements to this file")
    one_quiet_thread()
    out: Path | None = asked.parse_args().out
    return out
