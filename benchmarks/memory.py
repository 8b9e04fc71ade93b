"""Extra peak memory of attention, forward and backward, beside PyG's `TransformerConv`.

    python benchmarks/memory.py --out benchmarks/results/cpu.csv

Every figure comes from a fresh process: the highest resident memory during one step, less the
resident memory before it. Inputs exist before; compilers and thread pools have warmed up on a small
graph. The library's neighborhood and its transpose are built within the step.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
import tyro
from _rows import ratios, save, show
from ops import Attention, draw, pyg, random_graph, step
from rich.console import Console
from rich.progress import track
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.lab.bench.rows import Row

Library = Literal["graphtheory", "PyG"]
Form = Literal["graphtheory", "graphtheory in int32", "PyG"]
MIB = 2**20


def resident(what: Literal["VmRSS", "VmHWM"]) -> int:
    """Resident memory of this process in bytes: now, or the highest since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def forget_peak() -> int:
    """Bytes resident now, without what is free; VmHWM begins anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is taken again would not count
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def peak_of(work: Callable[[], object]) -> int:
    """The highest resident memory while it works, less what was resident before, in bytes."""
    before = forget_peak()
    work()
    return resident("VmHWM") - before


def attention_of(library: Form, edges: Tensor, nodes: int, heads: int, dim: int) -> Attention:
    """One step from the edge list on."""
    if library == "PyG":
        return pyg(edges, heads, dim)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        nb = Neighborhood.from_edge_index(edges, nodes)
        nb = nb.to_int32() if library == "graphtheory in int32" else nb
        return ops.attention(query, key, value, nb)

    return attention


def extra_peak(library: Form, nodes: int, edges: int, heads: int, head_dim: int) -> int:
    """Bytes that one forward and backward needs on top of its inputs."""
    small = random_graph(100, 200)
    step(attention_of(library, small, 100, heads, head_dim), *draw(100, heads, head_dim))
    edge_index = random_graph(nodes, edges)
    leaves, grad = draw(nodes, heads, head_dim)
    attention = attention_of(library, edge_index, nodes, heads, head_dim)
    return peak_of(lambda: step(attention, leaves, grad))


def in_a_fresh_process(script: str, *measure: str, returned: bool = False, **options: int) -> int:
    """The bytes that a script with the option `--measure` prints, in a process of its own.

    With `returned` malloc gives every block of 128 KiB or more back when it is freed. Otherwise it
    keeps up to twice the largest block that was freed before, here some 50 MiB, for later ones.
    """
    command = [sys.executable, script, "--measure", *measure]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    env = os.environ | ({"MALLOC_MMAP_THRESHOLD_": str(2**17)} if returned else {})
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return int(done.stdout)


def by_edges(library: Form, threads: int, *, edges: int, **sizes: int) -> dict[int, int]:
    """Edges -> bytes, for a quarter as many, half as many and as many."""
    return {
        count: in_a_fresh_process(__file__, library, threads=threads, edges=count, **sizes)
        for count in (edges // 4, edges // 2, edges)
    }


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    heads: int = 4,
    head_dim: int = 32,
    threads: int = 2,
    repeats: int = 3,
    out: Path | None = None,
    measure: Form | None = None,
) -> None:
    """Measure the extra peak memory of attention in float32 beside PyG's.

    Args:
        nodes: Nodes of a uniform random graph.
        edges: Its edges; bytes an edge come from a quarter and half as many, too.
        heads: Attention heads.
        head_dim: Features of a head.
        threads: Of torch and of the kernels.
        repeats: Processes for each figure.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Measure only this library, in this process, and print bytes.
    """
    torch.set_num_threads(threads)
    if measure is not None:
        print(extra_peak(measure, nodes, edges, heads, head_dim))
        return
    about = {"nodes": nodes, "edges": edges, "heads": heads, "head_dim": head_dim}
    rows, peaks = [], {}
    for library in get_args(Form):
        rounds = track(range(repeats), library, console=Console(stderr=True))
        found = [by_edges(library, threads, **about) for _ in rounds]
        peaks[library] = [of[edges] for of in found]
        here = [peak / MIB for peak in peaks[library]]
        slopes = [float(np.polyfit(list(of), list(of.values()), 1)[0]) for of in found]
        rows.append(Row.of(f"extra peak memory, {library}", here, "MiB", **about))
        rows.append(Row.of(f"extra memory of an edge, {library}", slopes, "B", **about))
    for ours, where in (("graphtheory", ""), ("graphtheory in int32", " in int32")):
        share = ratios(peaks[ours], peaks["PyG"])
        rows.append(Row.of(f"extra peak memory{where} as a share of PyG's", share, "1", **about))
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
