"""How much memory a stretch of work takes at its peak."""

from __future__ import annotations

from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Peak memory since `start`, above what was in use then.

    On a GPU: what torch's allocator handed out. Otherwise the resident memory of this process,
    whose high-water mark Linux lets a process reset; DataLoader workers do not count. Edge of the
    domain: where there is no such mark (another system than Linux) the figure is NaN.

    Example:
        >>> memory = PeakMemory()
        >>> memory.start()
        >>> memory.megabytes >= 0 or not _RESET.exists()
        True
    """

    def __init__(self) -> None:
        self.earlier = 0.0  # MB at the peak of the same work before an interruption
        self._began: int | None = None

    def start(self) -> None:
        """Count from here."""
        self._began = 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self._began = torch.cuda.memory_allocated()
        elif _RESET.exists():
            _RESET.write_text("5")
            self._began = _status_bytes("VmRSS")

    @property
    def megabytes(self) -> float:
        """MB (10^6 bytes), up to now."""
        if self._began is None:
            return self.earlier
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated()
        elif _RESET.exists():
            peak = _status_bytes("VmHWM")
        else:
            return float("nan")
        return max(self.earlier, (peak - self._began) / 1e6)


def _status_bytes(field: str) -> int:
    line = next(s for s in _STATUS.read_text().splitlines() if s.startswith(field))
    return int(line.split()[1]) * 1024
