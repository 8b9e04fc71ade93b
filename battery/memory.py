"""Memory: bytes for each edge, growth over many steps, and requests that are too large."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from battery.growth import growth, resident, trim
from battery.line import Line, timed
from graphtheory import Neighborhood, bipartite, causal, cliques, nn, structure
from graphtheory.data.transforms import AddDistances

MOST_BYTES, LEAST_R2 = 100.0, 0.99  # of an edge, forward and backward
_EDGES = (500_000, 1_000_000, 2_000_000, 4_000_000)
_WARM, _CONTROL = 100_000, "messages"
_NODES, _HEADS, _DIM = 20_000, 4, 16
_MEASURE = """
import json, sys
from battery.memory import peak_of
print(json.dumps(peak_of(sys.argv[1], int(sys.argv[2]))))
"""


class _Messages(torch.nn.Module):
    """The control: a layer with a message [features] for every edge."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(_HEADS * _DIM, _HEADS * _DIM)

    def forward(self, x: torch.Tensor, graph: Neighborhood) -> torch.Tensor:
        """Sum the messages of the neighbors of each node."""
        source, target = graph.edge_index().long()
        return torch.zeros_like(x).index_add(0, target, self.linear(x)[source])


def _layers() -> dict[str, Callable[[], Any]]:
    width, each = _HEADS * _DIM, _DIM
    return {
        "SPDTransformerConv": lambda: nn.SPDTransformerConv(width, each, heads=_HEADS),
        "TransformerConv": lambda: nn.TransformerConv(width, each, heads=_HEADS),
        "GATConv": lambda: nn.GATConv(width, each, heads=_HEADS, add_self_loops=False),
        "GATv2Conv": lambda: nn.GATv2Conv(width, each, heads=_HEADS, add_self_loops=False),
        "GCNConv": lambda: nn.GCNConv(width, width, normalize=False),
    }


def _graph(edges: int) -> Neighborhood:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(_NODES, (2, edges), generator=generator)
    return Neighborhood.from_edge_index(ids, _NODES)


def _step(layer: Any, x: torch.Tensor, graph: Neighborhood) -> None:
    layer(x, graph).sum().backward()
    layer.zero_grad(set_to_none=True)


def peak_of(name: str, edges: int) -> int:
    """Bytes above what was resident, of one step forward and backward in this process."""
    torch.set_num_threads(1)
    layer = (_layers() | {_CONTROL: _Messages})[name]()
    x = torch.randn(_NODES, _HEADS * _DIM)
    _step(layer, x, _graph(_WARM))  # compiles the loops that the larger graphs take
    graph = _graph(edges)
    trim()
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    _step(layer, x, graph)
    return resident("VmHWM") - before


def per_edge(share: float, seed: int) -> list[Line]:
    """The slope of peak memory over the number of edges, each point in a fresh process."""
    sizes = _EDGES if share >= 1 else _EDGES[:3]
    lines = []
    wide, _ = _line_through(sizes[:2], [_measured(_CONTROL, edges) for edges in sizes[:2]])
    for name in _layers():
        line = Line(
            "memory", f"{name}: at most {MOST_BYTES:.0f} bytes for each edge, and linear",
            "a layer with a tensor of an edge axis and a feature axis",
        )  # fmt: skip
        with timed(line):
            found = [_measured(name, edges) for edges in sizes]
            slope, r2 = _line_through(sizes, found)
            line.trials, line.figures = len(sizes), {"bytes": f"{slope:.0f}", "R2": f"{r2:.3f}"}
            if slope > MOST_BYTES or (r2 < LEAST_R2 and slope > MOST_BYTES / 10):
                line.broken.append(f"{slope:.0f} bytes for each edge, R2 {r2:.3f}")
            line.planted, line.caught = 1, int(wide > MOST_BYTES)
        lines.append(line)
    return lines


def _measured(name: str, edges: int) -> float:
    words = [sys.executable, "-c", _MEASURE, name, str(edges)]
    # One arena, and what is freed goes back, as blocks of 32 MiB and more do in any case.
    steady = os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=steady)
    return float(json.loads(done.stdout))


def _line_through(sizes: Any, found: Any) -> tuple[float, float]:
    slope, start = np.polyfit(sizes, found, 1)
    off = np.asarray(found) - (slope * np.asarray(sizes) + start)
    spread = np.var(found)
    return float(slope), float(1 - np.var(off) / spread) if spread else 1.0


def quadratic(share: float, seed: int) -> list[Line]:
    """All pairs of many nodes, asked for in every way that there is. The share does not matter."""
    nodes, small = 400_000, 40
    line = Line(
        "memory", f"all pairs of {nodes:,} nodes are refused within a second, in a sentence with "
        "the size, what is available and a cheaper way",
        "all pairs of a few nodes, and torch's own refusal",
    )  # fmt: skip
    with timed(line):
        for name, call in _ALL_PAIRS.items():
            start, line.trials = time.monotonic(), line.trials + 1
            if not (said := _refusal(call, nodes)):
                line.broken.append(f"{name}: is taken")
            elif not _REFUSAL.search(said) or time.monotonic() - start > 1:
                line.broken.append(f"{name}: {said}, {time.monotonic() - start:.1f} s")
            line.planted += 1
            line.caught += not _refusal(call, small)
        line.planted += 1
        line.caught += not _REFUSAL.search(_refusal(lambda n: torch.empty(n, n, n), nodes))
    return [line]


def _ring(nodes: int) -> Neighborhood:
    one = torch.arange(nodes)
    return Neighborhood.from_edge_index(torch.stack([one, one.roll(1)]), nodes)


_ALL_PAIRS: dict[str, Callable[[int], Any]] = {
    "cliques": lambda n: cliques([n]),
    "causal": lambda n: causal([n]),
    "bipartite": lambda n: bipartite([n, 1], [n, 1]),
    "to_dense": lambda n: _ring(n).to_dense(),
    "shortest_path_distance": lambda n: structure.shortest_path_distance(_ring(n)),
    "resistance_distance": lambda n: structure.resistance_distance(_ring(n)),
    "AddDistances": lambda n: AddDistances()(Data(edge_index=_ring(n).edge_index(), num_nodes=n)),
    "GPSConv": lambda n: nn.GPSConv(4, None)(torch.ones(n, 4), _ring(n).edge_index()),
}
_REFUSAL = re.compile(r"needs [\d.]+ GiB \(\d+ bytes\), [\d.]+ GiB are available; \w+")


def _refusal(call: Callable[[int], Any], nodes: int) -> str:
    try:
        call(nodes)
    except (MemoryError, RuntimeError) as error:
        return str(error)
    return ""


def memory(share: float, seed: int) -> list[Line]:
    """All measurements of memory in this module."""
    return [line for part in (per_edge, growth, quadratic) for line in part(share, seed)]
