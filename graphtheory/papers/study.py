"""Studies: lists of runs, of which those that are finished can be kept in a file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

from graphtheory.bench.lines import add_line, whole_lines
from graphtheory.papers.side_by_side import side_by_side

Progress = Callable[[str, int, int], None]
"""(name, runs done or begun, runs in all), called before each run."""
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
    """A list of steps, and the rows that all of them make.

    Attributes:
        side_by_side: Whether several steps may run at once, on a thread each: they must draw from
            generators of their own.
    """

    side_by_side: ClassVar[bool] = False

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
        keys = [_key(step.settings) for step in steps]
        todo = {key: step for key, step in zip(keys, steps, strict=True) if key not in known}
        begun, alone = count(len(steps) - len(todo)), Lock()

        def finish(item: tuple[str, Step]) -> None:
            key, step = item
            with alone:
                progress(step.name, next(begun), len(steps))
            rows = step.run()
            with alone:
                known[key] = rows
                if kept is not None:
                    add_line(kept, {"settings": step.settings, "rows": rows})

        if self.side_by_side:
            side_by_side(finish, list(todo.items()))
        else:
            for item in todo.items():
                finish(item)
        return [row for key in keys for row in known[key]]


def _key(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
