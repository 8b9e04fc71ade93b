"""Benchmarks: trials, search on validation, finished runs, rows, diagnosis.

The package can be called: ``graphtheory.bench(data)`` is `bench.compare.compare`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphtheory.bench.comparison import Comparison


class _Bench(ModuleType):
    """A package that can be called."""

    def __call__(self, data: Any, *args: Any, **options: Any) -> Comparison:
        """Train models side by side and compare them; see `bench.compare.compare`.

        Example:
            >>> import graphtheory
            >>> short = {"seeds": 1, "epochs": 2, "progress": False}
            >>> found = graphtheory.bench("karate", ("gt", "mlp"), **short)
            >>> [run.model for run in found.runs]
            ['gt', 'mlp']
        """
        from graphtheory.bench.compare import compare

        return compare(data, *args, **options)


sys.modules[__name__].__class__ = _Bench
