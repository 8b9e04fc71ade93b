"""Time of each kernel of attention on a GPU, forward and backward, for values of a constant.

    python benchmarks/gpu_kernels.py
    python benchmarks/gpu_kernels.py --constant CHUNK --values 64 128 256
    python benchmarks/gpu_kernels.py --graph vit --shapes 6x64 --constant _WIDEST --values 16 32 64

By torch's profiler, the median of some steps; kernels of one name are added up, in microseconds.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from statistics import median
from typing import Literal

import torch
import tyro
from _gpu import Step
from _gpu_attention import DTYPES, GRAPHS, Case, attention, nearest_half, step, there
from _graphs import Shape
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

STEPS = 5


def kernels(work: Step) -> dict[str, float]:
    """Microseconds of every kernel of a step, by name."""
    for _ in range(3):
        work()
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(STEPS):
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            work()
            torch.cuda.synchronize()
        sums: dict[str, float] = defaultdict(float)
        for event in seen.events():
            if event.device_type == DeviceType.CUDA:
                sums[event.name.split("<")[0][-40:]] += event.device_time
        for name, taken in sums.items():
            found[name].append(taken)
    return {name: median(taken) for name, taken in found.items()}


def main(
    graph: Literal[tuple(GRAPHS)] = "arxiv",
    shapes: tuple[Shape, ...] = ("4x64", "8x16", "1x128"),
    dtypes: tuple[Literal[tuple(DTYPES)], ...] = ("bf16", "fp32"),
    constant: Literal[
        "CHUNK",
        "_OF_SMALL",
        "_NUMBERS",
        "_FEATURES",
        "_LOGITS",
        "_WIDEST",
        "_SHARED",
        "_SOURCES",
        "_TARGETS",
        "_WARPS",
    ] = "_NUMBERS",
    values: tuple[int, ...] = (512, 1024, 2048),
) -> None:
    """Print the time of each kernel.

    Args:
        graph: As in gpu.py.
        shapes: Heads x head_dim.
        dtypes: Of bf16, fp32, fp16.
        constant: Of `graphtheory/ops/backends/triton/bins.py`; chunks of a graph of at most
            2^19 edges are `_OF_SMALL`, of others `CHUNK`. Those from `_LOGITS` on are of `topk.py`,
            and what is timed is attention to the nearest half of blocks.
        values: What it is set to.
    """
    if not torch.cuda.is_available():
        print("gpu_kernels.py needs a GPU that torch can use, and finds none", file=sys.stderr)
        sys.exit(2)
    from graphtheory.ops.backends.triton import bins, topk

    nearest = hasattr(topk, constant)
    for value in values:
        setattr(topk if nearest else bins, constant, value)
        there.cache_clear()  # with what was planned for its rows
        bins.tile.cache_clear()
        for shape in shapes:
            for dtype in dtypes:
                heads, dim = (int(n) for n in shape.split("x"))
                case = Case.of(graph, heads, dim, DTYPES[dtype])
                ours = nearest_half(case) if nearest else attention(case)
                taken = kernels(partial(step, ours, case.leaves, case.grad))
                rate = case.gathered / sum(taken.values()) * 1e-6
                each = ", ".join(f"{name} {time:.0f}" for name, time in taken.items())
                total = f"{sum(taken.values()):.0f} us, {rate:.2f} TB/s"
                print(f"{constant} {value}, {case.name}: {total}: {each}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
