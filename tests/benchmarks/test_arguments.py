"""An unknown name is a line and an exit code, not a traceback after minutes."""

import subprocess
import sys

import pytest

from tests.benchmarks.conftest import BENCHMARKS


@pytest.mark.parametrize(
    ("script", "arguments", "word"),
    [
        ("predicted", ("--graphs", "pubmad"), "pubmad"),
        ("predicted", ("--shapes", "8y16"), "8x16"),
        ("thresholds", ("--constants", "FAAR"), "FAR"),
        ("parts", ("--layer", "PyG GATv2Conv"), "GATv2Conv"),
    ],
)
def test_unknown_names_are_refused(script: str, arguments: tuple[str, ...], word: str) -> None:
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert word in run.stdout + run.stderr and "Traceback" not in run.stderr


@pytest.mark.parametrize("script", ["ops", "gpu", "indices", "sets", "flex", "predicted"])
def test_no_list_of_names_is_any_text(script: str) -> None:
    text = (BENCHMARKS / f"{script}.py").read_text().partition("def main(")[2]
    assert "Shape" in text and "tuple[str, ...]" not in text
