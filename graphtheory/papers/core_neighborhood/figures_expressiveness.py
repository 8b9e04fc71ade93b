"""Which graphs a network can tell apart: distances in the logits, in the values, resistances."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv

from graphtheory.graph import Neighborhood, cliques
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table
from graphtheory.nn import SPDTransformerConv
from graphtheory.papers.core_neighborhood.expressiveness import expressiveness_pairs
from graphtheory.papers.figure import DataSets, Figure, Verdict
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.structure import resistance_bucket, resistance_distance, shortest_path_distance

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
        """Aggregate from the neighbors of each node."""
        return self.layer(x, graph.edge_index)


class Attention(nn.Module):
    """Attention over all nodes by distance in the logits, and if asked in the values."""

    def __init__(self, values: bool = False, resistance: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            SPDTransformerConv(
                WIDTH, WIDTH // 2, 2, num_buckets=VALUE_BUCKETS, value_encoding=values
            )
            for _ in range(1 + resistance)
        )

    def forward(self, x: Tensor, graph: Data) -> Tensor:
        """Attend to all nodes by their distance."""
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


LOGITS = "distance in the logits"
SETS = ("csl", "brec", "sr25", "exp", "cexp")
CONSTANT = ("csl", "brec", "sr25")
"""Sets whose nodes all have the same features."""


@dataclass(frozen=True)
class Pairs(Grid):
    """Networks of random weights on pairs of graphs; one seed that tells a pair apart is enough."""

    dataset: str = "csl"  # a set of pairs
    root: Path | None = unrecorded(None)
    networks: tuple[str, ...] = axis("network", (PROFILES, *NETWORKS))
    seeds: int = axis("seed", 3)  # of the weights
    tolerance: float = 1e-9  # relative difference of outputs that tells two graphs apart
    every: int = 1  # every how many pairs one is taken


@torch.no_grad()
def compare(grid: Pairs, network: str, seed: int) -> list[Measured]:
    """The pairs told apart, and the largest difference between a graph and its relabeled copy."""
    pairs = _pairs(grid.dataset, grid.root, grid.every)
    if network == PROFILES:
        alike = [[torch.equal(profile(a), profile(other)) for other in of] for a, *of in pairs]
        told = [i for i, (same, _) in enumerate(alike) if not same]
        control = float(not all(same for _, same in alike))
        gaps = [float(i in told) for i in range(len(pairs))]
    else:
        model = RandomNetwork(network, pairs[0][0].x.size(1), Generator().manual_seed(seed))
        outputs = [[model(graph) for graph in of] for of in pairs]
        gaps = [gap(a, b) for a, b, _ in outputs]
        control = max(gap(a, copy) for a, _, copy in outputs)
        told = [i for i, size in enumerate(gaps) if size > grid.tolerance]
    return [
        {
            "network": network, "seed": seed, "pairs": len(pairs), "told": told,
            "control": control,
            "largest_alike": max((of for i, of in enumerate(gaps) if i not in told), default=0.0),
            "least_told": min((gaps[i] for i in told), default=None),
        }
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _pairs(dataset: str, root: Path | None, every: int) -> list[tuple[Data, Data, Data]]:
    """Both graphs of each pair, and a relabeled copy of the first."""
    generator, out = Generator().manual_seed(0), []
    known: dict[int, Data] = {}
    for a, b in expressiveness_pairs(dataset, root)[::every]:
        for graph in (a, b):
            if id(graph) not in known:
                known[id(graph)] = prepared(graph)
        copy = prepared(relabeled(a, generator))
        out.append((known[id(a)], known[id(b)], copy))
    return out


def _show(grid: Pairs, measured: Measurements) -> Shown:
    lines, rows = [], []
    for (network,), mine in groups(measured, "network").items():
        total, by_seed = mine[0]["pairs"], [len(one["told"]) for one in mine]
        union = len({i for one in mine for i in one["told"]})
        control = max(one["control"] for one in mine)
        alike = max(one["largest_alike"] for one in mine)
        least = min((one["least_told"] for one in mine if one["told"]), default=None)
        lines.append(
            [network, f"{union} of {total}", f"{min(by_seed)} to {max(by_seed)}",
             "" if least is None else f"{least:.0e}", f"{alike:.0e}", f"{control:.0e}"]
        )  # fmt: skip
        about = {"dataset": grid.dataset, "network": network}
        rows += [
            Row.of("pairs told apart", union, "pairs", **about),
            Row.of("pairs", total, "pairs", **about),
            Row.of("difference of relabeled copies", control, "1", **about),
        ]
    heads = ["network", "told apart", "by one seed", "least difference of these",
             "largest of the others", "of relabeled copies"]  # fmt: skip
    return Shown(Table("pairs of graphs told apart", heads, lines), rows)


def copies_are_alike(grid: Pairs, measured: Measurements) -> Verdict:
    """Whether relabeled copies stay within the tolerance, without which nothing counts."""
    bad = [one["network"] for one in measured if one["control"] > grid.tolerance]
    said = "all within" if not bad else f"not within, of {', '.join(dict.fromkeys(bad))},"
    return Verdict(f"Relabeled copies are {said} the tolerance of {grid.tolerance:g}.")


def logits_alone(grid: Pairs, measured: Measurements) -> Verdict:
    """With equal features a bias in the logits changes no output: all values are the same."""
    told = {i for one in measured if one["network"] == LOGITS for i in one["told"]}
    if grid.dataset.lower() not in CONSTANT:
        return Verdict("Nodes have features of two kinds here, so attention weights matter.")
    found = "holds" if not told else f"not found: {len(told)} pairs differ"
    return Verdict(f"Distances in the logits alone tell no graphs of equal nodes apart: {found}.")


FIGURES = (
    Figure(
        "expressiveness", "which pairs of graphs distances in logits, in values, resistances tell",
        Pairs(), compare, _show, (copies_are_alike, logits_alone), None,
        lambda grid: replace(grid, seeds=1, every=1 if grid.dataset in ("csl", "sr25") else 10),
        DataSets("csl", SETS, read=expressiveness_pairs),
    ),
)  # fmt: skip
