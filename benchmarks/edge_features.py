"""Layers with edge features, forward and backward: time and extra peak memory beside PyG's.

    python benchmarks/edge_features.py --out benchmarks/results/cpu-edge-features.csv

Whole layers, linear maps included, for a given gradient of their output. PyG's
`TransformerConv(edge_dim=)` is the other side of `SPDTransformerConv`, too, which adds a bias by
distance that PyG's has not got. Before anything is timed, outputs and the gradients of the input
and of every parameter are compared with PyG's, the bias being zero, and one thread with two, bit by
bit. The extra peak memory is that of `memory.py`: the highest resident memory of one step in a
fresh process, less what was resident before. It counts up to 50 MiB that malloc keeps of freed
blocks, for any layer; the memory needed is the same where malloc gives large blocks back at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import tyro
from _rows import ratios, save, seconds, show
from memory import MIB, in_a_fresh_process, peak_of
from ops import alone, random_graph
from torch import Tensor
from torch_geometric import nn as pyg

from graphtheory import nn
from graphtheory.lab.bench.rows import Row
from graphtheory.nn.conv.weighted_sums import GINEConv

Layer = Literal[
    "PyG", "TransformerConv", "SPDTransformerConv", "TransformerConv, recompute",
    "SPDTransformerConv, recompute", "PyG GATv2Conv", "GATv2Conv", "PyG GINEConv", "GINEConv",
]  # fmt: skip
BESIDE: dict[Layer, Layer] = {
    "TransformerConv": "PyG", "SPDTransformerConv": "PyG", "TransformerConv, recompute": "PyG",
    "SPDTransformerConv, recompute": "PyG", "GATv2Conv": "PyG GATv2Conv",
    "GINEConv": "PyG GINEConv",
}  # fmt: skip
Step = Callable[[], list[Tensor]]
Maker = Callable[[int, int, int, int], torch.nn.Module]  # (channels, head_dim, heads, edge_dim)
BUCKETS = 20
MEMORY = {"extra peak memory": False, "extra memory needed": True}  # whether blocks are returned


def attentive(kind: Callable[..., torch.nn.Module], **options: Any) -> Maker:
    """A maker of layers of attention with heads."""
    return lambda channels, dim, heads, edge_dim: kind(
        channels, dim, heads=heads, edge_dim=edge_dim, **options
    )


def gine(kind: Callable[..., torch.nn.Module]) -> Maker:
    """Sums of the given features, and a linear map of them."""
    return lambda channels, dim, heads, edge_dim: kind(
        torch.nn.Linear(channels, heads * dim), edge_dim=edge_dim
    )


MAKERS: dict[Layer, Maker] = {
    "PyG": attentive(pyg.TransformerConv),
    "TransformerConv": attentive(nn.TransformerConv),
    "SPDTransformerConv": attentive(nn.SPDTransformerConv, num_buckets=BUCKETS),
    "TransformerConv, recompute": attentive(nn.TransformerConv),
    "SPDTransformerConv, recompute": attentive(nn.SPDTransformerConv, num_buckets=BUCKETS),
    "PyG GATv2Conv": attentive(pyg.GATv2Conv, add_self_loops=False),
    "GATv2Conv": attentive(nn.GATv2Conv, add_self_loops=False),
    "PyG GINEConv": gine(pyg.GINEConv),
    "GINEConv": gine(GINEConv),
}


def layer_of(name: Layer, channels: int, heads: int, dim: int, edge_dim: int) -> torch.nn.Module:
    """With the same weights for every name, and a bias of zero where there is one."""
    torch.manual_seed(0)

    def make(one: Layer) -> torch.nn.Module:
        return MAKERS[one](channels, dim, heads, edge_dim)

    theirs = make(BESIDE.get(name, name))
    if name not in BESIDE:
        return theirs
    ours: Any = make(name)
    ours.recompute = name.endswith("recompute")
    ours.load_state_dict(theirs.state_dict(), strict=False)
    return ours


def step_of(
    name: Layer, nodes: int, edges: int, channels: int, *shape: int, device: str = "cpu"
) -> Step:
    """Output, gradients of the input and of PyG's parameters in their order, then of others."""
    layer = layer_of(name, channels, *shape).to(device)
    edge_index = random_graph(nodes, edges).to(device)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(nodes, channels, generator=generator).to(device).requires_grad_()
    given = {"edge_attr": torch.randn(edges, shape[-1], generator=generator).to(device)}
    hops = torch.randint(BUCKETS, (edges,), generator=generator).to(torch.uint8)
    if isinstance(layer, nn.SPDTransformerConv):
        given["distance"] = hops.to(device)
    above = torch.randn(nodes, shape[0] * shape[1], generator=generator).to(device)
    first = dict(layer_of(BESIDE.get(name, name), channels, *shape).named_parameters())
    own = dict(layer.named_parameters())
    leaves = [x, *(own.pop(n) for n in first), *own.values()]

    def step() -> list[Tensor]:
        out = layer(x, edge_index, **given)
        return [out.detach(), *torch.autograd.grad(out, leaves, above)]

    return step


def assert_close(name: str, found: list[Tensor], theirs: list[Tensor]) -> None:
    """What a layer of ours gives is what PyG's gives."""
    largest = max(float(t.abs().max()) for t in theirs[1:])
    for place, (a, b) in enumerate(zip(found, theirs, strict=False)):
        size = float(b.abs().max())
        # The gradient of the keys' bias vanishes, all logits of a row growing alike: it is
        # rounding alone, of what cancels.
        size = max(size, (1e-2 if size < 1e-5 * largest else 1e-3) * largest)
        error = float((a - b).abs().max()) / size
        assert error < 2e-5, f"{name}: result {place} differs by {error:.1e}"


def assert_equal(works: dict[Layer, Step], threads: int) -> None:
    """Ours give what PyG's gives, and on one thread the same bits, but for products of torch's.

    The gradient of a linear map's weight is torch's product, whose bits depend on the number of
    threads on some processors; the kernels' own results are the output and the gradient of x.
    """
    for name, other in BESIDE.items():
        found = works[name]()
        assert_close(name, found, works[other]())
        same = zip(found[:2], alone(works[name])()[:2], strict=True)
        assert all(torch.equal(a, b) for a, b in same), f"{name}: {threads} threads change bits"


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    channels: int = 32,
    heads: int = 4,
    head_dim: int = 32,
    edge_dim: int = 16,
    threads: int = 2,
    repeats: int = 9,
    out: Path | None = None,
    measure: Layer | None = None,
) -> None:
    """Time layers with edge features in float32 beside PyG's, and compare their memory.

    Args:
        nodes: Nodes of a uniform random graph.
        edges: Its edges.
        channels: Input features of a node.
        heads: Attention heads.
        head_dim: Features of a head.
        edge_dim: Features of an edge.
        threads: Of torch and of the kernels.
        repeats: Rounds of times; a third as many processes for memory.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Print the extra peak memory of this layer alone, in this process.
    """
    torch.set_num_threads(threads)
    about = {"nodes": nodes, "edges": edges, "channels": channels, "heads": heads}
    about |= {"head_dim": head_dim, "edge_dim": edge_dim}
    if measure is not None:
        step_of(
            measure, 100, 200, channels, heads, head_dim, edge_dim
        )()  # what is loaded and compiled once
        print(peak_of(step_of(measure, *about.values())))
        return
    names: tuple[Layer, ...] = get_args(Layer)
    works = {name: step_of(name, *about.values()) for name in names}
    assert_equal(works, threads)
    times = seconds(dict(works), repeats)
    peaks = {
        (what, name): [
            in_a_fresh_process(__file__, name, returned=returned, threads=threads, **about)
            for _ in range(-(-repeats // 3))
        ]
        for what, returned in MEMORY.items()
        for name in names
    }
    rows, row = [], partial(Row.of, **about, threads=threads)
    for name in names:
        label = f"with edge features, {f'graphtheory {name}' if name in BESIDE else name}"
        rows.append(row(f"forward+backward {label}", times[name], "s"))
        if name in BESIDE:
            faster = ratios(times[BESIDE[name]], times[name])
            rows.append(row(f"times faster than PyG {label}", faster, "1"))
        for what in MEMORY:
            own = peaks[what, name]
            rows.append(row(f"{what} {label}", [p / MIB for p in own], "MiB"))
            if name in BESIDE:
                share = ratios(own, peaks[what, BESIDE[name]])
                rows.append(row(f"{what} as a share of PyG's {label}", share, "1"))
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
