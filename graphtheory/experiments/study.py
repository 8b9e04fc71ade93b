"""Studies: lists of runs, of which those that are finished can be kept in a file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphtheory.experiments.lines import add_line, whole_lines

Progress = Callable[[str, int, int], None]
"""(name, runs done, runs in all), called before each run."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One run of a study.

    Attributes:
        name: What progress shows.
        settings: All that decides its rows, as plain values.
        run: Makes its rows, of plain values.
    """

    name: str
    settings: dict[str, Any]
    run: Callable[[], list[Row]]


class Study(ABC):
    """A list of steps, and the rows that all of them make."""

    @abstractmethod
    def steps(self) -> list[Step]:
        """What is to be run, in this order."""

    def run(self, progress: Progress = lambda *_: None, *, kept: Path | None = None) -> list[Row]:
        """The rows of all steps.

        Args:
            progress: Called before each step that is run.
            kept: A file where each step's rows are added when it ends, one JSON object a line;
                steps whose settings stand there are not run again.

        Raises:
            ValueError: `kept` is no such file.
        """
        steps = self.steps()
        lines = [] if kept is None else whole_lines(kept, {"settings", "rows"})
        known = {_key(line["settings"]): line["rows"] for line in lines}
        rows: list[Row] = []
        for done, step in enumerate(steps):
            key = _key(step.settings)
            if key not in known:
                progress(step.name, done, len(steps))
                known[key] = step.run()
                if kept is not None:
                    add_line(kept, {"settings": step.settings, "rows": known[key]})
            rows += known[key]
        return rows


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
