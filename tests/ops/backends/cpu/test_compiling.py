"""Machine code on disk: it counts while no file changes, and brings what it calls."""

import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from subprocess import run
from types import ModuleType

import numba
import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from graphtheory import structure
from graphtheory.graph import compiling
from graphtheory.ops.backends import cpu

SOFTMAX = """
import torch
from graphtheory.ops.backends.cpu import primitives
logits = torch.arange(24.0).reshape(12, 2).sin()
primitives.softmax_(torch.tensor([0, 5, 5, 12]), logits)
print(logits.tolist())
"""


def test_functions_that_a_loop_from_disk_calls_are_there_first(tmp_path) -> None:
    def softmax() -> str:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", SOFTMAX]
        return run(command, env=environment, check=True, capture_output=True, text=True).stdout

    found = softmax()
    code = {path.name.split("-")[0]: path for path in tmp_path.rglob("*.nbc")}
    assert {"rows.softmax", "rows.softmax_rows"} <= set(code)
    assert softmax() == found
    for path in tmp_path.rglob("rows.softmax_rows-*"):
        path.unlink()
    assert softmax() == found and code["rows.softmax_rows"].exists()


@pytest.mark.parametrize("part", [cpu, structure])
def test_every_function_on_disk_belongs_to_the_files_of_all(part: ModuleType) -> None:
    modules = [import_module(m.name) for m in walk_packages(part.__path__, f"{part.__name__}.")]
    functions = [f for m in modules for f in vars(m).values() if isinstance(f, Dispatcher)]
    kept = [f for f in functions if not isinstance(f._cache, NullCache)]
    digest = compiling._sources(Path(part.__path__[0]))
    assert len(kept) > 15
    assert all(f._cache._cache_file._source_stamp[1] == digest for f in kept)


def double(x: float) -> float:
    return 2 * x


def test_machine_code_of_changed_files_is_not_taken(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def hits() -> int:
        compiled = compiling.kept_on_disk(tmp_path, double)
        assert compiled(1.5) == 3
        return sum(compiled.stats.cache_hits.values())

    assert (hits(), hits()) == (0, 1)
    monkeypatch.setattr(compiling, "_sources", lambda folder: "another digest")
    assert (hits(), hits()) == (0, 1)
