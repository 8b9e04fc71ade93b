"""How much memory a stretch of work took at its peak."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Peak memory inside a `with` block, above what was in use at its start.

    On a GPU: what torch's allocator handed out. Otherwise the resident memory of this process,
    whose high-water mark Linux lets us reset; DataLoader workers do not count. Edge of the domain:
    where there is no such mark (another system than Linux) the figure is NaN.

    Example:
        >>> with PeakMemory() as memory:
        ...     block = bytearray(10**7)
        >>> memory.megabytes != 0
        True
    """

    megabytes: float = float("nan")

    def __enter__(self) -> PeakMemory:
        self._cuda = torch.cuda.is_available()
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated()
        elif _RESET.exists():
            _RESET.write_text("5")
            self._start = _status_bytes("VmRSS")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._cuda:
            self.megabytes = (torch.cuda.max_memory_allocated() - self._start) / 1e6
        elif _RESET.exists():
            self.megabytes = (_status_bytes("VmHWM") - self._start) / 1e6


def _status_bytes(field: str) -> int:
    line = next(s for s in _STATUS.read_text().splitlines() if s.startswith(field))
    return int(line.split()[1]) * 1024
