"""Where a loader reads a graph and what its nodes carry: `Data`, or a pair of PyG's stores."""

import copy
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.index import ptr2index

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import check_rows, take_rows
from graphtheory.patterns.base import places_among

STRUCTURE = ("edge_index", "adj_t", "edge_weight", "num_nodes")
OWN = ("n_id", "input_id", "batch_size", "loss_weight", "neighborhood", "neighborhoods")
Level = Literal["node", "edge", "graph"]
Named = dict[str, Tensor]

_REMEDY = "name those that shall travel in `attributes`, without it, or take it out of the data"


class NodeSource:
    """A graph of one node type, on the CPU, and the attributes of its nodes."""

    graph: Neighborhood
    node: dict[str, Any]  # attributes with a row for each node
    whole: dict[str, Any]  # those of the graph
    edge: dict[str, Any]  # those of edges that were asked for, in the order that was given
    left: dict[str, Any]  # and the others, which stay behind
    original_id: Tensor | None = None  # of each node in the data that was given, if it was moved
    names: Path | None = None  # of the file with the ids of nodes, if these are not 0..N-1
    held: bool = False  # whether others hold the ids of the graph, to look at in each epoch

    @cached_property
    def own(self) -> Neighborhood:
        """The edges for draws, sealed: a batch looks at few ids and hands none out."""
        return self.graph._changed()._seal()

    def of_nodes(self, nodes: Tensor) -> dict[str, Any]:
        """The attributes of some nodes, int64 ids."""
        return self.whole | {name: take_rows(value, nodes) for name, value in self.node.items()}

    def ids(self, original: Any) -> Tensor:
        """Where these nodes of the data that was given stand in `graph`."""
        return torch.as_tensor(original)

    def is_original(self, name: str, value: Any, order: str | None) -> bool:
        """Whether a value means nodes before they were moved; raises where nobody said so."""
        if order not in (None, "original", "folder"):
            raise ValueError(f"node_order: got {order!r}, expected 'original' or 'folder'")
        return False

    def _sort(self, name: str, shape: Sequence[int], value: Any, *, asked: bool) -> None:
        """Keep an attribute of nodes, of edges or of the graph; of edges only what is asked for."""
        level = level_of(name, shape, self.graph, asked=asked)
        of_edges = self.edge if asked else self.left
        {"node": self.node, "edge": of_edges, "graph": self.whole}[level][name] = value

    def of_edges(self, nodes: Tensor, drawn: Neighborhood, given: Tensor | None) -> Named:
        """The attributes of drawn edges between `nodes`, by their places in the data."""
        if not self.edge:
            return {}
        graph, fits = self.graph, given is not None and bool((given < self.graph.num_edges).all())
        if given is not None and fits:
            at = given if graph.perm is None else self._row_of_edge[given]
            ends = graph.indices[at].long(), torch.searchsorted(graph.indptr, at, right=True) - 1
            drawn_ends = nodes[drawn.indices], nodes[drawn.targets()]
            fits = all(map(torch.equal, ends, drawn_ends))
        if given is None or not fits:
            raise ValueError(
                f"attributes: {next(iter(self.edge))!r} has a row for each edge of the data, and "
                "the pattern makes others; expected one that draws among those, or other names"
            )
        return {name: take_rows(value, given) for name, value in self.edge.items()}

    @cached_property
    def _row_of_edge(self) -> Tensor:
        perm = self.graph.perm
        assert perm is not None
        return torch.empty_like(perm).index_copy_(0, perm.long(), torch.arange(len(perm)))


class Draws:
    """What draws from edges that nobody else gets: sealed, also where a pickle is opened."""

    base: Neighborhood

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.base._seal()


def source_of(
    data: Any, attributes: Sequence[str] | None, edge_type: tuple[str, str, str] | None = None
) -> NodeSource:
    """Read `data`, which a loader was given, or say what it should be."""
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
    """A graph that is a `Data` of PyG."""

    def __init__(self, data: Data, attributes: Sequence[str] | None) -> None:
        check_names(data.keys(), attributes)
        if not ("edge_index" in data or "adj_t" in data):
            raise ValueError("data: has neither edge_index nor adj_t, expected a graph")
        self.graph = neighborhood_from(data)
        self.node, self.whole, self.edge, self.left = {}, {}, {}, {}
        names = data.keys() if attributes is None else attributes
        for name in names:
            if name not in STRUCTURE:
                self._take(name, data[name], asked=attributes is not None)

    def _take(self, name: str, value: Any, *, asked: bool) -> None:
        if isinstance(value, Tensor):
            self._sort(name, value.shape, value, asked=asked)
        elif isinstance(value, (str, int, float, bool)):
            self.whole[name] = value
        else:
            raise ValueError(
                f"{name}: got {type(value).__name__}, expected a tensor, a number or a string; "
                "name those that shall travel in `attributes`"
            )


def induced(graph: Neighborhood, nodes: Tensor) -> Neighborhood:
    """The edges among some nodes, which are numbered by their places in `nodes`, each once."""
    rows = graph.rows(nodes)
    place, inside = places_among(nodes, rows.indices)
    kept = rows.keep(inside)
    return Neighborhood(
        kept.indptr, place[inside], len(nodes),
        weight=kept.weight, distance=kept.distance, perm=kept.perm, validate=False,
    )  # fmt: skip


class OfStores(NodeSource):
    """A pair of stores of one node and edge type; features are asked for when a batch is made."""

    held = True

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
        self.graph.check_unchanged()  # by the next epoch
        check_names(known, attributes)
        self.node, self.whole, self.edge, self.left = {}, {}, {}, {}
        for name in known if attributes is None else attributes:
            self._sort(name, sizes[name], known[name], asked=attributes is not None)
        if self.edge:
            raise ValueError(
                f"attributes: {next(iter(self.edge))!r} has a row for each edge, expected names of "
                "attributes of nodes; a feature store has none of edges"
            )
        self.whole = {name: features.get_tensor(attr) for name, attr in self.whole.items()}

    def of_nodes(self, nodes: Tensor) -> dict[str, Any]:
        asked = [copy.copy(attr) for attr in self.node.values()]
        for attr in asked:
            attr.index = nodes
        values = self.features.multi_get_tensor(asked) if asked else []
        return self.whole | {
            name: torch.as_tensor(value) for name, value in zip(self.node, values, strict=True)
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
    attr = graph.get_all_edge_attrs()[0]
    row, col = (torch.as_tensor(part).as_subclass(Tensor) for part in graph.get_edge_index(attr))
    row, col = row.long().cpu(), col.long().cpu()
    if attr.layout == EdgeLayout.CSC:  # as it is, so that a mapped file stays on the disk
        if len(col) != num_nodes + 1:
            raise ValueError(f"data[1]: {len(col)} row pointers for {num_nodes} nodes and the end")
        check_rows(col, row, num_nodes)
        return Neighborhood(col, row, num_nodes, validate=False)
    if attr.layout == EdgeLayout.CSR:
        row = ptr2index(row)
    return Neighborhood.from_edge_index(torch.stack([row, col]), num_nodes)._seal()


def level_of(name: str, shape: Sequence[int], graph: Neighborhood, *, asked: bool) -> Level:
    """What a tensor has a row for; refused is what may speak of pairs unless it was `asked` for."""
    num_nodes, num_edges = graph.num_dst, graph.num_edges
    as_many = num_nodes == num_edges and "edge" in name
    if asked and tuple(shape[:1]) == (num_nodes,) and not as_many:
        return "node"
    if "index" in name or "face" in name:
        raise ValueError(
            f"{name}: by PyG's naming rule it holds node ids, which would stay those of the whole "
            f"graph in a batch; {_REMEDY}"
        )
    if len(shape) == 0:
        return "graph"
    if name != "x" and len(shape) > 1 and tuple(shape[:2]) == (num_nodes, num_nodes) != (1, 1):
        raise ValueError(
            f"{name}: shape {tuple(shape)} has a column for each of the {num_nodes} nodes, which a "
            f"batch would not have; {_REMEDY}"
        )
    if shape[0] == num_nodes and not as_many:
        return "node"
    if shape[0] == num_edges:
        return "edge"
    if tuple(shape) == (1,):
        return "graph"
    raise ValueError(
        f"{name}: shape {tuple(shape)}, expected one row for each of the {num_nodes} nodes or "
        f"{num_edges} edges, since others may speak of pairs of nodes; {_REMEDY}"
    )


def check_names(known: Collection[str], attributes: Sequence[str] | None) -> None:
    """Raise for names that are not there, and for those that the batch needs itself."""
    if isinstance(attributes, str):
        raise TypeError(f"attributes: got the string {attributes!r}, expected a list of names")
    for name in known if attributes is None else attributes:
        if name not in known:
            raise ValueError(f"attributes: {name!r} is none of the data's {sorted(known)}")
        if name in OWN:
            raise ValueError(
                f"{name}: the batch says something else under this name; rename it in the data"
            )
