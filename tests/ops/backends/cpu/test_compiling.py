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

# Three processes, each with nothing compiled; the last one finds a loop without what it calls.
SOFTMAX = """
import os, sys
from pathlib import Path
import torch
from graphtheory.ops.backends.cpu import primitives

folder = Path(sys.argv[1])
for last in (False, False, True):
    _ = [path.unlink() for path in folder.rglob("rows.softmax_rows-*") if last]
    if not (child := os.fork()):
        logits = torch.arange(24.0).reshape(12, 2).sin()
        primitives.softmax_(torch.tensor([0, 5, 5, 12]), logits)
        print(logits.tolist(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    code = {path.name.split("-")[0] for path in folder.rglob("*.nbc")}
    assert {"rows.softmax", "rows.softmax_rows"} <= code
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_functions_that_a_loop_from_disk_calls_are_there_first(tmp_path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SOFTMAX, tmp_path]
    told = run(command, env=environment, check=True, capture_output=True, text=True).stdout
    first, *others = told.splitlines()
    assert others == [first, first]


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
