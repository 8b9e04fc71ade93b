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
    """The benchmark that the test is `of`, or that its file is named after."""
    return script(getattr(request, "param", request.path.stem.removeprefix("test_")))


def of(name: str) -> pytest.MarkDecorator:
    """The benchmark that `module` is in this test."""
    return pytest.mark.parametrize("module", [name], indirect=True)


@pytest.fixture
def in_this_process(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark measures memory in this process, not in one of its own."""

    def peak(script: str, *what: str, threads: int, **sizes: int) -> int:
        return max(module.extra_peak(*what, **sizes), 1)

    monkeypatch.setattr(module, "in_a_fresh_process", peak)


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A benchmark in a process of its own."""
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)
