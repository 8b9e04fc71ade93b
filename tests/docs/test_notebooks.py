"""The notebooks run in a minute each, print what they are kept with, and are small."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
SECONDS = (
    60  # of processor time, which a busy machine hardly changes; kernels compiled anew included
)


def printed(notebook: object) -> list[str]:
    """What each cell prints and the kinds of its other outputs, numbers aside.

    Numbers differ from machine to machine, and where a stream is cut into pieces by chance.
    """
    out = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        text = "".join(o["text"] for o in outputs if o.get("name") == "stdout")
        out.append(re.sub(r"[\d.]+", "#", text))
        out += [" ".join(sorted(o["data"])) for o in outputs if "data" in o]
    return [text for text in out if text]


@pytest.mark.timeout(300)  # wall-clock time, of which a busy machine takes more
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_kept_within_a_minute(path: Path, monkeypatch) -> None:
    pytest.importorskip("nbclient", reason="needs nbclient, which is not installed")
    pytest.importorskip("ipykernel", reason="needs ipykernel, which is not installed")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # put back afterwards
    run = runpy.run_path(str(DOCS / "run_notebooks.py"))
    kept = run["nbformat"].read(path, as_version=4)
    now, seconds = run["executed"](path)
    assert 0.5 < seconds < SECONDS, f"{path.name}: {seconds:.1f} s of processor time"
    assert printed(kept) == printed(now)
    assert any("image/png" in text for text in printed(kept))


def test_time_is_that_of_processes_that_ended() -> None:
    """The control: a child that computes for a while is seen, one that sleeps is not."""
    pytest.importorskip("nbclient", reason="needs nbclient, which is not installed")
    children_seconds = runpy.run_path(str(DOCS / "run_notebooks.py"))["children_seconds"]
    busy = "import time\nwhile time.process_time() < 1: pass"
    for code, low, high in ((busy, 0.9, 2), ("import time; time.sleep(1)", -1, 0.9)):
        before = children_seconds()
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
        assert low < children_seconds() - before < high


def test_there_are_three_small_ones() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000
        assert "site-packages" not in text and "stderr" not in text  # no path of a machine
