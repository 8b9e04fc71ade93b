"""Time of attention, forward and backward, with node ids of 32 bits beside 64, on a CPU.

    python benchmarks/indices.py --out benchmarks/results/cpu-indices.csv

The kernels alone, without autograd and without the conversion of `Neighborhood.to_int32`. Outputs
and gradients are the same bits.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from _graphs import Graph, Shape, settings
from _rows import ratios, save, seconds, show
from ops import draw
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.lab.bench.rows import Row
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends.cpu import kernels
from graphtheory.ops.call import Call, structure


def step(parts: list[Tensor], nodes: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward, without autograd."""
    scale = nodes[0].size(2) ** -0.5
    out, saved = kernels.attention(*parts[:2], *nodes, None, None, None, scale, 0.0, None)
    given = (*parts, grad, *nodes, saved, None, 0, scale, 0.0, None)
    return out, *kernels.attention_backward(*given, bias=None, table=None)[:3]


def measure(
    nb: Neighborhood, shape: tuple[int, int], about: dict[str, Any], repeats: int
) -> list[Row]:
    """The rows of one graph and shape."""
    leaves, grad = draw(nb.num_dst, *shape)
    nodes = [leaf.detach() for leaf in leaves]
    works = {}
    for bits, of in ((64, nb), (32, nb.to_int32())):
        parts = structure(Call("aggregate", of, tuple(leaves)), BACKENDS["numba_csr"])
        works[f"forward+backward, {bits}-bit ids"] = partial(step, parts, nodes, grad)
    assert all(torch.equal(a, b) for a, b in zip(*(w() for w in works.values()), strict=True))
    times = seconds(works, repeats)
    share = ratios(*reversed(times.values()))
    return [
        *(Row.of(name, taken, "s", **about) for name, taken in times.items()),
        Row.of("time with 32-bit ids as a share of 64", share, "1", **about),
    ]


def main(
    graphs: tuple[Graph, ...] = ("molecules", "pubmed", "k16", "arxiv"),
    shapes: tuple[Shape, ...] = ("8x16",),
    threads: int = 2,
    repeats: int = 15,
    out: Path | None = None,
) -> None:
    """Time ids of 32 bits beside 64.

    Args:
        graphs: Names in `_graphs.GRAPHS`.
        shapes: Heads x features of a head.
        threads: Of torch and of the kernels.
        repeats: Rounds.
        out: CSV file to put the rows of each shape in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    for nb, shape, about in settings(graphs, shapes, threads):
        rows = measure(nb, shape, about, repeats)
        show(rows)
        if out is not None:
            save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
