"""Accelerated layers on edges that each call sees for the first time, beside PyG's.

    python benchmarks/fresh_edges.py --out benchmarks/results/cpu-fresh-edges.csv

Graphs that are used once: batches of small graphs, samples of neighbors. Every call gets a new edge
list, of a pool of random graphs with four edges a node; below some number of edges an accelerated
layer runs as PyG's at such a call (`OnCore.pays_from`). Outputs are compared before anything is
timed. Processor time, which other work on the machine hardly changes, and wall-clock time.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Literal

import torch
import tyro
from _rows import ratios, save, show
from torch import Tensor, nn
from torch_geometric import nn as pyg

from graphtheory import accelerate
from graphtheory.lab.bench.rows import Row

LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "GINConv": lambda width: pyg.GINConv(nn.Linear(width, width)),
    "SAGEConv": lambda width: pyg.SAGEConv(width, width),
    "SAGEConv, max": lambda width: pyg.SAGEConv(width, width, aggr="max"),
    "GCNConv": lambda width: pyg.GCNConv(width, width),
    "GraphConv": lambda width: pyg.GraphConv(width, width),
    "SGConv": lambda width: pyg.SGConv(width, width, 2),
    "APPNP": lambda _: pyg.APPNP(3, 0.1),
    "ChebConv": lambda width: pyg.ChebConv(width, width, 3),
    "GATConv": lambda width: pyg.GATConv(width, width // 4, heads=4),
    "GATv2Conv": lambda width: pyg.GATv2Conv(width, width // 4, heads=4),
    "TransformerConv": lambda width: pyg.TransformerConv(width, width // 4, heads=4),
}
Layer = Literal[tuple(LAYERS)]
_SHORT = 0.03  # seconds of a row of calls
_POOL = 400_000  # edges of all graphs that take turns


def call_of(layer: nn.Module, x: Tensor, pool: list[Tensor], train: bool) -> Callable[[], object]:
    """A call on the next graph, as a new tensor; with gradients of x and parameters to train."""
    turn, _ = [0], layer.train(train)

    def call() -> object:
        turn[0] += 1
        edges = pool[turn[0] % len(pool)].clone()
        if not train:
            with torch.no_grad():
                return layer(x, edges)
        return torch.autograd.grad(layer(x, edges).sum(), [x, *layer.parameters()])

    return call


def in_a_row(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Processor and wall-clock seconds of a call, after one untimed."""
    call()
    processor, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        call()
    return (time.process_time() - processor) / calls, (time.perf_counter() - wall) / calls


def measure(name: Layer, edges: int, width: int, threads: int, repeats: int) -> list[Row]:
    """How many times as long PyG's layer takes, forward alone and with the backward pass."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    nodes = max(edges // 4, 10)
    x = torch.randn(nodes, width).requires_grad_()
    pool = [torch.randint(nodes, (2, edges)) for _ in range(max(2, min(40, _POOL // edges)))]
    layers = {"PyG": LAYERS[name](width)}
    layers["graphtheory"] = copy.deepcopy(layers["PyG"])
    accelerate(layers["graphtheory"])
    fresh = pool[0].clone()
    for _ in range(2):  # as PyG, where edges are few, then on the core
        torch.testing.assert_close(
            layers["graphtheory"](x, fresh), layers["PyG"](x, fresh), rtol=1e-4, atol=1e-4
        )
    rows = []
    for step in ("forward", "forward and backward"):
        calls = {who: call_of(of, x, pool, step != "forward") for who, of in layers.items()}
        count = ceil(_SHORT / in_a_row(calls["PyG"], 3)[1])
        found = [
            {who: in_a_row(call, count) for who, call in calls.items()} for _ in range(repeats)
        ]
        about = {"edges": edges, "width": width, "threads": threads}
        for place, clock in enumerate(("processor", "wall")):
            times = {who: [one[who][place] for one in found] for who in calls}
            what = f"{name}, {step}, {clock} time"
            rows += [Row.of(f"{what}, {who}", taken, "s", **about) for who, taken in times.items()]
            faster = ratios(times["PyG"], times["graphtheory"])
            rows.append(Row.of(f"{what}, PyG over graphtheory", faster, "1", **about))
    return rows


def main(
    layers: tuple[Layer, ...] = tuple(LAYERS),
    edges: tuple[int, ...] = (100, 1_000, 3_000, 10_000, 30_000, 100_000),
    widths: tuple[int, ...] = (64,),
    threads: tuple[int, ...] = (1, 2),
    repeats: int = 9,
    out: Path | None = None,
) -> None:
    """Time layers on new edges in each call.

    Args:
        layers: Names.
        edges: Of each graph.
        widths: Channels in and out.
        threads: Of torch and of the kernels.
        repeats: Rounds; each times both layers.
        out: CSV file to put the ratios in, after the conformance tests.
    """
    rows = []
    for name in layers:
        for cell in ((e, w, t) for e in edges for w in widths for t in threads):
            found = measure(name, *cell, repeats)
            rows += (of_both := [row for row in found if "over" in row.name])
            show(of_both)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
