"""What every script that times something does first."""

import argparse
import time
from pathlib import Path

import torch
import transformers

from exhibit_a.subject.subject import Subject


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


@torch.no_grad()
def seconds_of_a_pass(subject: Subject, given: dict[str, torch.Tensor]) -> float:
    """The processor time of the bare model on these inputs, once."""
    start = time.process_time()
    subject.model(**given)
    return time.process_time() - start
