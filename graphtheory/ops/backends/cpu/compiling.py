"""How loops and their parts become machine code, which numba makes when it is first needed.

`launch` calls loops. A part is what a loop does to a chunk, a row or a tile: `part` compiles it
into each caller, `shared_part` once for all. Either way each machine code is optimized alone: its
bits do not depend on what else was compiled, or loaded from disk before. A part that stayed a
function as numba makes it would stand in the code of every caller, optimized with that, and the
linker would take the copy that the process met first.

Arrays are not reference-counted in parts: each that is named would cost an atomic call, and threads
would wait for one another. So a part cannot allocate, and is given what it works in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import njit, types
from numba.core import cgutils
from numba.extending import lower_builtin, type_callable

from graphtheory.graph import compiling

MATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reassociated; NaN and infinity keep their meaning."""
_OF_PARTS = {"fastmath": MATH, "_nrt": False, "no_cfunc_wrapper": True}
_PREFIX = "graphtheory"  # of symbols

_in_memory: dict[str, Any] = {}  # shared functions, by their symbols


kept_on_disk = partial(compiling.kept_on_disk, Path(__file__).parent)
"""Every function of this backend that goes to disk is compiled by this."""


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part into each loop and part that calls it."""
    return njit(forceinline=True, **_OF_PARTS)(function)


def shared_part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part once for each combination of argument types, for all its callers.

    The call costs as much as a few edges, so that this is for what is done to a chunk or a tile.
    """

    @type_callable(function)
    def typed(_context):
        def typer(*kinds):
            symbol = _load(function, *map(types.unliteral, kinds))
            return _in_memory[symbol].signature.return_type

        typer.pysig = signature(function)  # type: ignore[attr-defined]
        return typer

    @lower_builtin(function, types.VarArg(types.Any))
    def called(context, builder, given, args):
        kinds = [types.unliteral(kind) for kind in given.args]
        values = list(map(partial(context.cast, builder), args, given.args, kinds))
        return call_shared(context, builder, function, kinds, values)

    return function


def call_shared(
    context: Any, builder: Any, function: Callable[..., Any], kinds: Sequence[Any],
    args: Sequence[Any],
) -> Any:  # fmt: skip
    """The code of a call of a function that is compiled once, and what it returns.

    Where the caller comes from disk, numba loads the function before it.
    """
    load = partial(_load, function, *kinds)
    context.active_code_library._reload_init.add(load)
    convention, symbol = context.call_conv, load()
    out = _in_memory[symbol].signature.return_type
    kind = convention.get_function_type(out, kinds)
    callee = cgutils.get_or_insert_function(builder.module, kind, symbol)
    status, found = convention.call_function(builder, callee, out, kinds, args)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return found


def _load(function: Callable[..., Any], *kinds: Any) -> str:
    """Compile a function, or load it from disk, unless it is in memory; its symbol."""
    name = f"{function.__module__}.{function.__qualname__}{kinds}"
    symbol = f"{_PREFIX}.{function.__name__}.{sha256(name.encode()).hexdigest()[:16]}"
    if symbol not in _in_memory:
        compiled = kept_on_disk(function, no_cpython_wrapper=True, **_OF_PARTS)
        compiled.compile(kinds)
        code = compiled.overloads[kinds]
        address = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
        binding.add_symbol(symbol, address)
        _in_memory[symbol] = code
    return symbol
