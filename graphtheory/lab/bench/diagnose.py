"""What a graph offers before training: discriminative nodes, winning margins, core distance.

Source: Li (2024), section B.1.1, under its definitions and the nearest others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphtheory import structure
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.node_task import OwnNodes, hop_rows
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.graphs import Data

Progress = Callable[[str, int, int], None]
MOMENTS = ("uncentered", "covariance")
ONE_WAY = "one-way edges, read both ways"
UNDETERMINED = "classes without unique directions"


@dataclass(frozen=True)
class Diagnosis:
    """Discriminative nodes, winning margins and class balance of one graph.

    Of a PubMed whose feature files are missing only the class balance and the sizes are measured.
    """

    dataset: str = "Cora"
    root: Path | None = None  # folder with the raw files; not needed for embedded sets
    max_distance: int = 12  # z of the margins, hops, 1..253
    directed: bool = False  # else edges are read both ways, as Actor's 26,659 in Li (2024)
    moments: tuple[str, ...] = MOMENTS  # whose eigenvectors define discriminative nodes
    own: OwnNodes | None = None  # the user's own graph in place of a data set

    @cached_property
    def name(self) -> str:
        """The data set's name as it is usually written."""
        return graphs.describe(self.dataset).name if self.own is None else self.own.name

    def hops(self) -> list[Row]:
        """The rows of `hop_rows` for this graph; none where its features are missing."""
        x, y, graph = self._graph()
        if x is None:
            return []
        own = self.own or OwnNodes(Data(x=x, y=y, edge_index=graph.edge_index()), self.name)
        data = own.data(0, row_scale=False, undirected=not self.directed)
        return hop_rows(data, self.name)

    def _graph(self) -> tuple[Tensor | None, Tensor, Neighborhood]:
        if self.own is None:
            return load_graph(self.name, self.root, seed=0)
        data = self.own.own
        return data.x.to_dense(), data.y, Neighborhood.from_edge_index(data.edge_index, len(data.y))

    def run(self, progress: Progress = lambda *_: None) -> list[Row]:
        """Measure all rows; `progress` gets each definition, how many are done, and of how many."""
        x, y, published = self._graph()
        graph, of = both_ways(published), {"dataset": self.name}
        edges, classes = graph.edge_index(), int(y.max()) + 1
        stored = published.edge_index().unique(dim=1).size(1)
        pairs = stored if self.directed else int((edges[0] < edges[1]).sum())
        sizes = {"nodes": len(y), "edges": pairs, "classes": classes}
        back = 0 if self.directed else graph.num_edges - stored
        sizes |= {ONE_WAY: back} if back else {}
        sizes |= {} if x is None else {"features": x.size(1)}
        rows = [Row.of(name, size, "1", **of) for name, size in sizes.items()]
        for c, size in enumerate(torch.bincount(y[y >= 0]).tolist(), 1):
            rows.append(Row.of("class size", size, "nodes", **of, group=c))
        for name, value in structure.class_balance(y)._asdict().items():
            rows.append(Row.of(f"balance {name}", value, "nodes", **of))
        if x is None:
            return rows
        for done, moment in enumerate(self.moments):
            progress(moment, done, len(self.moments))
            found, shares = discriminative_shares(self.name, x, y, moment)
            pattern, seen = y.where(found, -1), published if self.directed else graph
            far = self.max_distance
            rings = structure.count_by_distance(seen, pattern, classes, max_distance=far)
            rows += shares
            if tied := undetermined(x, y, moment):
                rows.append(Row.of(UNDETERMINED, tied, "1", **of, moment=moment))
            for region, counts in (("ring", rings), ("ball", rings.within())):
                rows += _core(counts, y, of | {"moment": moment, "region": region})
        return rows


def discriminative_shares(
    dataset: str, x: Tensor, y: Tensor, moment: Any
) -> tuple[Tensor, list[Row]]:
    """Discriminative nodes, Bool [N], and their share of each class as rows.

    Nodes without a label shape no class and are not discriminative.
    """
    found, name = y >= 0, "discriminative share"
    own = x if bool(found.all()) else x[found]
    found[found.clone()] = structure.discriminative_nodes(own, y[found], moment=moment)
    shares = [100 * float(found[y == c].double().mean()) for c in range(int(y.max()) + 1)]
    where = {"dataset": dataset, "moment": moment}
    return found, [Row.of(name, share, "%", **where, group=c) for c, share in enumerate(shares, 1)]


def undetermined(x: Tensor, y: Tensor, moment: str) -> int:
    """Count classes without unique main directions: the third and the fourth weigh the same."""
    x, found = x.to_dense().double(), 0
    for own in (x[y == c] for c in range(int(y.max()) + 1)):
        own = own - own.mean(0) if moment == "covariance" else own
        small = own.T @ own if own.size(1) < len(own) else own @ own.T
        weights = [*torch.linalg.eigvalsh(small).flip(0)[:4].tolist(), 0, 0, 0, 0]
        found += 1e-9 * weights[0] < weights[2] <= weights[3] * (1 + 1e-6)
    return found


def _core(counts: structure.DistanceCounts, y: Tensor, where: dict[str, Any]) -> Iterator[Row]:
    """Margins over the distance; "hearing" are nodes with a discriminative one in the region."""
    labeled = y >= 0
    counts, y = structure.DistanceCounts(counts.pattern[labeled], counts.size[labeled]), y[labeled]
    plain, normalized = (structure.winning_margin(counts, y, normalized=n) for n in (False, True))
    size = counts.size[:, 1:].double()
    for name, curve, unit in (
        ("margin", plain.mean(0), "nodes"),
        ("normalized margin", normalized.mean(0), "1"),
        ("pooled margin", plain.sum(0) / size.sum(0).clamp(min=1), "1"),
        ("reach", 100 * (size > 0).double().mean(0), "%"),
    ):
        for z, value in enumerate(curve.tolist(), 1):
            yield Row.of(name, value, unit, **where, distance=z)
        if name != "reach":
            yield Row.of(f"core distance by {name}", int(curve.argmax()) + 1, "hops", **where)
    reached = counts.pattern[:, 1:].sum(2) > 0
    for z in sorted({1, structure.core_distance(plain), structure.core_distance(normalized)}):
        wins, informed = plain[:, z - 1] > 0, reached[:, z - 1]
        for nodes, chosen in (("all", wins), ("hearing", wins[informed])):
            if len(chosen):
                share = 100 * float(chosen.double().mean())
                yield Row.of("positive margin", share, "%", **where, distance=z, nodes=nodes)


def load_graph(
    name: str, root: Path | None, seed: int
) -> tuple[Tensor | None, Tensor, Neighborhood]:
    """Features, labels and edges as published; a PubMed whose features are missing has None."""
    try:
        data = graphs.load(name, root, seed=seed)
    except FileNotFoundError:
        if name != "PubMed":
            raise
        data = graphs.load_topology(name, root)
    return data.x, data.y, Neighborhood.from_edge_index(data.edge_index, len(data.y))


def both_ways(graph: Neighborhood) -> Neighborhood:
    """Make a graph with every edge in both directions, once."""
    data = graphs.both_ways(Data(edge_index=graph.edge_index(), num_nodes=graph.num_dst))
    return Neighborhood.from_edge_index(data.edge_index, graph.num_dst)
