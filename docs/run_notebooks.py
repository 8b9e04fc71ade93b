"""Run the notebooks of docs/notebooks/ and keep their outputs.

python docs/run_notebooks.py            # all of them; or name some
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
NOTEBOOKS = HERE / "notebooks"
SECONDS = 110  # of a cell


def executed(path: Path) -> NotebookNode:
    """The notebook with new outputs, run in an empty folder.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(
            notebook, timeout=SECONDS, record_timing=False, resources=resources
        ).execute()
    return notebook


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
        start = time.perf_counter()
        nbformat.write(tidy(executed(path)), path)
        print(f"{path.name}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
