"""What the host does in a training step on a GPU, measured without one, beside PyG's layers.

    python benchmarks/host.py --out benchmarks/results/host.csv

On a small graph a GPU waits for its host: for Python, for torch's dispatcher and for Triton's
launcher. A step is the forward pass and the gradients of the parameters, in float32. Measured are
processor time of the thread, calls of Python functions, launches of our kernels, and how often a
step would wait for the device, on a pretended GPU (`_stub.py`): Triton's own runtime and launcher
run, on a driver whose functions do nothing. "new edges" come as new tensors in each step, features
and distances too, as a batch of small graphs does.

Left out are torch's launches on both sides (cudaLaunchKernel, 4 to 17 microseconds each, of which
PyG's layers have two to ten times as many) and all that the device does, waiting for it included.
Both sides do contain torch's small operations as they run on a CPU, so the graph has 64 nodes.
Denormal numbers, which memory that no kernel has written may hold and which are slow on a CPU,
count as 0. The backward pass runs in the thread of the forward pass; on a GPU it has its own.

Ends with code 2 where Triton or a C compiler is missing, and where there is a GPU.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import tyro
from _rows import beside, save, seconds, show
from _stub import Driver, lacking, pretend, waits
from topk import by_image, masked
from torch import Tensor
from torch_geometric import nn as pyg

from graphtheory import Neighborhood, accelerate, cliques, nn, ops
from graphtheory.lab.bench.rows import Row

NODES, EDGES, IN, HEADS, DIM, EDGE_DIM, BUCKETS = 64, 256, 32, 4, 16, 16, 20
BLOCK, NEAREST = 16, 4  # nodes of a block, and how many of them a node attends to
ABOUT = {"nodes": NODES, "edges": EDGES, "heads": HEADS, "head_dim": DIM}
OURS, PYG = "graphtheory", "PyG"
Step = Callable[[], object]
_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(NODES, IN, generator=_GENERATOR)
EDGE_INDEX = torch.randint(NODES, (2, EDGES), generator=_GENERATOR)
FEATURES = {"edge_attr": torch.randn(EDGES, EDGE_DIM, generator=_GENERATOR)}
HOPS = {"distance": torch.randint(BUCKETS, (EDGES,), generator=_GENERATOR).byte()}


def training(layer: torch.nn.Module, batch: Callable[[], dict[str, Tensor]]) -> Step:
    """A step of a layer on the edges that it is given next."""
    parameters = list(layer.parameters())
    grad = torch.ones_like(layer(X, **batch()))

    def step() -> None:
        out = layer(X, **batch())
        torch.autograd.grad(out, parameters, grad, allow_unused=True)

    return step


def batches(**given: Tensor) -> dict[str, Callable[[], dict[str, Tensor]]]:
    """The same edges in every step, and new ones."""
    given["edge_index"] = EDGE_INDEX

    def new() -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in given.items()}

    return {"": repeat(given).__next__, ", new edges": new}


def attending(attention: Callable[..., Tensor]) -> Step:
    """A step of attention alone."""
    leaves = [torch.randn(NODES, HEADS, DIM).requires_grad_() for _ in range(3)]
    grad = torch.ones(NODES, HEADS, DIM)
    return lambda: torch.autograd.grad(attention(*leaves), leaves, grad)


def nearest_by_mask(*nodes: Tensor) -> Tensor:
    """k-nearest attention in blocks as the paper's code has it."""
    images = (by_image(t, NODES // BLOCK) for t in nodes)
    return masked(*images, NEAREST).transpose(1, 2).flatten(0, 1)


def heads() -> tuple[int, int, int]:
    return IN, DIM, HEADS


def wide() -> tuple[int, int]:
    return IN, HEADS * DIM


def one_map() -> tuple[torch.nn.Module]:
    return (torch.nn.Linear(*wide()),)


def steps() -> dict[str, dict[str, Step]]:
    """The steps to compare, ours first in each."""
    nb, blocks = (
        Neighborhood.from_edge_index(EDGE_INDEX, NODES),
        cliques([BLOCK] * (NODES // BLOCK)),
    )
    by_edge: dict[str, Any] = {"edge_dim": EDGE_DIM}
    found = {
        "ops.attention": {OURS: attending(partial(ops.attention, neighborhood=nb))},
        f"k-nearest attention in blocks of {BLOCK}": {
            OURS: attending(partial(ops.topk_attention, neighborhood=blocks, k=NEAREST)),
            "masked form": attending(nearest_by_mask),
        },
    }
    layers: list[tuple[str, Callable[[], tuple[Any, ...]], dict[str, Any], dict[str, Tensor]]] = [
        ("TransformerConv", heads, {}, {}),
        ("GATConv", heads, {}, {}),
        ("GATv2Conv", heads, {}, {}),
        ("GCNConv", wide, {}, {}),
        ("SAGEConv", wide, {}, {}),
        ("GINConv", one_map, {}, {}),
        ("GINEConv", one_map, by_edge, FEATURES),
        ("TransformerConv", heads, by_edge, FEATURES),
        ("GATv2Conv", heads, by_edge, FEATURES),
    ]
    for name, args, options, given in layers:
        called = f"{name}, features of edges" if options and name != "GINEConv" else name
        for which, batch in batches(**given).items():
            layers_of = [getattr(pyg, name)(*args(), **options) for _ in range(2)]
            accelerate(layers_of[0])
            of_both = (training(layer, batch) for layer in layers_of)
            found[f"{called}{which}"] = dict(zip((OURS, PYG), of_both, strict=True))
    found["ops.attention"]["PyG's TransformerConv"] = found["TransformerConv"][PYG]
    spd = nn.SPDTransformerConv(*heads(), num_buckets=BUCKETS)
    for which, batch in batches(**HOPS).items():
        plain = found[f"TransformerConv{which}"][PYG]  # has no bias by distance
        found[f"SPDTransformerConv{which}"] = {OURS: training(spd, batch), PYG: plain}
    cached = pyg.GCNConv(IN, HEADS * DIM, cached=True)
    found["GCNConv"]["PyG, cached=True"] = training(cached, batches()[""])
    return found


def frames(step: Step) -> int:
    """Python functions that a step calls."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # which calls Python functions of its own
    sys.setprofile(seen)
    try:
        step()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count - 1  # the step itself


def warm(forms: dict[str, Step]) -> None:
    """Steps before those that are looked at."""
    for step in forms.values():
        for _ in range(3):
            step()


def launches(driver: Driver, step: Step) -> int:
    """Launches of our kernels in a step."""
    before = driver.launches
    step()
    return driver.launches - before


def rows_of(driver: Driver, name: str, forms: dict[str, Step], repeats: int) -> list[Row]:
    """Rows of one comparison on the host."""
    import triton

    warm(forms)
    what, about = f"host, {name}", ABOUT | {"triton": triton.__version__}
    rows = beside(OURS, what, seconds(forms, repeats, clock=time.thread_time), **about)
    for form, step in forms.items():
        for of, count in (("Python frames", frames(step)), ("waits", len(waits(step)))):
            rows.append(Row.of(f"{what}, {form}: {of}", count, "1", **about))
    launched = launches(driver, forms[OURS])
    return [*rows, Row.of(f"{what}, {OURS}: Triton launches", launched, "1", **about)]


def main(
    repeats: int = 15, names: str = "", count: bool = False, quick: bool = False,
    out: Path | None = None,
) -> None:  # fmt: skip
    """Measure what the host does in a training step on a GPU.

    Args:
        repeats: Rounds; every round runs all forms of a step, each for 50 ms.
        names: Measure only the steps in whose names this stands.
        count: Print frames, launches and waits of our steps as JSON, and measure no time.
        quick: One round, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    if (reason := lacking()) is not None:
        print(f"host.py cannot pretend to have a GPU: {reason}", file=sys.stderr)
        sys.exit(2)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    driver = pretend()
    chosen = {name: forms for name, forms in steps().items() if names in name}
    if count:
        found = {}
        for name, forms in chosen.items():
            warm(forms)
            ours = forms[OURS]
            found[name] = frames(ours), launches(driver, ours), len(waits(ours))
        print(json.dumps(found))
        return
    rows = []
    for name, forms in chosen.items():
        rows += (of_step := rows_of(driver, name, forms, 1 if quick else repeats))
        show(of_step)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
