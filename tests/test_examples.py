"""The scripts of examples/ run, and two processes train as one does."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
_NEEDS = {"10_graph_in_a_database": ("duckdb",)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    for engine in _NEEDS.get(path.stem, ()):
        pytest.importorskip(engine, reason=f"needs {engine}, which is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip(), "an example shows what it found"


@pytest.mark.parametrize("name", ["07_several_processes", "11_parts_in_several_processes"])
def test_two_processes_train_as_one_does_on_the_same_global_batch(
    name: str, tmp_path: Path
) -> None:
    script = str(ROOT / "examples" / f"{name}.py")

    def losses(*command: str) -> list[float]:
        told = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        return [float(number) for number in re.findall(r"\d+\.\d+", told.stdout)]

    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    shared, alone = losses(*launcher, script), losses(script, "2")
    assert len(shared) == 2 and shared == pytest.approx(alone, abs=1e-4)
