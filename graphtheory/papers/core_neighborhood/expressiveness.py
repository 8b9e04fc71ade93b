"""Networks of random weights that read two graphs, and what tells them apart without any."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv

from graphtheory.graph import Neighborhood, cliques
from graphtheory.nn import SPDTransformerConv
from graphtheory.structure import (
    resistance_bucket,
    resistance_distance,
    shortest_path_distance,
)

LAYERS, WIDTH, BUCKETS = 4, 16, 256
VALUE_BUCKETS = 254
OHMS = 0.01 * torch.pi / 3  # irrational: no resistance, a rational number, lies between two buckets


class Message(nn.Module):
    """One hop of sums with an MLP (GIN), whose power is that of color refinement (1-WL)."""

    def __init__(self) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.layer = GINConv(mlp)

    def forward(self, x: Tensor, graph: Data) -> Tensor:
        """Aggregate from the neighbors."""
        return self.layer(x, graph.edge_index)


class Attention(nn.Module):
    """Attention over all nodes with a bias by distance, and with vectors by distance in the values.

    Args:
        values: Whether the distances enter the values, too.
        resistance: Whether a second layer on buckets of resistance is added.
    """

    def __init__(self, values: bool = False, resistance: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            SPDTransformerConv(
                WIDTH, WIDTH // 2, 2, num_buckets=VALUE_BUCKETS, value_encoding=values
            )
            for _ in range(1 + resistance)
        )

    def forward(self, x: Tensor, graph: Data) -> Tensor:
        """Attend."""
        everyone = cliques([len(x)])
        tables = (graph.hops, graph.ohms)
        made = (
            layer(x, everyone, distance)
            for layer, distance in zip(self.layers, tables, strict=False)
        )
        return torch.stack(list(made)).sum(0)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "GIN (1-WL)": Message,
    "distance in the logits": Attention,
    "distance in the values": lambda: Attention(values=True),
    "distance and resistance in the values": lambda: Attention(values=True, resistance=True),
}
PROFILES = "profiles of distances"


class RandomNetwork(nn.Module):
    """Layers of random weights in float64, and the mean over nodes of every layer's output."""

    def __init__(self, name: str, features: int, generator: Generator) -> None:
        super().__init__()
        self.first = nn.Linear(features, WIDTH)
        self.layers = nn.ModuleList(NETWORKS[name]() for _ in range(LAYERS))
        self.double().requires_grad_(False)
        for parameter in self.parameters():
            fan = parameter.size(-1) if parameter.dim() > 1 else 1
            wide = parameter.dim() > 1 and parameter.size(0) == VALUE_BUCKETS
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(drawn if wide else drawn * (2 / fan**0.5 if fan > 1 else 1.0))

    def forward(self, graph: Data) -> Tensor:
        """Of a graph as `prepared` gives it [layers * WIDTH]."""
        x, read = torch.tanh(self.first(graph.x.double())), []
        for layer in self.layers:
            x = layer(x, graph)
            x = torch.tanh((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True).clamp(min=1e-3))
            read.append(x.mean(0))
        return torch.cat(read)


def prepared(graph: Data) -> Data:
    """The same with one-hot features where they are categories, and its tables of distances."""
    nb = Neighborhood.from_edge_index(graph.edge_index, graph.num_nodes)
    x = graph.x if graph.x.is_floating_point() else torch.eye(2)[graph.x[:, 0]]
    hops = shortest_path_distance(nb).flatten()
    ohms = resistance_bucket(resistance_distance(nb), OHMS).flatten()
    return Data(x=x, edge_index=graph.edge_index, hops=hops, ohms=ohms)


def relabeled(graph: Data, generator: Generator) -> Data:
    """A copy with its nodes in another order."""
    order = torch.randperm(int(graph.num_nodes or 0), generator=generator)
    x = torch.empty_like(graph.x)
    x[order] = graph.x
    return Data(x=x, edge_index=order[graph.edge_index])


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return float((a - b).abs().max() / torch.maximum(a.abs().max(), b.abs().max()))


def profile(graph: Data) -> Tensor:
    """How many nodes lie at each distance from every node, rows sorted [N, 256]; exact."""
    table = graph.hops.long().view(graph.num_nodes, -1)
    counts = torch.zeros(len(table), BUCKETS, dtype=torch.int64)
    counts.scatter_add_(1, table, torch.ones_like(table))
    return torch.tensor(sorted(counts.tolist()))
