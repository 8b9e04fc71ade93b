"""Remembered launches, on a pretended GPU in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")
HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[3] / "benchmarks"


@pytest.mark.timeout(400)  # the first time, kernels are compiled
def test_remembered_launches_are_those_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    if (reason := __import__("_stub").lacking()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", str(HERE / "launched.py"), "-q"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    path = os.pathsep.join([str(BENCHMARKS), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PRETENDED_GPU": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    environment.pop("PYTEST_XDIST_WORKER", None)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert "passed" in run.stdout and "skipped" not in run.stdout
