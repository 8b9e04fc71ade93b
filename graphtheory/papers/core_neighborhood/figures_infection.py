"""Hops to the nearest infected node: read by an encoding of distances, or passed on hop by hop."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import networkx as nx
import torch
from sklearn.metrics import matthews_corrcoef
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.datasets import InfectionDataset
from torch_geometric.datasets.graph_generator import GraphGenerator
from torch_geometric.nn import GPSConv
from torch_geometric.utils import to_undirected

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.table import mean_spread
from graphtheory.models.stack import ResidualStack, StackOptions
from graphtheory.nn import GATConv, GCNConv, SPDTransformerConv
from graphtheory.nn.conv.pna_conv import PNAConv
from graphtheory.papers.figure import Figure, Verdict, small, verdict_of
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import error_curves, picture_of
from graphtheory.papers.pivot import Measurements, Pivot
from graphtheory.patterns import AddSelf, Compose, KHop

OURS = "SPD transformer"
_LEAST = 0.95  # of the correlation; the article's best network has 0.92 and 0.87
_TRAINED = 0.6  # share of the nodes


@dataclass(frozen=True)
class Sparse(GraphGenerator):
    """Erdos-Renyi graphs, as PyG's `ERGraph` draws them with memory for all pairs of nodes."""

    nodes: int
    probability: float  # of an edge
    seed: int

    def __call__(self) -> Data:
        graph = nx.fast_gnp_random_graph(self.nodes, self.probability, self.seed)
        edges = torch.tensor(list(graph.edges)).view(-1, 2).T
        return Data(num_nodes=self.nodes, edge_index=to_undirected(edges, num_nodes=self.nodes))


@dataclass(frozen=True)
class Infection(Grid):
    """Networks of one width, trained for as many steps; only ours had trials of its options.

    Edge probabilities, infected nodes and the longest path are those of the article's files; its
    split of the nodes is not published, so that here 60 % are drawn to learn from.
    """

    networks: tuple[str, ...] = axis("network", (OURS, "GCN", "GAT", "PNA", "GPS"))
    # nodes, probability of an edge, infected nodes
    graphs: tuple[tuple[int, float, int], ...] = axis(
        "graph", ((15_000, 9e-5, 40), (30_000, 5e-5, 20))
    )
    hops: int = 20  # the longest path; farther nodes are one class
    width: int = 32
    heads: int = 4
    layers: int = 10  # of networks that pass messages along edges
    steps: int = 300
    batch_size: int = 256  # nodes whose balls are looked at together
    step_size: float = 0.005
    table_step: float = 0.1  # of what is learned for each distance
    seeds: int = axis("seed", 3)
    first: int = 0

    def build(self, network: str, graph: Neighborhood) -> nn.Module:
        """A network of one layer on balls, or of `layers` on edges."""
        each, (width, heads) = self.width // self.heads, (self.width, self.heads)
        aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification"]
        layers: dict[str, Callable[..., nn.Module]] = {
            OURS: lambda *_: SPDTransformerConv(
                width, each, heads, num_buckets=self.hops + 1, value_encoding=True
            ),
            "GCN": lambda *_: GCNConv(width, width),
            "GAT": lambda *_: GATConv(width, each, heads),
            "PNA": lambda *_: PNAConv(
                width, width, aggregators, scalers, torch.bincount(graph.degree())
            ),
            "GPS": lambda *_: GPSConv(width, GCNConv(width, width), heads, attn_type="performer"),
        }
        count = 1 if network == OURS else self.layers
        options = StackOptions(dropout=0.0)
        return ResidualStack(
            layers[network], 2, width, self.hops + 2, count, options, ffn=network == OURS
        )


def balls(graph: Neighborhood, nodes: Tensor, hops: int) -> Neighborhood:
    """The nodes within `hops` of each of the given sorted nodes; other rows are empty."""
    rows = Compose(KHop(hops), AddSelf()).on_rows(graph, nodes)
    sizes = torch.zeros(graph.num_dst + 1, dtype=torch.int64)
    indptr = sizes.index_copy(0, nodes + 1, rows.degree()).cumsum(0)
    return Neighborhood(indptr, rows.indices, graph.num_dst, distance=rows.distance)


def correlation(
    grid: Infection, network: str, graph: tuple[int, float, int], seed: int
) -> list[Measured]:
    """Train a network, and correlate its classes of the other nodes with theirs."""
    nodes, probability, infected = graph
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = InfectionDataset(Sparse(nodes, probability, seed), infected, grid.hops)[0]
        edges = Neighborhood.from_edge_index(data.edge_index, nodes)
        model = grid.build(network, edges)
        optimizer = torch.optim.Adam(
            {"params": [part], "lr": grid.table_step if name.endswith("table") else grid.step_size}
            for name, part in model.named_parameters()
        )
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.05, grid.steps)
        learned, tested = torch.randperm(nodes).tensor_split([int(_TRAINED * nodes)])

        def logits(some: Tensor) -> Tensor:
            seen = balls(edges, some, grid.hops) if network == OURS else edges
            return model(data.x, seen)[some]

        for _ in range(grid.steps):
            some = learned
            if network == OURS:
                some = learned[torch.randperm(len(learned))[: grid.batch_size]].sort().values
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits(some), data.y[some]).backward()
            optimizer.step()
            decay.step()
        model.eval()
        parts = tested.sort().values.split(grid.batch_size if network == OURS else nodes)
        with torch.no_grad():
            found = torch.cat([logits(part).argmax(1) for part in parts])
    score = float(matthews_corrcoef(data.y[torch.cat(parts)], found))
    return [{"network": network, "nodes": nodes, "seed": seed, "mcc": score}]


def reads_distances(grid: Infection, measured: Measurements) -> Verdict:
    """The network with distances is at `_LEAST` on every graph."""
    mine = {n: [m["mcc"] for m in measured if (m["network"], m["nodes"]) == (OURS, n)]
            for n in dict.fromkeys(m["nodes"] for m in measured)}  # fmt: skip
    told = ", ".join(f"{fmean(values):.2f} on {n:,} nodes" for n, values in mine.items())
    holds = verdict_of(all(fmean(values) >= _LEAST for values in mine.values()), grid.seeds)
    return Verdict(f"{OURS}: {told}; at least {_LEAST} expected: {holds}.")


FIGURES = (
    Figure(
        "infection", "hops to the nearest infected node on Erdos-Renyi graphs", Infection(),
        correlation,
        Pivot(
            "Matthews correlation of nodes that were not trained on", {"mcc": "MCC"},
            {"network": "network"}, across="nodes", cell=mean_spread,
            note="Buterez et al. (2025), table 4, tuned, on 15,000 and 30,000 nodes: GCN 0.22 and "
            "0.09, GAT 0.32 and 0.10, PNA 0.54 and 0.42, GPS 0.18 and out of memory, Graphormer "
            "out of memory, their NSA 0.92 and 0.87. Only step size and decay of ours had trials.",
        ),
        (reads_distances,),
        picture_of(
            error_curves, panel="Matthews correlation", series="{network}", at="{nodes:,}",
            value="mcc", xlabel="nodes",
        ),
        small(networks=slice(2), graphs=((600, 2.5e-3, 6),), layers=4, steps=60, seeds=1),
    ),
)  # fmt: skip
