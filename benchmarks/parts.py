"""Where the time of a layer goes: each compiled loop, and what is left for torch and Python.

    python benchmarks/parts.py --layer GATv2Conv
    python benchmarks/parts.py --layer "TransformerConv, recompute" --edge-dim 64

A loop that is fast alone may be slow between the products of a layer, whose threads still look for
work: this shows it, and timings of kernels do not. Forward and backward, as in `edge_features.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Literal

import torch
import tyro
from _rows import show
from edge_features import BESIDE, step_of

from graphtheory.lab.bench.rows import Row
from graphtheory.ops.backends.cpu import launch as loops

Times = dict[str, list[float]]
Ours = Literal[tuple(BESIDE)]  # type: ignore[valid-type]


@contextmanager
def timed(times: Times) -> Iterator[None]:
    """Add the seconds of every loop to the last number of its list."""
    launch = loops.launch

    def launch_and_tell(loop: Callable[..., None], *args: Any) -> None:
        begin = perf_counter()
        launch(loop, *args)
        times[loop.__name__][-1] += perf_counter() - begin

    loops.launch = launch_and_tell
    try:
        yield
    finally:
        loops.launch = launch


def main(
    layer: Ours = "TransformerConv",
    nodes: int = 20_000,
    edges: int = 400_000,
    channels: int = 32,
    heads: int = 4,
    head_dim: int = 32,
    edge_dim: int = 16,
    threads: int = 2,
    repeats: int = 15,
) -> None:
    """Time the loops of a step of a layer with edge features.

    Args:
        layer: With weights of PyG's.
        nodes: Nodes of a uniform random graph.
        edges: Its edges.
        channels: Input features of a node.
        heads: Attention heads.
        head_dim: Features of a head.
        edge_dim: Features of an edge.
        threads: Of torch and of the kernels.
        repeats: Steps.
    """
    torch.set_num_threads(threads)
    step = step_of(layer, nodes, edges, channels, heads, head_dim, edge_dim)
    for _ in range(3):
        step()
    times: Times = defaultdict(lambda: [0.0] * (len(whole) + 1))
    whole: list[float] = []
    with timed(times):
        for _ in range(repeats):
            begin = perf_counter()
            step()
            whole.append(perf_counter() - begin)
            for part in times.values():
                part.append(0.0)
    parts = {name: part[:repeats] for name, part in times.items()}
    rest = [
        all_ - sum(some)
        for all_, some in zip(whole, zip(*parts.values(), strict=True), strict=True)
    ]
    about = {"layer": layer, "edges": edges, "edge_dim": edge_dim, "threads": threads}
    rows = [Row.of("step", whole, "s", **about)]
    rows += [Row.of(f"loop {name}", part, "s", **about) for name, part in parts.items()]
    show([*rows, Row.of("the rest: torch and Python", rest, "s", **about)])


if __name__ == "__main__":
    tyro.cli(main)
