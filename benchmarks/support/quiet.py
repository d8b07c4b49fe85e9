"""What every script that times something does first."""

import torch
import transformers


def one_quiet_thread() -> None:
    """One thread, so that ratios hold on any machine, and no chatter between the rows."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
