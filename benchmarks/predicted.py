"""Bytes that attention must move forward and backward, and how long a GPU takes for them.

    python benchmarks/predicted.py --copy 4.8 --gather 2.4

It measures nothing. `anew` counts a node's row once for each edge that reads it, as
`_graphs.gathered` does: what a graph costs that no cache holds. `once` counts every row once: what
it costs where the last cache holds all of them. A time on the GPU should lie between `once` at the
speed of a copy and `anew` at the speed of a gather; both speeds are the first rows of
`benchmarks/gpu.py`, in bytes read and written.
"""

from __future__ import annotations

from typing import Literal

import tyro
from _graphs import GRAPHS, Graph, Shape, gathered

from graphtheory import Neighborhood

SIZES = {"bf16": 2, "fp32": 4}
HEADER = "| case | one tensor, MB | once, MB | anew, MB | at least, ms | at most, ms |"


def once(nb: Neighborhood, heads: int, head_dim: int, size: int) -> int:
    """Bytes of a forward and a backward pass that reads and writes every row of a node once.

    Forward q, k, v and the output, backward these, the output's gradient and three gradients; what
    is read and handed on by edge is that of `gathered`.
    """
    rows = (6 * nb.num_dst + 6 * nb.num_src) * heads * head_dim * size
    without_rows = gathered(nb, heads, 0, size)
    return rows + without_rows


def line(graph: str, nb: Neighborhood, shape: str, dtype: str, copy: float, gather: float) -> str:
    """One row of the table; speeds in TB/s."""
    heads, dim = (int(n) for n in shape.split("x"))
    least, most = (count(nb, heads, dim, SIZES[dtype]) for count in (once, gathered))
    node = 1e-6 * nb.num_src * heads * dim * SIZES[dtype]
    cells = [f"{graph} {shape} {dtype}", f"{node:.0f}", f"{1e-6 * least:.0f}", f"{1e-6 * most:.0f}"]
    cells += [f"{1e-9 * least / copy:.3f}", f"{1e-9 * most / gather:.3f}"]
    return f"| {' | '.join(cells)} |"


def main(
    graphs: tuple[Graph, ...] = ("pubmed", "arxiv", "molecules"),
    shapes: tuple[Shape, ...] = ("4x64", "8x16"),
    dtypes: tuple[Literal[tuple(SIZES)], ...] = tuple(SIZES),
    copy: float = 4.8,
    gather: float = 2.4,
) -> None:
    """Print the table of predicted times.

    Args:
        graphs: Of the graphs of `ops.py`.
        shapes: Heads x head_dim.
        dtypes: Of bf16, fp32.
        copy: TB/s of a copy.
        gather: TB/s of a gather of random rows.
    """
    print(HEADER, "| --- | --- | --- | --- | --- | --- |", sep="\n")
    for graph in graphs:
        nb = GRAPHS[graph]()
        for shape in shapes:
            for dtype in dtypes:
                print(line(graph, nb, shape, dtype, copy, gather))


if __name__ == "__main__":
    tyro.cli(main)
