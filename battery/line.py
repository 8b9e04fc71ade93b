"""What one part of the battery found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Line:
    """Trials of one promise, and of a control that has to break it.

    Attributes:
        part: Name of the part.
        promise: What has to hold, in words.
        trials: How often it was tried.
        broken: What broke it, a sentence each.
        control: What was broken on purpose, in words.
        planted: How many faults that was.
        caught: How many of them were seen.
        least_caught: Share of the planted faults that has to be seen.
        figures: Other numbers worth telling.
        seconds: Time of all.
    """

    part: str
    promise: str
    control: str
    least_caught: float = 1.0
    trials: int = 0
    broken: list[str] = field(default_factory=list)
    planted: int = 0
    caught: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing broke the promise and the control saw what was planted."""
        seen = self.planted > 0 and self.caught >= self.least_caught * self.planted
        return self.trials > 0 and not self.broken and seen

    @property
    def bound(self) -> float:
        """Upper end of the 95 % interval of the share that breaks the promise, after no failure."""
        return 3 / max(1, self.trials)

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, and whether it holds."""
        return asdict(self) | {"holds": self.holds}

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "BROKEN"
        told = [f"{len(self.broken)} of {self.trials:,} trials break it"]
        if not self.broken:
            told[0] += f" (95 % bound {100 * self.bound:.2g} %)"
        told += [f"control, {self.control}: {self.caught} of {self.planted} seen"]
        told += [f"{name} {value}" for name, value in self.figures.items()]
        lines = [f"{self.part}: {self.promise}: {verdict}; {'; '.join(told)}; {self.seconds:.0f} s"]
        return "\n".join(lines + [f"    {one}" for one in self.broken[:10]])


@contextmanager
def timed(line: Line) -> Iterator[Line]:
    """Count the seconds of a block."""
    start = time.monotonic()
    yield line
    line.seconds += time.monotonic() - start


Part = Callable[[float, int], list[Line]]
"""(share of the full number of trials, seed) -> lines."""
