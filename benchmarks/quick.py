"""Processor time of `graphtheory reproduce ID --quick`, for every figure and table whose data is there.

    python benchmarks/quick.py --out benchmarks/results/quick.csv     # with GRAPHTHEORY_DATA, also those on real graphs

One thread of one process, without imports; kernels that are not compiled yet count. A figure is run on its default data set; those
whose files are missing are named and left out. `make docs` puts the times into the gallery.
"""  # noqa: E501

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import tyro
from _rows import save, show

from graphtheory.bench.rows import Row
from graphtheory.cli.show import data_root
from graphtheory.papers.figure import Figure
from graphtheory.papers.index import figures


def quick(figure: Figure) -> float:
    """Seconds of processor time for measuring and reporting.

    Raises:
        FileNotFoundError: Files of its data set are missing.
    """
    start = time.process_time()
    dataset = figure.data.default if figure.data else ""
    grid = figure.settings(dataset, data_root(None), quick=True)
    figure.report(grid, grid.measure(figure.run))
    return time.process_time() - start


def main(only: tuple[str, ...] = (), out: Path | None = None) -> None:
    """Run, print and write.

    Args:
        only: IDs; every one if empty.
        out: File of rows, written after each figure.
    """
    torch.set_num_threads(1)
    for name, figure in figures().items():
        if only and name not in only:
            continue
        try:
            seconds = quick(figure)
        except FileNotFoundError as missing:
            print(f"{name}: {str(missing).splitlines()[0]}", file=sys.stderr)
            continue
        about = {"figure": name} | ({"dataset": figure.data.default} if figure.data else {})
        rows = [Row.of("processor time of reproduce --quick", seconds, "s", **about)]
        show(rows)
        if out is not None:
            save(rows, out, tested=True)  # speed of kernels is not what it is about


if __name__ == "__main__":
    tyro.cli(main)
