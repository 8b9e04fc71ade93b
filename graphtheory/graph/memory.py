"""Refuse a result that does not fit into memory before computing it."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Bytes that this process can still allocate, on host and in container; None if unknown."""
    known = [value for value in (_host_available(), _container_available()) if value is not None]
    return min(known, default=None)


def require_memory(what: str, needed: int, advice: str) -> None:
    """Raise MemoryError, with the sizes and a cheaper way, if `needed` bytes are not available."""
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"{what} needs {needed / 2**30:.1f} GiB ({needed} bytes), "
            f"{available / 2**30:.1f} GiB are available; {advice}"
        )


def _host_available() -> int | None:
    if not _MEMINFO.exists():
        return None
    kibibytes = _field(_MEMINFO, "MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _container_available() -> int | None:
    limit, usage, stat = (_CGROUP / f"memory.{name}" for name in ("max", "current", "stat"))
    if not (limit.exists() and usage.exists() and stat.exists()):
        return None
    allowed = limit.read_text().strip()
    if allowed == "max":
        return None
    reclaimable = _field(stat, "inactive_file") or 0  # file cache counts as usage, but can be freed
    return max(int(allowed) - int(usage.read_text()) + reclaimable, 0)


def _field(path: Path, name: str) -> int | None:
    rows = (line.split() for line in path.read_text().splitlines())
    return next((int(row[1]) for row in rows if row[0] == name), None)
