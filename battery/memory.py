"""Memory: bytes for each edge, growth over many steps, and requests that are too large."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from battery.line import Line, timed
from graphtheory import Neighborhood, nn

MOST_BYTES, LEAST_R2 = 100.0, 0.99  # of an edge, forward and backward
MOST_GROWTH = 2**20  # bytes in 1,000 steps
_EDGES = (500_000, 1_000_000, 2_000_000, 4_000_000)
_WARM = 100_000
_NODES, _HEADS, _DIM = 20_000, 4, 16
_MEASURE = """
import json, sys
from battery.memory import peak_of
print(json.dumps(peak_of(sys.argv[1], int(sys.argv[2]))))
"""


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
    layer, x = _layers()[name](), torch.randn(_NODES, _HEADS * _DIM)
    _step(layer, x, _graph(_WARM))  # compiles the loops that the larger graphs take
    graph = _graph(edges)
    _trim()
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    _step(layer, x, graph)
    return resident("VmHWM") - before


def _trim() -> None:
    """Give back what is freed: memory that is taken again would not count."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def resident(what: str = "VmRSS") -> int:
    """Bytes of this process in memory now, or with "VmHWM" at most so far."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def per_edge(share: float, seed: int) -> list[Line]:
    """The slope of peak memory over the number of edges, each point in a fresh process."""
    sizes = _EDGES if share >= 1 else _EDGES[:3]
    lines = []
    for name in _layers():
        line = Line(
            "memory", f"{name}: at most {MOST_BYTES:.0f} bytes for each edge, and linear",
            "a tensor with an edge axis and a feature axis",
        )  # fmt: skip
        with timed(line):
            found = [_measured(name, edges) for edges in sizes]
            slope, r2 = _line_through(sizes, found)
            line.trials, line.figures = len(sizes), {"bytes": f"{slope:.0f}", "R2": f"{r2:.3f}"}
            if slope > MOST_BYTES or (r2 < LEAST_R2 and slope > MOST_BYTES / 10):
                line.broken.append(f"{slope:.0f} bytes for each edge, R2 {r2:.3f}")
            wide = [4.0 * _HEADS * _DIM * edges for edges in sizes]
            line.planted, line.caught = 1, int(_line_through(sizes, wide)[0] > MOST_BYTES)
        lines.append(line)
    return lines


def _measured(name: str, edges: int) -> float:
    words = [sys.executable, "-c", _MEASURE, name, str(edges)]
    one_arena = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=one_arena)
    return float(json.loads(done.stdout))


def _line_through(sizes: Any, found: Any) -> tuple[float, float]:
    slope, start = np.polyfit(sizes, found, 1)
    off = np.asarray(found) - (slope * np.asarray(sizes) + start)
    spread = np.var(found)
    return float(slope), float(1 - np.var(off) / spread) if spread else 1.0


def growth(share: float, seed: int) -> list[Line]:
    """Resident memory over 1,000 steps of every layer, after 200 that warm it up."""
    line = Line(
        "memory", f"1,000 steps of a layer grow by at most {MOST_GROWTH / 2**20:.0f} MiB",
        "a list that keeps a kilobyte of every step",
    )  # fmt: skip
    steps = max(100, round(1_000 * share))
    graph, x = _small_graph(), torch.randn(500, _HEADS * _DIM)
    with timed(line):
        for name, make in _layers().items():
            layer = make()
            grown = _grown(partial(_step, layer, x, graph), steps)
            line.trials += 1
            line.figures[name] = f"{grown / 2**10:.0f} KiB"
            if grown > MOST_GROWTH:
                line.broken.append(f"{name} grows by {grown / 2**20:.1f} MiB")
        kept: list[bytearray] = []
        leak = 4 * MOST_GROWTH // steps
        grown = _grown(lambda: kept.append(bytearray(b"\1" * leak)), steps)
        line.planted, line.caught = 1, int(grown > MOST_GROWTH)
    return [line]


def _small_graph() -> Neighborhood:
    generator = torch.Generator().manual_seed(0)
    return Neighborhood.from_edge_index(torch.randint(500, (2, 3_000), generator=generator), 500)


def _grown(step: Callable[[], Any], steps: int) -> int:
    for _ in range(max(50, steps // 5)):
        step()
    _trim()
    before = resident()
    for _ in range(steps):
        step()
    _trim()
    return resident() - before


def memory(share: float, seed: int) -> list[Line]:
    """All of them."""
    return [line for part in (per_edge, growth) for line in part(share, seed)]
