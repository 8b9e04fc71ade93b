"""How long a search may be: a number of candidates for each model, or a length of time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Integral

_UNITS = {"s": 1, "m": 60, "h": 3600}  # seconds


@dataclass(frozen=True)
class Budget:
    """The same number of candidates for each model, or the same share of the time."""

    written: str  # as its user wrote it
    candidates: int | None = None  # for each model
    seconds: float | None = None  # for the whole search

    @classmethod
    def of(cls, given: object, least: int = 1) -> Budget:
        """Read a number of candidates, at least `least`, or a length of time such as "30m".

        Raises:
            TypeError: If it is neither a whole number nor text.
            ValueError: If the text is no such length, or the number is too small.
        """
        if not isinstance(given, Integral | str):
            raise TypeError(f"budget: got {given!r}, expected a whole number or text such as '30m'")
        text = str(given)
        number = re.fullmatch(r"(\d+)|(\d+\.?\d*)([smh])", text)
        if number and number[1] and int(text) >= least:
            return cls(text, candidates=int(text))
        if number and number[3] and float(number[2]):
            return cls(text, seconds=float(number[2]) * _UNITS[number[3]])
        first = " (the first are the defaults)" if least > 1 else ""
        raise ValueError(
            f"budget: got {text}, expected {least} or more candidates{first}, or a length of time "
            "such as 90s, 30m or 2h"
        )

    def __str__(self) -> str:
        """What the best is the best of, such as "16" and "a search of 30m"."""
        return self.written if self.seconds is None else f"a search of {self.written}"
