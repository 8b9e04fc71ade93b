"""A graph behind PyG's `FeatureStore` and `GraphStore`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore
from torch_geometric.data.graph_store import EdgeLayout

from graphtheory.data.loaders.attributes import Level, check_names, level_of
from graphtheory.data.loaders.source import NodeSource
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_rows


class OfStores(NodeSource):
    """A pair of stores with one edge type, from a node type to itself.

    The graph is read once, as what the graph store gives of it in this process; features of a
    batch's nodes are asked for when it is made, by ids in main memory, wherever they come back.
    """

    def __init__(self, features: Any, graph: Any, attributes: Sequence[str] | None) -> None:
        for name, store, kind in (("0", features, FeatureStore), ("1", graph, GraphStore)):
            if not isinstance(store, kind):
                got = type(store).__name__
                raise TypeError(f"data[{name}]: got {got}, expected a {kind.__name__}")
        if isinstance(graph, Data) and "edge_weight" in graph:
            raise ValueError(
                "edge_weight: a graph store has no place for it; give the Data by itself"
            )
        self.features = features
        node_type = _only_node_type(graph)
        known = _of_type(features, node_type)
        sizes = {
            name: tuple(int(n) for n in features.get_tensor_size(a)) for name, a in known.items()
        }
        self.graph = _read(graph, _num_nodes(graph, sizes))
        check_names(known, attributes)
        self.attrs: dict[str, Any] = {}
        self.whole: dict[str, Any] = {}
        for name in known if attributes is None else attributes:
            level = _level(name, sizes[name], self.graph, asked=attributes is not None)
            if level == "node":
                self.attrs[name] = known[name]
            elif level == "graph":
                self.whole[name] = features.get_tensor(known[name])

    def of_nodes(self, nodes: Tensor) -> dict[str, Any]:
        """The features, asked for by id."""
        asked = [copy.copy(attr) for attr in self.attrs.values()]
        for attr in asked:
            attr.index = nodes
        values = self.features.multi_get_tensor(asked) if asked else []
        return self.whole | {
            name: torch.as_tensor(value) for name, value in zip(self.attrs, values, strict=True)
        }


def _of_type(features: FeatureStore, node_type: str | None) -> dict[str, Any]:
    """What the store has of these nodes, whole; `Data` lists its edges there, too."""
    found = {}
    for attr in features.get_all_tensor_attrs():
        attr = copy.copy(attr)
        attr.index = None
        if not attr.is_set("group_name"):
            attr.group_name = None
        if attr.group_name == node_type and attr.attr_name not in ("edge_index", "adj_t"):
            found[attr.attr_name] = attr
    return found


def _level(name: str, shape: tuple[int, ...], graph: Neighborhood, *, asked: bool) -> Level:
    if asked and shape[:1] == (graph.num_dst,):
        return "node"
    return level_of(name, shape, graph.num_dst, graph.num_edges)


def _only_node_type(graph: GraphStore) -> str | None:
    """What sends and receives; None where the store knows no types."""
    types = sorted({attr.edge_type for attr in graph.get_all_edge_attrs()}, key=str)
    if len(types) != 1:
        raise ValueError(
            f"data[1]: edge types {types}, expected exactly one; put the edges that count, or all "
            "of them as one type, into a store of their own"
        )
    if types[0] is None:
        return None
    if types[0][0] != types[0][-1]:
        raise ValueError(
            f"data[1]: edges {types[0]} join two node types, expected one type that both sends "
            "and receives"
        )
    return types[0][0]


def _num_nodes(graph: GraphStore, sizes: dict[str, tuple[int, ...]]) -> int:
    for attr in graph.get_all_edge_attrs():
        if attr.size is not None and None not in attr.size:
            return int(attr.size[0])
    if "x" in sizes:
        return sizes["x"][0]
    raise ValueError("data[1]: no edge attribute has a size, expected the number of nodes there")


def _read(graph: GraphStore, num_nodes: int) -> Neighborhood:
    """The edges in one of the layouts that the store has them in, on the CPU."""
    attr = graph.get_all_edge_attrs()[0]
    row, col = (torch.as_tensor(part).as_subclass(Tensor) for part in graph.get_edge_index(attr))
    row, col = row.long().cpu(), col.long().cpu()
    if attr.layout == EdgeLayout.CSC:  # as it is, so that a mapped file stays on the disk
        if len(col) != num_nodes + 1:
            raise ValueError(f"data[1]: {len(col)} row pointers for {num_nodes} nodes and the end")
        check_rows(col, row, num_nodes)
        return Neighborhood(col, row, num_nodes, validate=False)
    if attr.layout == EdgeLayout.CSR:
        row = _of_each_edge(row)
    return Neighborhood.from_edge_index(torch.stack([row, col]), num_nodes)


def _of_each_edge(indptr: Tensor) -> Tensor:
    return torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
