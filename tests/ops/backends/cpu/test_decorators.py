"""What a compiled loop calls is compiled into it: bits depend on nothing compiled before."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import pytest
from numba import njit
from numba.core.dispatcher import Dispatcher

from graphtheory.ops.backends import cpu
from graphtheory.ops.backends.cpu.decorators import MATH, part

MODULES = [import_module(m.name) for m in walk_packages(cpu.__path__, f"{cpu.__name__}.")]


def called(function: Any) -> Iterator[Dispatcher]:
    """Compiled functions that a function names."""
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, Dispatcher):
            yield found


def free_to_differ(function: Dispatcher) -> bool:
    """Whether its sums may be reordered, and are so anew in each loop that links a copy of it."""
    options = function.targetoptions
    return bool(options.get("fastmath")) and not options.get("forceinline")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.partition("cpu.")[2])
def test_what_a_loop_calls_is_part_of_it(module: ModuleType) -> None:
    functions = [getattr(f, "py_func", f) for f in vars(module).values()]
    own = [f for f in functions if getattr(f, "__module__", None) == module.__name__]
    loops = [f for f in own if hasattr(f, "__code__")]
    assert not [(f.__name__, g) for f in loops for g in called(f) if free_to_differ(g)]


def test_a_function_of_its_own_would_be_found() -> None:
    def square(x):
        return x * x

    assert free_to_differ(njit(cache=True, fastmath=MATH)(square))
    assert not free_to_differ(part(square))
