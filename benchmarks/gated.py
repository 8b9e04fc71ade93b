"""Gated graph convolutions, forward and backward: time and extra peak memory beside PyG's.

    python benchmarks/gated.py --out benchmarks/results/cpu-gated.csv

Whole layers, linear maps included: `ResGatedGraphConv` beside PyG's without and with features of
edges, and `GatedGCNConv` beside its formula by PyG's `scatter`. Molecules are chains with
rings. Outputs and gradients are compared before anything is timed. Extra peak memory is that of
`memory.py`, in a process whose malloc gives large blocks back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import tyro
from _graphs import molecules
from _rows import ratios, save, seconds, show
from memory import MIB, in_a_fresh_process, peak_of
from ops import random_graph
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.utils import scatter

from graphtheory import nn
from graphtheory.lab.bench.rows import Row

EDGE_DIM = 16
MOLECULES = 256
Name = Literal[
    "PyG", "ResGatedGraphConv", "PyG, edge features", "ResGatedGraphConv, edge features",
    "formula", "GatedGCNConv",
]  # fmt: skip
BESIDE: dict[Name, Name] = {
    "ResGatedGraphConv": "PyG", "ResGatedGraphConv, edge features": "PyG, edge features",
    "GatedGCNConv": "formula",
}  # fmt: skip
Step = Callable[[], list[Tensor]]


class Formula(nn.GatedGCNConv):
    """GatedGCN with one tensor for each part of a message."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        (j, i), nodes = edge_index, len(x)
        states = self.lin_edge(edge_attr) + self.lin_query(x)[j] + self.lin_key(x)[i]
        gates = states.sigmoid()
        sums = scatter(gates * self.lin_value(x)[j], i, 0, nodes)
        out = sums / (scatter(gates, i, 0, nodes) + self.eps)
        return self.lin_skip(x) + out + self.bias, states


MAKERS: dict[Name, Callable[[int], torch.nn.Module]] = {
    "PyG": lambda width: pyg.ResGatedGraphConv(width, width),
    "ResGatedGraphConv": lambda width: nn.ResGatedGraphConv(width, width),
    "PyG, edge features": lambda w: pyg.ResGatedGraphConv(w, w, edge_dim=EDGE_DIM),
    "ResGatedGraphConv, edge features": lambda w: nn.ResGatedGraphConv(w, w, edge_dim=EDGE_DIM),
    "formula": lambda width: Formula(width, width, EDGE_DIM),
    "GatedGCNConv": lambda width: nn.GatedGCNConv(width, width, EDGE_DIM),
}


def step_of(name: Name, nodes: int, edges: int, width: int) -> Step:
    """Outputs, and gradients of the input and of every parameter; without nodes of molecules."""
    torch.manual_seed(0)
    layer, generator = MAKERS[name](width), torch.Generator().manual_seed(1)
    edge_index = random_graph(nodes, edges) if nodes else molecules(MOLECULES).edge_index()
    x = torch.randn(int(edge_index.max()) + 1, width, generator=generator).requires_grad_()
    edge_attr = torch.randn(edge_index.size(1), EDGE_DIM, generator=generator)
    given = () if name in ("PyG", "ResGatedGraphConv") else (edge_attr,)
    leaves = [x, *layer.parameters()]

    def step() -> list[Tensor]:
        out: Any = layer(x, edge_index, *given)
        outs = out if isinstance(out, tuple) else (out,)
        above = [torch.ones_like(one) for one in outs]
        return [*(one.detach() for one in outs), *torch.autograd.grad(outs, leaves, above)]

    return step


def assert_close(found: list[Tensor], theirs: list[Tensor]) -> None:
    """Each result to a part in 20,000 of its largest entry."""
    for a, b in zip(found, theirs, strict=True):
        assert float((a - b).abs().max()) <= 5e-5 * max(1.0, float(b.abs().max()))


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    width: int = 64,
    threads: int = 2,
    repeats: int = 9,
    out: Path | None = None,
    measure: Name | None = None,
) -> None:
    """Time gated layers in float32 beside PyG's, and compare their memory.

    Args:
        nodes: Nodes of a uniform random graph.
        edges: Its edges.
        width: Features of a node before and after a layer.
        threads: Of torch and of the kernels.
        repeats: Rounds of times; a third as many processes for memory.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Print the extra peak memory of this layer alone, in this process.
    """
    torch.set_num_threads(threads)
    if measure is not None:
        step_of(measure, 100, 200, width)()  # what is loaded and compiled once
        print(peak_of(step_of(measure, nodes, edges, width)))
        return
    rows: list[Row] = []
    for graph, sizes in (("random", (nodes, edges)), ("molecules", (0, MOLECULES))):
        about = {"graph": graph, "nodes": sizes[0], "edges": sizes[1], "width": width}
        row = partial(Row.of, **about, threads=threads)
        works = {name: step_of(name, *sizes, width) for name in get_args(Name)}
        for name, other in BESIDE.items():
            assert_close(works[name](), works[other]())
        times = seconds(dict(works), repeats)
        for name in works:
            rows.append(row(f"forward+backward, {name}", times[name], "s"))
        for name, other in BESIDE.items():
            rows.append(row(f"times faster, {name}", ratios(times[other], times[name]), "1"))
        if graph == "molecules":
            continue
        size = {"nodes": nodes, "edges": edges, "width": width, "threads": threads}
        peaks = {
            name: [
                in_a_fresh_process(__file__, name, returned=True, **size)
                for _ in range(-(-repeats // 3))
            ]
            for name in works
        }
        for name, taken in peaks.items():
            rows.append(row(f"extra memory needed, {name}", [t / MIB for t in taken], "MiB"))
        for name, other in BESIDE.items():
            shares = ratios(peaks[name], peaks[other])
            rows.append(row(f"share of the memory needed, {name}", shares, "1"))
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
