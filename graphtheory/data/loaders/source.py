"""Where a loader reads a graph and what its nodes carry: `Data`, or a pair of PyG's stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphtheory.data.loaders.attributes import SPD, STRUCTURE, check_names, level_of
from graphtheory.data.transforms import pair_neighborhood
from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import take_rows


class NodeSource(ABC):
    """A graph of one node type, on the CPU, and the attributes of its nodes."""

    graph: Neighborhood

    @abstractmethod
    def of_nodes(self, nodes: Tensor) -> dict[str, Any]:
        """The attributes of some nodes, int64 ids."""


def source_of(
    data: Any, attributes: Sequence[str] | None, edge_type: tuple[str, str, str] | None = None
) -> NodeSource:
    """Read `data`, which a loader was given.

    Raises:
        TypeError: It is neither `Data`, a `GraphFolder` nor a pair of stores, or it is
            `HeteroData` and no relation is named.
        ValueError: No nodes, no edges, not on the CPU, an attribute that cannot be cut, or a
            relation that is not there or joins two node types.
    """
    if isinstance(data, HeteroData):
        data = relation_of(data, edge_type)
    elif edge_type is not None:
        raise TypeError(f"edge_type: got {edge_type} beside {type(data).__name__}, expected None")
    source: NodeSource
    if isinstance(data, Data):
        source = OfData(data, attributes)
    elif isinstance(data, NodeSource):
        if attributes is not None:
            raise TypeError("attributes: got some, expected None; name them where it is opened")
        source = data
    elif isinstance(data, tuple) and len(data) == 2:
        from graphtheory.data.loaders.stores import OfStores

        source = OfStores(*data, attributes)
    else:
        raise TypeError(
            f"data: got {type(data).__name__}, expected Data, a GraphFolder or a pair "
            "(FeatureStore, GraphStore)"
        )
    if source.graph.num_dst == 0:
        raise ValueError("data: has no nodes, expected at least one")
    if source.graph.device.type != "cpu":
        raise ValueError(
            f"data: lies on {source.graph.device}, expected the CPU; move the batches instead"
        )
    return source


def relation_of(data: HeteroData, edge_type: tuple[str, str, str] | None) -> Data:
    """A relation of one node type, with the attributes of its nodes, as a graph of its own."""
    known = [kind for kind in data.edge_types if kind[0] == kind[-1]]
    expected = f"expected one of {known}, or data.to_homogeneous() for all as one"
    if edge_type is None:
        raise TypeError(f"edge_type: got None beside HeteroData, {expected}")
    if edge_type not in known:
        kind = "joins two node types" if edge_type in data.edge_types else "is not there"
        raise ValueError(f"edge_type: {edge_type!r} {kind}, {expected}")
    nodes, edges = data[edge_type[0]], data[edge_type]
    graph = {name: edges[name] for name in STRUCTURE if name in edges}
    return Data.from_dict(nodes.to_dict() | graph | {"num_nodes": nodes.num_nodes})


class OfData(NodeSource):
    """PyG's `Data`."""

    def __init__(self, data: Data, attributes: Sequence[str] | None) -> None:
        check_names(data.keys(), attributes)
        if not ("edge_index" in data or "adj_t" in data):
            raise ValueError("data: has neither edge_index nor adj_t, expected a graph")
        self.graph = neighborhood_from(data)
        self.node: dict[str, Tensor] = {}
        self.whole: dict[str, Any] = {}
        names = data.keys() if attributes is None else attributes
        self.pairs = pair_neighborhood(data) if any(name in SPD for name in names) else None
        for name in names:
            if name not in SPD and name not in STRUCTURE:
                self._take(name, data[name], asked=attributes is not None)

    def _take(self, name: str, value: Any, *, asked: bool) -> None:
        nodes, edges = self.graph.num_dst, self.graph.num_edges
        if isinstance(value, Tensor):
            named_by_caller = asked and value.dim() > 0 and value.size(0) == nodes
            level = "node" if named_by_caller else level_of(name, value.shape, nodes, edges)
            if level == "edge":
                return
            (self.node if level == "node" else self.whole)[name] = value
        elif isinstance(value, (str, int, float, bool)):
            self.whole[name] = value
        else:
            raise ValueError(
                f"{name}: got {type(value).__name__}, expected a tensor, a number or a string; "
                "name those that shall travel in `attributes`"
            )

    def of_nodes(self, nodes: Tensor) -> dict[str, Any]:
        """Rows of tensors, numbers and strings as they are, distances between these nodes."""
        found = self.whole | {name: take_rows(value, nodes) for name, value in self.node.items()}
        return found if self.pairs is None else found | _pairs_among(self.pairs, nodes)


def _pairs_among(pairs: Neighborhood, nodes: Tensor) -> dict[str, Any]:
    """The attributes of `AddShortestPathDistance` under the nodes' new numbers."""
    local = nodes.new_full((pairs.num_src,), -1)
    local[nodes] = torch.arange(len(nodes))
    rows = pairs.rows(nodes)
    rows = rows.keep(local[rows.indices] >= 0)
    index = torch.stack([local[rows.indices], rows.targets()])
    values = (index, rows.distance, torch.arange(len(nodes)), index.size(1))
    return dict(zip(SPD, values, strict=True))
