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


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of now; a cell that fails raises."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=900,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=os.environ | QUIET)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> None:
    """Run every notebook, or those of some names, and write it back."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
