"""How much memory a stretch of work takes at its peak."""

from __future__ import annotations

from pathlib import Path

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Peak memory from `start` to the latest `update`, above what was in use at the start.

    On a GPU: what torch's allocator handed out. Otherwise the resident memory of this process,
    whose high-water mark Linux lets a process reset; DataLoader workers do not count. Edge of the
    domain: where there is no such mark (another system than Linux) the figure is NaN.

    Example:
        >>> memory = PeakMemory()
        >>> memory.start()
        >>> memory.update()
        >>> memory.megabytes >= 0 or not _RESET.exists()
        True
    """

    def __init__(self) -> None:
        self.megabytes = 0.0  # MB of 10^6 bytes; set it to go on with work that was interrupted
        self._began = 0

    def start(self) -> None:
        """Count from here."""
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self._began = torch.cuda.memory_allocated()
        elif _RESET.exists():
            _RESET.write_text("5")
            self._began = _status_bytes("VmRSS")

    def update(self) -> None:
        """Take the peak up to now into account."""
        if torch.cuda.is_available():
            peak = torch.cuda.max_memory_allocated()
        elif _RESET.exists():
            peak = _status_bytes("VmHWM")
        else:
            self.megabytes = float("nan")
            return
        self.megabytes = max(self.megabytes, (peak - self._began) / 1e6)


def _status_bytes(field: str) -> int:
    line = next(s for s in _STATUS.read_text().splitlines() if s.startswith(field))
    return int(line.split()[1]) * 1024
