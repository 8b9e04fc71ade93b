"""Training steps of whole networks on batches of small graphs: GPS as PyG ships it, and ours.

    python benchmarks/molecules.py --out benchmarks/results/cpu-molecules.csv

A batch holds random trees with a few rings, as many nodes as molecules have, with categorical
features of nodes and edges. A step is forward, backward and Adam. "GPSConv" has PyG's GINEConv
beside attention among all nodes of a graph: PyG's layer pads every graph to the largest one, ours
computes on the sets as they are; both start from the same parameters, and their outputs and
gradients are compared before anything is timed. "accelerated" is PyG's network after `accelerate`,
which has our GINEConv, too. "distances" is ours with a learned bias for every distance, which PyG's
layer has no argument for. "GINE+VN" is the network of OGB's molecular baselines without attention,
for scale.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import tyro
from _rows import ratios, save, seconds, show
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

from graphtheory import accelerate
from graphtheory import nn as ours
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.zoo.graph_models import GraphConfig, build
from graphtheory.structure import shortest_path_distance

ATOMS, BONDS, WIDTH, HEADS = (119, 12, 12), (5, 6, 2), 64, 4
SAME = ("GPSConv, ours", "GPSConv, accelerated")
_RINGS = 8  # one more edge for so many nodes


def molecule(nodes: int, generator: torch.Generator) -> Data:
    """A random tree with rings; distances are stored, as a data set stores them once."""
    child = torch.arange(1, nodes)
    parent = (child - 1 - (torch.rand(nodes - 1, generator=generator) * 3).long()).clamp(min=0)
    closed = torch.randint(nodes, (2, nodes // _RINGS), generator=generator)
    edges = torch.cat([torch.stack([parent, child]), closed[:, closed[0] != closed[1]]], 1)
    kinds = torch.stack([torch.randint(k, (edges.size(1),), generator=generator) for k in BONDS], 1)
    edge_index = torch.cat([edges, edges.flip(0)], 1)
    hops = shortest_path_distance(Neighborhood.from_edge_index(edge_index, nodes))
    return Data(
        x=torch.stack([torch.randint(k, (nodes,), generator=generator) for k in ATOMS], 1),
        edge_index=edge_index,
        edge_attr=torch.cat([kinds, kinds]),
        distance=hops.flatten(),
        y=torch.randn(1, 1, generator=generator),
    )


def batch_of(graphs: int, smallest: int, largest: int) -> Batch:
    """Graphs of uniformly drawn sizes."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(smallest, largest + 1, (graphs,), generator=generator).tolist()
    return Batch.from_data_list([molecule(size, generator) for size in sizes])


class GPS(nn.Module):
    """Encoders, GPS layers of either library, a sum over the nodes, a linear map."""

    def __init__(self, layer: Callable[..., nn.Module], layers: int, *, distances: bool) -> None:
        super().__init__()
        self.atoms = ours.CategoricalEncoder(ATOMS, WIDTH)
        self.bonds = ours.CategoricalEncoder(BONDS, WIDTH)

        def network() -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

        self.layers = nn.ModuleList(layer(WIDTH, GINEConv(network()), HEADS) for _ in range(layers))
        self.distances, self.head = distances, nn.Linear(WIDTH, 1)

    def forward(self, batch: Batch) -> Tensor:
        x, edges = self.atoms(batch.x), self.bonds(batch.edge_attr)
        more = {"distance": batch.distance} if self.distances else {}
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=edges, **more)
        return self.head(global_add_pool(x, batch.batch))


def with_bias(width: int, conv: nn.Module, heads: int) -> nn.Module:
    """Our layer with a bias of distances."""
    return ours.GPSConv(width, conv, heads, bias=ours.BucketBias(20, heads))


def networks(layers: int) -> dict[str, nn.Module]:
    """By name; `SAME` have the parameters of PyG's."""
    torch.manual_seed(0)
    found: dict[str, nn.Module] = {
        "GPSConv, PyG": GPS(GPSConv, layers, distances=False),
        "GPSConv, ours": GPS(ours.GPSConv, layers, distances=False),
        "GPSConv, accelerated": GPS(GPSConv, layers, distances=False),
        "GPSConv, ours, distances": GPS(with_bias, layers, distances=True),
        "GINE+VN, PyG's GINEConv": build(
            "gine", GraphConfig(WIDTH, layers, dropout=0.0, readout="sum", virtual_node=True),
            node_in=ATOMS, edge_in=BONDS, num_outputs=1,
        ),
    }  # fmt: skip
    for name in SAME:
        found[name].load_state_dict(found["GPSConv, PyG"].state_dict())
    accelerate(found["GPSConv, accelerated"])
    found["GINE+VN, accelerated"] = copy.deepcopy(found["GINE+VN, PyG's GINEConv"])
    accelerate(found["GINE+VN, accelerated"])
    return found


def step(network: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Run forward, backward and a step of Adam."""
    optimizer.zero_grad()
    nn.functional.mse_loss(network(batch), batch.y).backward()
    optimizer.step()


def largest_difference(first: nn.Module, second: nn.Module, batch: Batch) -> float:
    """Of the gradients of two networks in double precision, relative to the largest."""
    grads = []
    for network in (first, second):
        network.double().zero_grad()
        nn.functional.mse_loss(network(batch), batch.y.double()).backward()
        grads.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
        network.float().zero_grad(set_to_none=True)
    return float((grads[0] - grads[1]).abs().max() / grads[0].abs().max())


def main(
    graphs: int = 256,
    smallest: int = 10,
    largest: int = 40,
    layers: int = 5,
    threads: int = 2,
    repeats: int = 9,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure training steps on batches of small graphs.

    Args:
        graphs: Of a batch.
        smallest: Nodes of the smallest graph.
        largest: Nodes of the largest graph.
        layers: Of each network.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        quick: One round on a small batch, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        graphs, layers, repeats = 8, 2, 1
    batch, found = batch_of(graphs, smallest, largest), networks(layers)
    gap = max(largest_difference(found["GPSConv, PyG"], found[name], batch) for name in SAME)
    if not gap < 1e-10:
        raise SystemExit(f"gradients of GPSConv differ by {gap:.1e} of the largest")
    works = {
        name: partial(step, network, torch.optim.Adam(network.parameters(), 1e-4), batch)
        for name, network in found.items()
    }
    times = seconds(works, repeats)
    about = {
        "graphs": graphs, "nodes": f"{smallest}..{largest}", "layers": layers, "width": WIDTH,
        "heads": HEADS, "threads": threads,
    }  # fmt: skip
    rows = [Row.of("largest relative difference of the gradients", gap, "1", **about)]
    rows += [Row.of(f"step, {name}", taken, "s", **about) for name, taken in times.items()]
    base = "GPSConv, PyG"
    rows += [
        Row.of(f"step, {base} over {name}", ratios(times[base], taken), "1", **about)
        for name, taken in times.items()
        if name != base
    ]
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
