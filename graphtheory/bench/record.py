"""Benchmarks whose finished runs are kept in a file, so that nothing is lost when one stops."""

from __future__ import annotations

import ctypes
import gc
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphtheory.bench.lines import add_line, whole_lines
from graphtheory.bench.node_benchmark import Benchmark, Run
from graphtheory.data.catalogue import key


class Record:
    """Finished runs, one JSON line each, every line with the settings that it was made under.

    A line that a crash cut short is dropped.

    Args:
        path: The file; its folder is made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = whole_lines(path, {"settings", "run"})

    def find(self, settings: dict[str, Any], model: str, seed: int) -> Run | None:
        """The run of a model on a seed, None where there is none yet.

        Raises:
            ValueError: There is one, made under other settings; names the first difference.
        """
        for line in self.lines:
            run = line["run"]
            if (run["model"], run["seed"]) == (model, seed):
                if line["settings"] != settings:
                    raise ValueError(
                        f"out: {self.path} holds {model} under other settings: "
                        f"{_difference(line['settings'], settings)}; expected the same settings "
                        "or another folder"
                    )
                return Run(**run)
        return None

    def add(self, settings: dict[str, Any], run: Run) -> None:
        """Append a run, on the disk before this returns."""
        line = {"settings": settings, "run": asdict(run)}
        add_line(self.path, line)
        self.lines.append(line)


@dataclass(frozen=True)
class RecordedBenchmark(Benchmark):
    """A benchmark that takes runs from a record and adds those that are missing.

    Attributes:
        record: Where runs are kept.
        finished: Called with each run that was trained now.
    """

    record: Record = field(kw_only=True)
    finished: Callable[[Run], None] = field(kw_only=True, default=lambda _: None)

    def settings(self, model: str) -> dict[str, Any]:
        """What a run of this model has to agree in."""
        trial, epochs, patience = self.trial(model)
        settings = {
            "dataset": key(self.dataset), "split": self.split,
            "epochs": epochs, "patience": patience, **trial.as_dict(),
        }  # fmt: skip
        return json.loads(json.dumps(settings))

    def check(self) -> int:
        """How many of the runs the record holds already.

        Raises:
            ValueError: It holds some of them, made under other settings.
        """
        runs = [(model, seed) for seed in range(self.seeds) for model in self.models]
        return sum(self.record.find(self.settings(m), m, seed) is not None for m, seed in runs)

    def _one(self, model: str, seed: int) -> Run:
        settings = self.settings(model)
        run = self.record.find(settings, model, seed)
        if run is None:
            _give_memory_back()
            run = self._trained(model, seed)
            self.record.add(settings, run)
            self.finished(run)
        return run


def _give_memory_back() -> None:
    """Hand freed memory to the system: what a run reuses of it would be missing from its peak."""
    gc.collect(1)  # a full one would take longer than a small run
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:  # glibc has it
        trim(0)


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    for name in {**there, **here}:
        if there.get(name) != here.get(name):
            return f"{name} {there.get(name)} there, {here.get(name)} here"
    return ""
