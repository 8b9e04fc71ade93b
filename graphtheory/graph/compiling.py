"""Says once a process that numba compiles kernels of this package, if that takes a while."""

import logging
from time import perf_counter
from typing import Any

from numba.core import event


class _Notice(event.Listener):
    """Warns by the logger "graphtheory"; parts of a kernel end long before the kernel does."""

    depth, start, told = 0, 0.0, False

    def on_start(self, found: Any) -> None:
        self.start = self.start if self.depth else perf_counter()
        self.depth += 1

    def on_end(self, found: Any) -> None:
        self.depth -= 1
        ours = found.data["dispatcher"].py_func.__module__.startswith("graphtheory.")
        if ours and not self.told and perf_counter() - self.start > 0.5:
            self.told = True
            logging.getLogger("graphtheory").warning(
                "graphtheory is compiling its CPU kernels, which takes some seconds, once; "
                "`graphtheory warmup` does so ahead of time"
            )


notice = _Notice()
event.register("numba:compile", notice)
