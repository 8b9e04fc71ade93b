"""The operators of the library that have loops on a CPU, as they are declared."""

import gc
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from graphtheory import ops  # noqa: F401  # which declares them
from graphtheory.ops.bounds import Layout

_OF_TRITON = ("graphtheory::look_up", "graphtheory::sum_by_row")


def declared_operators() -> dict[str, tuple[str, ...]]:
    """The words of each declaration, by the name of the operator."""
    gc.unfreeze()  # what was made before this file
    every = {one.name: one.words for one in gc.get_objects() if type(one) is Layout}
    return {name: words for name, words in every.items() if name not in _OF_TRITON}


class Calls(TorchDispatchMode):
    """(operator, arguments, result) of each call of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func.namespace == "graphtheory":
            self.seen.append((func, args, found))
        return found
