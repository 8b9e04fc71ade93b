"""Which attributes of a graph belong to its nodes, and which no loader can cut."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

SPD = ("spd_index", "spd_distance", "spd_node_index", "spd_num_pairs")
STRUCTURE = ("edge_index", "adj_t", "edge_weight", "num_nodes")
OWN = ("n_id", "input_id", "batch_size", "neighborhood", "neighborhoods")
Level = Literal["node", "edge", "graph"]

_REMEDY = "name those that shall travel in `attributes`, without it, or take it out of the data"


def level_of(name: str, shape: Sequence[int], num_nodes: int, num_edges: int) -> Level:
    """What a tensor has one row for; decided by PyG's naming rule first, then by size.

    Raises:
        ValueError: It may speak of pairs of nodes, whose ids would stay those of the whole graph.
    """
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
    if shape[0] == num_nodes and not (shape[0] == num_edges and "edge" in name):
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
