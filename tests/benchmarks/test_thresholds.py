"""Both sides of every constant are timed, at the value that the kernels read."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from graphtheory.ops.backends.cpu import memory


def test_sizes_lie_on_both_sides(module: ModuleType) -> None:
    for name, constant in module.CONSTANTS.items():
        value = getattr(import_module(constant.module), name)
        sides = {constant.size(case) < value for case in constant.cases}
        assert value > 1 and sides == {True, False}, name


def test_a_process_takes_one_way(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    small = (module.Case(5, 3, 2, 4), module.Case(7, 2, 1, 8))
    constant = module.CONSTANTS["WHOLE_ROWS_BELOW"]._replace(cases=small)
    monkeypatch.setitem(module.CONSTANTS, "WHOLE_ROWS_BELOW", constant)
    monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", memory.WHOLE_ROWS_BELOW)  # undone afterwards
    monkeypatch.setattr(module, "_SHORT", 0.0)
    asked, sent = [0, 1, 0, None], []  # cases, then the end
    line = SimpleNamespace(recv=lambda: asked.pop(0), send=sent.append)
    module.serve(line, "WHOLE_ROWS_BELOW", 1, 1)
    assert memory.WHOLE_ROWS_BELOW == 1
    assert len(sent) == 3 and min(sent) > 0


def test_a_row_tells_the_other_s_cost(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way below the constant takes 1 second here, the way above it 2."""

    @contextmanager
    def fixed(name: str, value: int, threads: int) -> Any:
        yield lambda place: 1.0 if value > 1 else 2.0

    monkeypatch.setattr(module, "at_all_sizes", fixed)
    constant = module.CONSTANTS["FAR"]
    rows = module.measure("FAR", 3, 1)
    for case, row in zip(constant.cases, rows, strict=True):
        below = constant.size(case) < row.parameters["FAR"]
        assert row.median == (2.0 if below else 0.5) and row.repeats == 3
        assert row.name.startswith(constant.above if below else constant.below)
