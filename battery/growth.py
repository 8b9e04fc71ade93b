"""Resident memory of a process, and whether it grows with layers and loaders that run on."""

from __future__ import annotations

import ctypes
import gc
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data

from battery.line import Line, timed
from graphtheory import nn
from graphtheory.data.loaders import (
    AttentionSetLoader,
    GraphFolder,
    LayerWiseLoader,
    NodeSetLoader,
    PartitionLoader,
)
from graphtheory.integrations.pyg import accelerate
from graphtheory.patterns import LADIES, GraphSAGE, Sample

MOST_GROWTH = 2**20  # bytes in 1,000 steps
_NODES, _WIDTH, _HEADS = 500, 64, 4
Step = Callable[[], Any]


def resident(what: str = "VmRSS") -> int:
    """Bytes of this process in memory now, or with "VmHWM" at most so far."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def trim() -> None:
    """Give back what is freed: memory that is taken again would not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def growth(share: float, seed: int) -> list[Line]:
    """Over 1,000 steps of every layer and loader, after 200 that warm it up."""
    line = Line(
        "memory", "1,000 steps of a layer or batches of a loader grow by at most "
        f"{MOST_GROWTH / 2**20:.0f} MiB", "a list that keeps a kilobyte of every step",
    )  # fmt: skip
    steps = max(100, round(1_000 * share))
    with timed(line), tempfile.TemporaryDirectory() as home:
        most = (0, "none")
        for name, step in (_layers() | _loaders(Path(home))).items():
            grown = _grown(step, steps)
            line.trials += 1
            most = max(most, (grown, name))
            if grown > MOST_GROWTH:
                line.broken.append(f"{name} grows by {grown / 2**20:.1f} MiB")
        line.figures = {"most": f"{most[1]}, {most[0] / 2**10:.0f} KiB"}
        kept: list[bytearray] = []
        leak = 4 * MOST_GROWTH // steps
        grown = _grown(lambda: kept.append(bytearray(b"\1" * leak)), steps)
        line.planted, line.caught = 1, int(grown > MOST_GROWTH)
    return [line]


def _grown(step: Step, steps: int) -> int:
    for _ in range(max(50, steps // 5)):
        step()
    trim()
    before = resident()
    for _ in range(steps):
        step()
    trim()
    return resident() - before


def _graph() -> Data:
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(_NODES, (2, 6 * _NODES), generator=generator)
    return Data(x=torch.randn(_NODES, _WIDTH, generator=generator), edge_index=edge_index)


def _layers() -> dict[str, Step]:
    """Forward and backward of our layers, and of PyG's with ours in place."""
    data, width = _graph(), _WIDTH
    each = width // _HEADS
    ours = [
        nn.SPDTransformerConv(width, each, heads=_HEADS),
        nn.TransformerConv(width, each, heads=_HEADS), nn.GATConv(width, each, heads=_HEADS),
        nn.GATv2Conv(width, each, heads=_HEADS), nn.GCNConv(width, width),
        nn.GPSConv(width, nn.GCNConv(width, width), heads=_HEADS),
    ]  # fmt: skip
    theirs = [
        pyg.SAGEConv(width, width), pyg.SAGEConv(width, width, aggr="max"),
        pyg.GINConv(torch.nn.Linear(width, width)), pyg.GraphConv(width, width),
        pyg.ChebConv(width, width, 2), pyg.APPNP(2, 0.1), pyg.SGConv(width, width),
    ]  # fmt: skip
    patched = torch.nn.ModuleList(theirs)
    accelerate(patched)
    layers = ours + list(patched)

    def step(layer: Any) -> None:
        data.x.requires_grad_().grad = None
        layer(data.x, data.edge_index).sum().backward()
        layer.zero_grad(set_to_none=True)

    return {f"{n}: {type(layer).__name__}": partial(step, layer) for n, layer in enumerate(layers)}


def loaders_of(seed: int, workers: int = 0, home: Path | None = None) -> dict[str, Any]:
    """Every loader, by name; that of a folder if there is one."""
    data = _graph()
    options: dict[str, Any] = {"shuffle": True, "seed": seed, "num_workers": workers}
    of_nodes, part = options | {"batch_size": 100}, torch.arange(_NODES) % 10
    found = {
        "NodeSetLoader": NodeSetLoader(data, GraphSAGE(5), 2, **of_nodes),
        "AttentionSetLoader": AttentionSetLoader(data, Sample(10, whole_graph=True), **of_nodes),
        "PartitionLoader": PartitionLoader(data, part, batch_size=2, **options),
    }
    if home is not None:
        folder = GraphFolder.write(data, home)
        found["NodeSetLoader of a folder"] = NodeSetLoader(folder, LADIES(64), 2, **of_nodes)
    return found


def _loaders(home: Path) -> dict[str, Step]:
    """The next batch, without end."""
    layer_wise = LayerWiseLoader(_graph(), GraphSAGE(5), 2, batch_size=100, shuffle=True)
    loaders = loaders_of(0, home=home) | {"LayerWiseLoader": layer_wise}

    def endless(loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    return {name: partial(next, endless(loader)) for name, loader in loaders.items()}
