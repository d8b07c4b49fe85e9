"""Run the tutorial notebooks again, from top to bottom, and keep what they said.

    python docs/making/notebooks.py [NAME …]

Each runs in an empty folder with one thread. What differs from run to run without meaning anything
(times, execution counts of other runs) is not kept.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
KEPT = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path) -> nbformat.NotebookNode:
    """A notebook with what it says now; a cell that fails raises."""
    notebook = nbformat.read(path, as_version=4)
    options = {"timeout": 900, "kernel_name": "python3", "coalesce_streams": True}
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, record_timing=False, resources=place, **options)
        client.execute(env=os.environ | QUIET)
    notebook.metadata = KEPT
    return notebook


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            nbformat.write(executed(path), path)
