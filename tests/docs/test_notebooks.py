"""The notebooks run, print what they are kept with, and are small."""

import os
import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient", reason="needs nbclient, which is not installed")
    pytest.importorskip("ipykernel", reason="needs ipykernel, which is not installed")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # put back afterwards
    run = runpy.run_path(str(DOCS / "run_notebooks.py"))
    kept = run["nbformat"].read(path, as_version=4)
    now = run["executed"](path)
    assert printed(kept) == printed(now)
    assert any("image/png" in text for text in printed(kept))


def test_there_are_three_small_ones() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 200_000
        assert "site-packages" not in text and "stderr" not in text  # no path of a machine
