"""Kills: a run ends at any moment by SIGKILL, and goes on to the same bits."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from battery.child import EPOCHS, STAGES, Orders, run
from battery.forked import start
from battery.jobs import run_facts
from battery.line import Line, timed
from graphtheory.lab.train import CheckpointError

KILLS, CONTROLS = 1_000, 60
_MOST_KILLS = 3  # of one run
_SECONDS = 60.0  # after which a process hangs


class _Trials:
    """Runs that are killed, beside one that is not."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.rng, self.number = home, np.random.default_rng(seed), 0
        self.flag = home / "flag"
        self.flag.write_bytes(b"\0")
        self.kills = self.inside = 0
        for name in ("first", "whole"):  # the first starts the server that the others fork from
            began = time.monotonic()
            assert self._finish(home / name) == 0
            self.length = time.monotonic() - began
        self.expected = run_facts(home / "whole")

    def _finish(self, folder: Path) -> int | None:
        process = start(run, Orders(str(folder), str(self.flag)))
        process.join(_SECONDS)
        process.kill()
        return process.exitcode

    def one(self, *, unsafe: bool = False) -> str:
        """Up to three kills and the end of one run; what went wrong, "" if nothing."""
        self.number += 1
        folder = self.home / f"run-{self.number}"
        for _ in range(int(self.rng.integers(1, _MOST_KILLS + 1))):
            self._kill(folder, unsafe)
        if (code := self._finish(folder)) != 0:
            return f"run {self.number} did not go on (exit code {code})"
        try:
            found = run_facts(folder)
        except (CheckpointError, OSError) as error:
            return f"run {self.number}: {error}"
        if found != self.expected or len(found["history"]) != EPOCHS + 1:
            return f"run {self.number} ended otherwise than the one that was not killed"
        if left := list(folder.glob(".*.draft")):
            return f"run {self.number} leaves {left[0].name}"
        return ""

    def _kill(self, folder: Path, unsafe: bool) -> None:
        self.flag.write_bytes(b"\0")
        where = STAGES[int(self.rng.integers(len(STAGES)))]
        orders = Orders(str(folder), str(self.flag), where, int(self.rng.integers(6)), unsafe)
        if not unsafe and self.rng.random() < 0.5:  # from outside, at a random time
            orders = Orders(str(folder), str(self.flag), pause=0.01)
            process = start(run, orders)
            process.join(float(self.rng.uniform(0, self.length)))
            process.kill()
            process.join()
        else:
            process = start(run, orders)
            process.join(_SECONDS)
            process.kill()
        if process.exitcode is not None and process.exitcode < 0:
            self.kills += 1
            self.inside += self.flag.read_bytes() == b"\1"


def kills(share: float, seed: int) -> list[Line]:
    """1,000 kills, half of them at a chosen stage of a save."""
    line = Line(
        "kills", "a run that is killed goes on to the bits of one that is not",
        "runs whose saver writes over the old file", least_caught=0.1,
    )  # fmt: skip
    with timed(line), tempfile.TemporaryDirectory() as home:
        trials = _Trials(Path(home), seed)
        while trials.kills < round(share * KILLS):
            line.trials += 1
            if said := trials.one():
                line.broken.append(said)
        line.figures = {"kills": trials.kills, "inside a save": trials.inside}
        for _ in range(max(5, round(share * CONTROLS))):
            line.planted += 1
            line.caught += bool(trials.one(unsafe=True))
    return [line]
