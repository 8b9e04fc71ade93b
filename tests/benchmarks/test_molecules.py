"""A quick run of the benchmark of small graphs compares gradients before it times anything."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "molecules.py"


def test_a_quick_run_finds_the_same_gradients() -> None:
    command = [sys.executable, str(SCRIPT), "--threads", "1", "--quick"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    gap = re.search(r"largest relative difference of the gradients +(\S+)", result.stdout)
    assert gap is not None and float(gap[1]) < 1e-10
    assert "step, GPSConv, PyG over GPSConv, ours, distances" in result.stdout
