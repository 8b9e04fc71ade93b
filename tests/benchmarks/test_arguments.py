"""An unknown name is a line and an exit code, not a traceback after minutes."""

import pytest

from tests.benchmarks.conftest import BENCHMARKS, run


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
    told = run(script, *arguments)
    assert told.returncode == 2
    assert word in told.stdout + told.stderr and "Traceback" not in told.stderr


@pytest.mark.parametrize("script", ["ops", "gpu", "indices", "sets", "flex", "predicted"])
def test_no_list_of_names_is_any_text(script: str) -> None:
    text = (BENCHMARKS / f"{script}.py").read_text().partition("def main(")[2]
    assert "Shape" in text and "tuple[str, ...]" not in text
