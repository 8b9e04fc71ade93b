"""Run the notebooks of docs/notebooks/ and keep their outputs; prints the processor time of each.

python docs/run_notebooks.py            # all of them; or name some
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
NOTEBOOKS = HERE / "notebooks"
SECONDS = 110  # of a cell


def executed(path: Path) -> tuple[NotebookNode, float]:
    """The notebook with new outputs, run in an empty folder, and processor seconds of its kernel.

    Those of all its threads; other programs on a shared machine hardly change them.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
    before = children_seconds()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=SECONDS, record_timing=False, resources=resources
        ).execute()
    return notebook, children_seconds() - before


def children_seconds() -> float:
    """Processor time of child processes that have ended, as a kernel has after its notebook."""
    times = os.times()
    return times.children_user + times.children_system


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Without what differs from machine to machine: warnings and the version of Python."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    """Run those that are named, or all."""
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook, seconds = executed(path)
        nbformat.write(tidy(notebook), path)
        print(f"{path.name}: {seconds:.0f} s of processor time")


if __name__ == "__main__":
    main()
