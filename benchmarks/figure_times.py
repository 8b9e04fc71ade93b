"""Every figure and table again: how long it takes, and whether its rows come out as committed.

    python benchmarks/figure_times.py quick --out benchmarks/results/quick.csv     # all of --quick
    python benchmarks/figure_times.py full --out benchmarks/results/full.csv     # the time of one run, from several in full size
    python benchmarks/figure_times.py whole --out benchmarks/results/whole.csv     # everything, and its rows beside the committed ones

Processor time of one thread of one process, without imports; kernels that are not compiled yet count. A figure is run on its default
data set, with GRAPHTHEORY_DATA also on real graphs; those whose files are missing are named and left out. The form `full` begins runs
until `budget` seconds are spent, spread over the settings of the figure, and at least one; it is no more than a look at how long all of
them take, and says how many it timed. `make docs` puts the times into the gallery.

Rows agree to rounding if they differ by at most 1e-6 of the committed value and 1e-9. Training amplifies roundings, which differ from
processor to processor, and so do counts of wrong answers; of the others it is told by what share of the largest row of the same name they are off.
"""  # noqa: E501

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from _rows import ROOT, save, show

from graphtheory.lab.bench.rows import Environment, Row, lines_of
from graphtheory.lab.cli.show import data_root
from graphtheory.lab.datasets.catalogue import key
from graphtheory.papers.figure import Figure, Report, figures
from graphtheory.papers.grid import Grid

RESULTS = ROOT / "benchmarks" / "results"
ROUNDING, _NOTHING = 1e-6, 1e-9
_GOLDEN = (5**0.5 - 1) / 2


def whole(figure: Figure, grid: Any) -> tuple[float, Report]:
    """Seconds of processor time for measuring and reporting, and the report."""
    start = time.process_time()
    report = figure.report(grid, grid.measure(figure.run))
    return time.process_time() - start, report


def some(figure: Figure, grid: Any, budget: float) -> Iterator[float]:
    """Seconds of processor time of each run that is begun within the budget.

    Raises:
        NotImplementedError: Which runs there are depends on what others found.
    """
    if type(grid).measure is not Grid.measure:
        raise NotImplementedError("its runs depend on what others found; not timed one by one")
    cells, begun = grid.cells(), time.process_time()
    for place in spread(len(cells)):
        start = time.process_time()
        figure.run(grid, **cells[place])
        yield time.process_time() - start
        if time.process_time() - begun > budget:
            return


def spread(count: int) -> list[int]:
    """0, ..., count - 1, each once, so that the first few lie far from each other."""
    return np.argsort(np.argsort(np.arange(count) * _GOLDEN % 1)).tolist()


def beside_committed(report: Report, committed: Path, **about: Any) -> list[Row]:
    """How many rows agree with the committed ones, and how far off the others are."""
    with committed.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    old = {(line["name"], line["parameters"]): float(line["value"]) for line in lines}
    largest: dict[str, float] = {}
    for (name, _), value in old.items():
        largest[name] = max(largest.get(name, _NOTHING), abs(value))
    agree, others = [], []
    for line in lines_of(report.rows, Environment.here()):
        there = old.get((line["name"], line["parameters"]))
        off = None if there is None else abs(line["value"] - there)
        agree.append(float(there is not None and not off > ROUNDING * abs(there) + _NOTHING))
        if not agree[-1]:  # a row that was not committed is as far off as can be
            others.append(1.0 if off is None else off / largest[line["name"]])
    return [
        Row.of("share of rows that agree to rounding", agree, "1", **about),
        Row.of("others: off by what share of the largest of the name", others or 0.0, "1", **about),
    ]


def main(
    form: tyro.conf.Positional[Literal["quick", "full", "whole"]],
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    budget: float = 20,
    out: Path | None = None,
) -> None:
    """Run the figures, print their times and write the rows.

    Args:
        form: What is run.
        only: IDs; every one if empty.
        without: IDs that are left out.
        budget: Seconds a figure in the form `full`.
        out: File of rows, written after each figure.
    """
    torch.set_num_threads(1)
    for name, figure in figures().items():
        if (only and name not in only) or name in without:
            continue
        dataset = figure.data.default if figure.data else ""
        about = {"figure": name} | ({"dataset": dataset} if dataset else {})
        try:
            grid = figure.settings(dataset, data_root(None), quick=form == "quick")
            if form == "full":
                about["runs"] = len(grid.cells())
                seconds = list(some(figure, grid, budget))
                rows = [Row.of("processor time of a run of reproduce", seconds, "s", **about)]
            else:
                took, report = whole(figure, grid)
                what = "reproduce --quick" if form == "quick" else "reproduce"
                rows = [Row.of(f"processor time of {what}", took, "s", **about)]
        except (FileNotFoundError, NotImplementedError) as why:
            print(f"{name}: {str(why).splitlines()[0]}", file=sys.stderr)
            continue
        committed = RESULTS / f"{'-'.join(filter(None, (name, key(dataset))))}.csv"
        if form == "whole" and committed.exists():
            rows += beside_committed(report, committed, **about)
        show(rows)
        if out is not None:
            save(rows, out, tested=True)  # speed of kernels is not what it is about


if __name__ == "__main__":
    tyro.cli(main)
