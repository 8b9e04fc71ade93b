"""Training PyG's own example models, as they are and after `graphtheory.accelerate`.

    GRAPHTHEORY_DATA=<folder> python benchmarks/end_to_end.py
    python benchmarks/end_to_end.py --nodes 169343 --edges 2315598  # as many as ogbn-arxiv has

The graph is random, and also Cora where GRAPHTHEORY_DATA names a folder that holds it. An epoch is
one step on the whole graph: forward, backward, optimizer. The loss curves are compared with the
same seeds, without dropout of attention weights and with features read densely, for whose dropout
the library draws other numbers than PyG. Times and memory are those of the models as they are.

Memory comes from fresh processes as in `memory.py`: the peak of one epoch above what was resident
before it, after an epoch on a small graph. The library sorts the edges within that epoch; later
epochs, which the times are of, find them sorted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro
from _pyg_examples import EXAMPLES
from _rows import ratios, save, seconds, show
from memory import MIB, Library, forget_peak, in_a_fresh_process, resident
from ops import random_graph
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

import graphtheory
from graphtheory.bench.rows import Row
from graphtheory.data.graphs import load

Place = Literal["random", "Cora"]
FEATURES, CLASSES = 128, 40  # of ogbn-arxiv
PROCESSES = 3
OUT = Path(__file__).parent / "results" / "cpu-end-to-end.csv"


def graph_of(place: Place, nodes: int, edges: int) -> Data:
    """Cora with features normalized as in the examples; or random edges, labels by features."""
    if place == "Cora":
        return NormalizeFeatures()(load("Cora", os.environ["GRAPHTHEORY_DATA"]))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(nodes, FEATURES, generator=generator)
    y = (x @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)
    train_mask = torch.rand(nodes, generator=generator) < 0.5
    edge_index = random_graph(nodes, edges)
    return Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask, num_classes=CLASSES)


def trainer(
    example: str, graph: Data, library: Library, *, own_dropout: bool = True
) -> Callable[[], float]:
    """What trains for an epoch and returns the loss; the first weights are those of the seed."""
    torch.manual_seed(0)
    model = EXAMPLES[example](graph.num_features, graph.num_classes).to(graph.x.device)
    for layer in model.children():
        if hasattr(layer, "dropout") and not own_dropout:
            layer.dropout = 0.0
    if library == "graphtheory":
        report = graphtheory.accelerate(model, sparse_features=own_dropout)
        assert report.swapped and not report.kept, report
    optimizer = model.optimizer()

    def epoch() -> float:
        optimizer.zero_grad()
        loss = model.loss(graph)
        loss.backward()
        optimizer.step()
        return loss.item()

    return epoch


def losses(example: str, graph: Data, library: Library, epochs: int) -> Tensor:
    """The loss of each epoch [epochs], with the random numbers of PyG."""
    epoch = trainer(example, graph, library, own_dropout=False)
    torch.manual_seed(1)
    return torch.tensor([epoch() for _ in range(epochs)], dtype=torch.float64)


def extra_peak(example: str, place: Place, library: Library, nodes: int, edges: int) -> int:
    """Bytes that the first epoch on the graph needs on top of it and the model."""
    trainer(example, graph_of("random", 100, 200), library)()
    epoch = trainer(example, graph_of(place, nodes, edges), library)
    before = forget_peak()
    epoch()
    return resident("VmHWM") - before


def curve_rows(case: str, example: str, graph: Data, epochs: int, **about: object) -> list[Row]:
    """How far the loss curves of the two libraries are apart at most."""
    ours, theirs = (losses(example, graph, library, epochs) for library in get_args(Library))
    apart = (ours - theirs).abs()
    about |= {"epochs": epochs, "first": f"{theirs[0]:.4f}", "last": f"{theirs[-1]:.4f}"}
    found = {"difference": apart.max(), "relative difference": (apart / theirs).max()}
    return [
        Row.of(f"largest {n} of the loss, {case}", float(f), "1", **about) for n, f in found.items()
    ]


def time_rows(case: str, example: str, graph: Data, repeats: int, **about: int) -> list[Row]:
    """Time of an epoch in either library, and how many times as long PyG takes."""
    times = seconds({lib: trainer(example, graph, lib) for lib in get_args(Library)}, repeats)
    faster = ratios(times["PyG"], times["graphtheory"])
    return [
        *(Row.of(f"time of an epoch, {case}, {lib}", t, "s", **about) for lib, t in times.items()),
        Row.of(f"times faster than PyG: {case}", faster, "1", **about),
    ]


def memory_rows(case: str, example: str, place: Place, **about: int) -> list[Row]:
    """Extra peak memory of an epoch in either library, and the share of PyG's."""
    peaks = {
        lib: [in_a_fresh_process(__file__, example, place, lib, **about) for _ in range(PROCESSES)]
        for lib in get_args(Library)
    }
    name = f"extra peak memory of an epoch, {case}"
    share = ratios(peaks["graphtheory"], peaks["PyG"])
    sizes = {lib: [peak / MIB for peak in of] for lib, of in peaks.items()}
    return [
        *(Row.of(f"{name}, {lib}", of, "MiB", **about) for lib, of in sizes.items()),
        Row.of(f"{name}, as a share of PyG's", share, "1", **about),
    ]


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    epochs: int = 50,
    threads: int = 2,
    repeats: int = 15,
    quick: bool = False,
    places: tuple[Place, ...] = ("random", "Cora"),
    out: Path = OUT,
    measure: tuple[str, Place, Library] | None = None,
) -> None:
    """Train PyG's example models in float32, as they are and accelerated: losses, time, memory.

    Args:
        nodes: Nodes of the uniform random graph.
        edges: Its edges.
        epochs: Of the loss curves.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round trains either library's model for an epoch.
        quick: A small random graph, few epochs, no memory; nothing is written.
        places: Graphs; Cora needs GRAPHTHEORY_DATA.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Measure only the memory of this example, graph and library, in this process, and
            print bytes.
    """
    torch.set_num_threads(threads)
    if measure is not None:
        print(extra_peak(*measure, nodes, edges))
        return
    if quick:
        nodes, edges, epochs, repeats = 50, 200, 3, 2
    if quick or "GRAPHTHEORY_DATA" not in os.environ:
        places = ("random",)
    rows = []
    for place, example in product(places, EXAMPLES):
        graph = graph_of(place, nodes, edges)
        about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "threads": threads}
        case = f"{example} on {place if place == 'Cora' else f'{nodes} nodes'}"
        rows += curve_rows(case, example, graph, epochs, **about)
        rows += time_rows(case, example, graph, repeats, **about)
        rows += [] if quick else memory_rows(case, example, place, **about)
    show(rows)
    print(
        "Losses without attention dropout, features read densely: random numbers differ by design."
    )
    if not quick:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
