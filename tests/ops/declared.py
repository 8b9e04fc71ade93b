"""The operators of the library that have loops on a CPU, as they are declared."""

import gc

from graphtheory import ops  # noqa: F401  # which declares them
from graphtheory.ops.bounds import Layout

_OF_TRITON = ("graphtheory::look_up", "graphtheory::sum_by_row")


def declared_operators() -> dict[str, tuple[str, ...]]:
    """The words of each declaration, by the name of the operator."""
    gc.unfreeze()  # what was made before this file
    every = {one.name: one.words for one in gc.get_objects() if type(one) is Layout}
    return {name: words for name, words in every.items() if name not in _OF_TRITON}
