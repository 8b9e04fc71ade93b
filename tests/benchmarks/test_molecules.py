"""A quick run of the benchmark of small graphs compares gradients before it times anything."""

import re

from tests.benchmarks.conftest import run


def test_a_quick_run_finds_the_same_gradients() -> None:
    result = run("molecules", "--threads", "1", "--quick")
    assert result.returncode == 0, result.stderr
    gap = re.search(r"largest relative difference of the gradients +(\S+)", result.stdout)
    assert gap is not None and float(gap[1]) < 1e-10
    assert "step, GPSConv, PyG over GPSConv, ours, distances" in result.stdout
