"""Refuse a result that cannot fit before computing it."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory this process may still take, in bytes: the host's or, where smaller, its container's; None if unknown."""
    known = [value for value in (_host_available(), _container_available()) if value is not None]
    return min(known, default=None)


def require_memory(what: str, needed: int, advice: str) -> None:
    """Raise MemoryError, naming the sizes and a cheaper way, when `needed` bytes are not available."""
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"{what} needs {needed / 2**30:.1f} GiB ({needed} bytes), "
            f"{available / 2**30:.1f} GiB are available; {advice}"
        )


def _host_available() -> int | None:
    if not _MEMINFO.exists():
        return None
    rows = (line.split() for line in _MEMINFO.read_text().splitlines())
    return next((int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"), None)


def _container_available() -> int | None:
    limit, usage = _CGROUP / "memory.max", _CGROUP / "memory.current"
    if not limit.exists() or not usage.exists() or limit.read_text().strip() == "max":
        return None
    return max(int(limit.read_text()) - int(usage.read_text()), 0)
