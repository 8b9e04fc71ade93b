import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark; what it imports beside it is forgotten afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for path in BENCHMARKS.glob("*.py"):
        monkeypatch.setitem(sys.modules, path.stem, None)
        del sys.modules[path.stem]
    return importlib.import_module


@pytest.fixture
def module(script: Callable[[str], ModuleType], request: pytest.FixtureRequest) -> ModuleType:
    """The benchmark that the file of the test is named after."""
    return script(request.path.stem.removeprefix("test_"))


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A benchmark in a process of its own."""
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)
