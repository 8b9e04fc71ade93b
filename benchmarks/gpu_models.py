"""Whole models on a GPU beside what else trains them there, in one call of under nine minutes.

    python benchmarks/gpu_models.py
    python benchmarks/gpu_models.py --only graphs vision --names "epoch of GT|CUDA graph" --tested
    python benchmarks/gpu_models.py --device cpu --tiny

Sections: `graphs` a training epoch of the graph transformer with SPD, GAT and a sampled GCN against
PyG's layers, eager and compiled; `tokens` k-nearest attention and attention with a bias against
the masked form and FlexAttention; `vision` STViT, nearest attention and merging against DeiT and
Swin in bf16; `gpt` a training step against Hugging Face's GPT-2; `heads` the projection head
against torch's encoder; `distances` shortest paths; `timm` the tests of that integration;
`accelerate` PyG's examples before and after `graphtheory.accelerate`. Models that are compared have
the same weights; their losses, outputs or gradients are compared before anything is timed. float32
is without TF32.

Every section has its share of the time, and what it found by then is written. What fails says why,
stops nothing else, and makes the script end with code 1. Without a GPU it ends with code 2.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import torch
import tyro
from _gpu import Job, Where, attempted, results_of
from _gpu_dense import gpt, heads, timm, vision
from _gpu_graphs import accelerated, distances, graphs, task_of
from _gpu_tokens import tokens
from _rows import green, save, show

from graphtheory.lab.bench.rows import Row

Name = Literal["graphs", "tokens", "vision", "gpt", "heads", "distances", "timm", "accelerate"]
SECTIONS: dict[Name, tuple[Callable[[Where], Iterator[Job]], float]] = {  # and its share of time
    "graphs": (graphs, 170), "tokens": (tokens, 60), "vision": (vision, 125), "gpt": (gpt, 40),
    "heads": (heads, 25), "distances": (distances, 40), "timm": (timm, 40),
    "accelerate": (accelerated, 60),
}  # fmt: skip
OUT = results_of("cuda")
TARGETS = {
    "epoch of GT with SPD on arxiv: times faster than PyG": 5.0,
    "epoch of GT with SPD on pubmed: times faster than PyG": 5.0,
    "k-nearest attention among 197 tokens, bf16: times faster than masked form": 4.0,
    "k-nearest attention among 1024 tokens, bf16: times faster than masked form": 4.0,
    "DeiT-S forward, batch 128: STViT-DeiT-S, 16 tokens over DeiT-S": 2.0,
}


def against_targets(rows: list[Row]) -> None:
    """Say how the rows that a target is about stand to it."""
    for row in rows:
        if row.name in TARGETS:
            wanted = TARGETS[row.name]
            word = "met" if row.median >= wanted else "MISSED"
            print(f"target {word}: {row.name}: {row.median:.3g}, wanted {wanted:g}", flush=True)


def run(
    only: tuple[Name, ...], where: Where, seconds: float, keep: Callable[[list[Row]], None],
    wanted: str = "",
) -> list[str]:  # fmt: skip
    """Every section in turn; names of the jobs that failed."""
    failed: list[str] = []
    end = time.monotonic() + seconds
    for place, name in enumerate(only):
        section, share = SECTIONS[name]
        rest = sum(SECTIONS[later][1] for later in only[place:])
        limit = (end - time.monotonic()) * share / rest  # what others left over is shared out
        print(f"== {name}, {limit:.0f} s", flush=True)
        for rows in attempted(section(where), limit, failed, wanted):
            show(rows)
            if not where.tiny:
                against_targets(rows)
            keep(rows)
    return failed


def main(
    only: tuple[Name, ...] = tuple(SECTIONS),
    device: Literal["cuda", "cpu"] = "cuda",
    tiny: bool = False,
    repeats: int = 30,
    seconds: float = 500.0,
    tested: bool = False,
    names: str = "",
    out: Path | None = OUT,
) -> None:
    """Time whole models on a GPU.

    Args:
        only: Sections to run, in this order.
        device: cpu is for a dry run with `--tiny`.
        tiny: Tiny sizes, one round, no limit of time; nothing is written.
        repeats: Rounds at most; every round runs everything once.
        seconds: For all sections together, shared out in proportion.
        tested: tests/conformance has passed on this device already, in a call before. Otherwise it
            runs first, and its time comes on top.
        names: Regular expression that is found in the names of the jobs to run, such as
            "epoch of GT|1024"; a dry run with `--tiny` prints all names.
        out: CSV file to put the rows in, job by job; None writes nothing.
    """
    if device == "cuda" and not torch.cuda.is_available():
        print("gpu_models.py needs a GPU that torch can use, and finds none", file=sys.stderr)
        sys.exit(2)
    if device == "cpu" and not tiny:
        sys.exit("--device cpu: expected with --tiny, as a dry run")
    if tiny:
        repeats, seconds, out = 1, math.inf, None
    elif out is not None and not tested and not green():
        sys.exit(f"{out} not written: the conformance tests fail")
    torch.backends.cudnn.allow_tf32 = False

    def keep(rows: list[Row]) -> None:
        if out is not None and rows:
            save(rows, out, tested=True)

    failed = run(only, Where(device, tiny, repeats), seconds, keep, names)
    task_of.cache_clear()
    if failed:
        print(f"failed: {'; '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    tyro.cli(main)
