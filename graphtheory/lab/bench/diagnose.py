"""What a graph offers before training: discriminative nodes, winning margins, core distance.

Source: Li (2024), section B.1.1, under its definitions and the nearest others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.structure import (
    DistanceCounts,
    class_balance,
    core_distance,
    count_by_distance,
    discriminative_nodes,
    winning_margin,
)

Progress = Callable[[str, int, int], None]
MOMENTS = ("uncentered", "covariance")


@dataclass(frozen=True)
class Diagnosis:
    """Discriminative nodes, winning margins and class balance of one graph.

    Without features, as of a PubMed whose feature files are missing, only the class balance and
    the sizes are measured.

    Attributes:
        dataset: Name of a graph; `graphtheory.lab.datasets.graphs.names("node")` lists them.
        root: Folder with the raw files; not needed for embedded sets.
        max_distance: Largest distance z of the margins, hops, 1..253.
        directed: Distances along the edges as the data set gives them; otherwise every edge counts
            in both directions, as in Li (2024), whose 26,659 edges of Actor are undirected.
        moments: Second-moment matrices whose eigenvectors define discriminative nodes.
        seed: Of the synthetic graph "core-neighborhood"; no other set depends on it.
    """

    dataset: str = "Cora"
    root: Path | None = None
    max_distance: int = 12
    directed: bool = False
    moments: tuple[str, ...] = MOMENTS
    seed: int = 0

    @cached_property
    def name(self) -> str:
        """The data set's name as it is usually written."""
        return graphs.describe(self.dataset).name

    def run(self, progress: Progress = lambda *_: None) -> list[Row]:
        """Measure, and return all result rows.

        Args:
            progress: Called before each definition of discriminative nodes: its name, how many are
                done, of how many.

        Raises:
            ValueError: An unknown data set, or `max_distance` out of range.
            FileNotFoundError: Raw files are missing.
        """
        return list(self._rows(progress))

    def _rows(self, progress: Progress) -> Iterator[Row]:
        x, y, graph = load_graph(self.name, self.root, self.seed)
        graph = graph if self.directed else both_ways(graph)
        yield from self._sizes(x, y, graph)
        labeled = y >= 0
        for c, size in enumerate(torch.bincount(y[labeled]).tolist(), 1):
            yield Row.of("class size", size, "nodes", dataset=self.name, group=c)
        balance = class_balance(y)
        for name, value in balance._asdict().items():
            yield Row.of(f"balance {name}", value, "nodes", dataset=self.name)
        if x is None:
            return
        for done, moment in enumerate(self.moments):
            progress(moment, done, len(self.moments))
            yield from self._margins(x, y, graph, moment)

    def _sizes(self, x: Tensor | None, y: Tensor, graph: Neighborhood) -> Iterator[Row]:
        edges = both_ways(graph).edge_index()
        sizes = {
            "nodes": len(y),
            "edges": int((edges[0] < edges[1]).sum()),
            "classes": int(y.max()) + 1,
        }
        if x is not None:
            sizes["features"] = x.size(1)
        for name, size in sizes.items():
            yield Row.of(name, size, "1", dataset=self.name)

    def _margins(self, x: Tensor, y: Tensor, graph: Neighborhood, moment: str) -> Iterator[Row]:
        where = {"dataset": self.name, "moment": moment}
        found = _discriminative(x, y, moment)
        classes = int(y.max()) + 1
        yield from _shares(found, y, where)
        pattern = y.where(found, torch.full_like(y, -1))
        rings = count_by_distance(graph, pattern, classes, max_distance=self.max_distance)
        for region, counts in (("ring", rings), ("ball", rings.within())):
            yield from _core(counts, y, where | {"region": region})


def discriminative_shares(
    dataset: str, x: Tensor, y: Tensor, moments: Sequence[str] = MOMENTS
) -> list[Row]:
    """The rows of a diagnosis that need neither edges nor nodes without features.

    Args:
        dataset: Name in the rows.
        x: Features [N, d].
        y: Classes [N]; -1 for none.
        moments: As of a `Diagnosis`.
    """
    about = [{"dataset": dataset, "moment": moment} for moment in moments]
    return [
        row for where in about for row in _shares(_discriminative(x, y, where["moment"]), y, where)
    ]


def _shares(found: Tensor, y: Tensor, where: dict[str, Any]) -> Iterator[Row]:
    for c in range(int(y.max()) + 1):
        share = 100 * float(found[y == c].double().mean())
        yield Row.of("discriminative share", share, "%", **where, group=c + 1)


def _discriminative(x: Tensor, y: Tensor, moment: str) -> Tensor:
    """Bool [N]; nodes without a label shape no class and are not discriminative."""
    found = y >= 0
    own = x if bool(found.all()) else x[found]
    found[found.clone()] = discriminative_nodes(own, y[found], moment=moment)  # type: ignore[arg-type]
    return found


def _core(counts: DistanceCounts, y: Tensor, where: dict[str, Any]) -> Iterator[Row]:
    """Margins over the distance, where they are largest, and for how many nodes they win there.

    The normalized margin divides by |N_z(n)| node by node, the pooled one the sum of all margins by
    the sum of all |N_z(n)|. "reach" is the share of nodes with any node in the region; "hearing"
    counts only those with a discriminative one.
    """
    labeled = y >= 0
    counts = DistanceCounts(counts.pattern[labeled], counts.size[labeled])
    y = y[labeled]
    plain, normalized = (winning_margin(counts, y, normalized=n) for n in (False, True))
    size = counts.size[:, 1:].double()
    pooled = plain.sum(0) / size.sum(0).clamp(min=1)
    for name, curve, unit in (
        ("margin", plain.mean(0), "nodes"),
        ("normalized margin", normalized.mean(0), "1"),
        ("pooled margin", pooled, "1"),
        ("reach", 100 * (size > 0).double().mean(0), "%"),
    ):
        for z, value in enumerate(curve.tolist(), 1):
            yield Row.of(name, value, unit, **where, distance=z)
        if name != "reach":
            yield Row.of(f"core distance by {name}", int(curve.argmax()) + 1, "hops", **where)
    reached = counts.pattern[:, 1:].sum(2) > 0
    for z in sorted({1, core_distance(plain), core_distance(normalized)}):
        wins, informed = plain[:, z - 1] > 0, reached[:, z - 1]
        for nodes, chosen in (("all", wins), ("hearing", wins[informed])):
            if len(chosen):
                share = 100 * float(chosen.double().mean())
                yield Row.of("positive margin", share, "%", **where, distance=z, nodes=nodes)


def load_graph(
    name: str, root: Path | None, seed: int
) -> tuple[Tensor | None, Tensor, Neighborhood]:
    """Features, labels and edges as published; a PubMed whose features are missing has None.

    Args:
        name: As `graphs.describe` writes it.
        root: Folder with the raw files.
        seed: Of a synthetic graph.
    """
    try:
        data = graphs.load(name, root, seed=seed)
    except FileNotFoundError:
        if name != "PubMed":
            raise
        data = graphs.load_topology(name, root)
    return data.x, data.y, Neighborhood.from_edge_index(data.edge_index, len(data.y))


def both_ways(graph: Neighborhood) -> Neighborhood:
    """Make a graph with every edge in both directions, once."""
    edges = torch.cat([graph.edge_index(), graph.edge_index().flip(0)], 1).unique(dim=1)
    return Neighborhood.from_edge_index(edges, graph.num_dst)
