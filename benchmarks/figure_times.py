"""Processor time of `graphtheory reproduce ID`, for every figure and table whose data is there.

    python benchmarks/figure_times.py quick --out benchmarks/results/quick.csv     # all of --quick
    python benchmarks/figure_times.py full --out benchmarks/results/full.csv     # the time of one run, from several in full size

One thread of one process, without imports; kernels that are not compiled yet count. A figure is run on its default data set, with
GRAPHTHEORY_DATA also on real graphs; those whose files are missing are named and left out. The full form begins runs until `budget`
seconds are spent, spread over the settings of the figure, and at least one; it is no more than a look at how long all of them take, and
says of how many it knows. `make docs` puts the times into the gallery.
"""  # noqa: E501

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from _rows import save, show

from graphtheory.bench.rows import Row
from graphtheory.cli.show import data_root
from graphtheory.papers.figure import Figure
from graphtheory.papers.grid import Grid
from graphtheory.papers.index import figures

_GOLDEN = (5**0.5 - 1) / 2


def quick(figure: Figure, grid: Any) -> Iterator[float]:
    """Seconds of processor time for measuring and reporting."""
    start = time.process_time()
    figure.report(grid, grid.measure(figure.run))
    yield time.process_time() - start


def full(figure: Figure, grid: Any, budget: float) -> Iterator[float]:
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


def main(
    form: tyro.conf.Positional[Literal["quick", "full"]],
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    budget: float = 20,
    out: Path | None = None,
) -> None:
    """Run, print and write.

    Args:
        form: Of the figures.
        only: IDs; every one if empty.
        without: IDs that are left out.
        budget: Seconds a figure in the full form.
        out: File of rows, written after each figure.
    """
    torch.set_num_threads(1)
    for name, figure in figures().items():
        if (only and name not in only) or name in without:
            continue
        dataset = figure.data.default if figure.data else ""
        try:
            grid = figure.settings(dataset, data_root(None), quick=form == "quick")
            taken = quick(figure, grid) if form == "quick" else full(figure, grid, budget)
            seconds = list(taken)
        except (FileNotFoundError, NotImplementedError) as why:
            print(f"{name}: {str(why).splitlines()[0]}", file=sys.stderr)
            continue
        about = {"figure": name} | ({"dataset": dataset} if dataset else {})
        if form == "full":
            about["runs"] = len(grid.cells())
        what = "reproduce --quick" if form == "quick" else "a run of reproduce"
        rows = [Row.of(f"processor time of {what}", seconds, "s", **about)]
        show(rows)
        if out is not None:
            save(rows, out, tested=True)  # speed of kernels is not what it is about


if __name__ == "__main__":
    tyro.cli(main)
