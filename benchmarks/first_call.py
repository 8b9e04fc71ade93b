"""How long the first step of a layer takes, compilation included, beside PyG's layer compiled.

    python benchmarks/first_call.py --out benchmarks/results/cpu-first-call.csv
    python benchmarks/first_call.py --together --out benchmarks/results/cpu-first-call.csv

The second one takes the processor time of the first steps of three layers, one after the other.

A step is forward and backward. Every number is of a fresh process, once with empty caches, as after
an installation, and once with what that process left there: numba's cache for ours, inductor's for
`torch.compile`. Imports are not counted, but for what the first step imports itself. The size of a
graph chooses our loops, so that another size may compile others.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE, run
from typing import Literal, get_args

import torch
import tyro
from _rows import beside, save, show
from ops import random_graph
from torch_geometric import nn as pyg

from graphtheory import nn
from graphtheory.lab.bench.rows import Row

Layer = Literal["GCNConv", "GATConv", "GATv2Conv", "TransformerConv"]
Form = Literal["graphtheory", "PyG, compiled"]
Number = Literal["float32", "float64"]
CASES: tuple[tuple[Layer, bool], ...] = (  # layers, and whether edges have features
    ("GCNConv", False), ("GATConv", False), ("TransformerConv", False), ("GATv2Conv", True),
    ("TransformerConv", True),
)  # fmt: skip
THREE = "SPDTransformerConv", "GATConv", "GCNConv"  # the last one takes no features of edges
CACHES = "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"


def first_step(name: Layer, form: Form, nodes: int, edges: int, edge_dim: int) -> float:
    """Seconds of the first forward and backward pass, with edge features unless `edge_dim` is 0."""
    options = {} if name == "GCNConv" else {"heads": 4, "edge_dim": edge_dim or None}
    make = getattr(nn if form == "graphtheory" else pyg, name)
    layer: torch.nn.Module = make(32, 16, **options)
    edge_index, x = random_graph(nodes, edges), torch.randn(nodes, 32, requires_grad=True)
    given = {"edge_attr": torch.randn(edges, edge_dim)} if edge_dim else {}
    start = time.perf_counter()
    model = layer if form == "graphtheory" else torch.compile(layer)
    model(x, edge_index, **given).sum().backward()
    return time.perf_counter() - start


def first_steps(dtype: Number, nodes: int, edges: int, edge_dim: int) -> float:
    """Seconds of processor time of the first steps of `THREE`; PyG is imported before."""
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, dtype))
    edge_index = random_graph(nodes, edges)
    start = time.process_time()
    for name in THREE:
        options = {} if name == "GCNConv" else {"heads": 4, "edge_dim": edge_dim or None}
        given = {"edge_attr": torch.randn(edges, edge_dim)} if options.get("edge_dim") else {}
        layer = getattr(nn, name)(32, 16, **options)
        layer(torch.randn(nodes, 32, requires_grad=True), edge_index, **given).sum().backward()
    return time.process_time() - start


def in_fresh_processes(*measure: object, option: str = "--measure") -> list[float]:
    """Seconds of first steps with empty caches, and with those that this leaves."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, option, *map(str, measure)]
        environment = os.environ | dict.fromkeys(CACHES, folder)
        return [
            float(run(command, env=environment, check=True, stdout=PIPE).stdout) for _ in range(2)
        ]


def of_layers(nodes: int, edges: int, edge_dim: int, repeats: int) -> list[Row]:
    """Rows of the first step of each layer, beside PyG's under `torch.compile`."""
    rows: list[Row] = []
    for name, with_features in CASES:
        dim = edge_dim if with_features else 0
        rounds = [
            {form: in_fresh_processes(name, form, nodes, edges, dim) for form in get_args(Form)}
            for _ in range(repeats)
        ]
        about = {"layer": name, "nodes": nodes, "edges": edges, "edge_dim": dim}
        for place, caches in enumerate(("empty caches", "kept caches")):
            times = {form: [found[form][place] for found in rounds] for form in get_args(Form)}
            rows += beside("graphtheory", f"first step, {caches}", times, **about)
        show(rows[-6:])
    return rows


def of_three(nodes: int, edges: int, edge_dim: int, repeats: int) -> list[Row]:
    """Rows of the first steps of `THREE` together."""
    rows, what = [], f"first steps of {', '.join(THREE)}, processor time"
    for dtype, dim in (("float32", 0), ("float64", 0), ("float32", edge_dim)):
        case = dtype, nodes, edges, dim
        rounds = [in_fresh_processes(*case, option="--measure-together") for _ in range(repeats)]
        about = {"dtype": dtype, "nodes": nodes, "edges": edges, "edge_dim": dim}
        for place, caches in enumerate(("empty caches", "kept caches")):
            taken = [found[place] for found in rounds]
            rows.append(Row.of(f"{what}, {caches}", taken, "s", **about))
        show(rows[-2:])
    return rows


def main(
    nodes: int = 2_000,
    edges: int = 20_000,
    edge_dim: int = 16,
    repeats: int = 3,
    out: Path | None = None,
    together: bool = False,
    measure: tuple[Layer, Form, int, int, int] | None = None,
    measure_together: tuple[Number, int, int, int] | None = None,
) -> None:
    """Time first steps in fresh processes.

    Args:
        nodes: Nodes of a uniform random graph.
        edges: Its edges.
        edge_dim: Features of an edge, for layers that take them.
        repeats: Rounds.
        out: CSV file to put the rows in, after the conformance tests.
        together: Take the processor time of SPDTransformerConv, GATConv and GCNConv in one process,
            in place of single layers: float32, float64, and with features of edges.
        measure: Print the seconds of one layer, in this process: its name, whose, nodes, edges,
            features of an edge.
        measure_together: Print the seconds of the three layers, in this process: type of numbers,
            nodes, edges, features of an edge.
    """
    if measure is not None:
        print(first_step(*measure))
        return
    if measure_together is not None:
        print(first_steps(*measure_together))
        return
    rows = (of_three if together else of_layers)(nodes, edges, edge_dim, repeats)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
