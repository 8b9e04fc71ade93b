"""Parts of a graph with few edges between them: by METIS, or in one pass over the nodes."""

from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.index import ptr2index
from torch_geometric.loader import ClusterData
from torch_geometric.utils import remove_self_loops, to_undirected

from graphtheory.data.loaders.source import NodeSource
from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.csr import check_rows
from graphtheory.structure._loops import stream_parts

_ROWS = 65_536  # nodes whose edges are looked at together
_SLACK = 1.1  # how much larger than the average a part may get


def metis(data: Any, num_parts: int) -> Tensor:
    """The part of each node, int64 [N]: parts of about equal size with few edges between them.

    Edges count in both directions, self-loops do not. A part may be empty where `num_parts` is
    close to the number of nodes. The edges must fit into memory, here a few times.

    Args:
        data: `Data`, a `Neighborhood`, or what else `graph.neighborhood_from` reads.
        num_parts: Parts, from 1 to the number of nodes.

    Raises:
        ImportError: None of pyg-lib and torch-sparse, with METIS, and pymetis is installed.
        ValueError: A number of parts out of its range.

    Source: Karypis and Kumar (1998), by PyG's `ClusterData`, or by pymetis.

    Example:
        >>> two = torch.tensor([[0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]])  # two triangles
        >>> part = metis(Data(edge_index=two, num_nodes=6), 2)  # doctest: +SKIP
        >>> part.tolist()  # doctest: +SKIP
        [1, 1, 1, 0, 0, 0]
    """
    graph = _graph_of(data, num_parts)
    nodes = graph.num_dst
    if num_parts == 1:
        return torch.zeros(nodes, dtype=torch.int64)
    both = to_undirected(remove_self_loops(graph.edge_index())[0], num_nodes=nodes)
    try:
        found = ClusterData(Data(edge_index=both, num_nodes=nodes), num_parts, log=False).partition
    except ImportError:  # of neither package, or of one that was built without METIS
        return _by_pymetis(both, nodes, num_parts)
    part = torch.empty_like(found.node_perm)
    return part.index_copy_(0, found.node_perm, ptr2index(found.partptr))


def _by_pymetis(both: Tensor, nodes: int, num_parts: int) -> Tensor:
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "metis: found neither pyg-lib nor torch-sparse with METIS, nor pymetis; install "
            "pyg-graphtheory[partition], which is pymetis"
        ) from error
    graph = Neighborhood.from_edge_index(both, nodes)
    adjacency = pymetis.CSRAdjacency(graph.indptr.numpy(), graph.indices.numpy())
    return torch.tensor(pymetis.part_graph(num_parts, adjacency).vertex_part)


def fennel(data: Any, num_parts: int) -> Tensor:
    r"""The part of each node, int64 [N], in one pass over the nodes in their order.

    .. math:: \arg\max_i\; |N(v) \cap P_i| - \alpha \gamma |P_i|^{\gamma - 1}, \qquad
        \gamma = \tfrac32,\ \alpha = \sqrt{k}\, m / n^{3/2}

    over parts of fewer than 1.1 n / k nodes, where m is half the number of stored edges, which
    are those of an undirected graph in both directions. Beside the rows, which may lie on the disk,
    it holds 8 bytes a node. `metis` cuts fewer edges; `edge_cut` tells how many.

    Args:
        data: What `metis` takes, or a `GraphFolder`.
        num_parts: Parts k, from 1 to the number of nodes.

    Raises:
        ValueError: A number of parts out of its range.

    Source: Tsourakakis et al. (2014), eq. (7) and section 4, with gamma = 3/2.

    Example:
        >>> two = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
        >>> part = fennel(Data(edge_index=two, num_nodes=6), 2)
        >>> part.tolist(), edge_cut(Data(edge_index=two, num_nodes=6), part)
        ([0, 0, 0, 1, 1, 1], 0.0)
    """
    graph = _graph_of(data, num_parts)
    nodes = graph.num_dst
    check_rows(graph.indptr, graph.indices, nodes)
    alpha = num_parts**0.5 * graph.num_edges / 2 / nodes**1.5
    most = max(ceil(_SLACK * nodes / num_parts), 1)
    rows = graph.indptr.numpy(), graph.indices.numpy()
    return torch.from_numpy(stream_parts(*rows, num_parts, 1.5 * alpha, most))


def edge_cut(data: Any, part: Tensor) -> float:
    """The share of edges, loops aside, whose ends lie in different parts, int64 [N]."""
    graph = _graph_of(data)
    check_part(part, graph.num_dst)
    cut = edges = 0
    for some in torch.arange(graph.num_dst).split(_ROWS):
        rows = graph.rows(some)
        targets = some[rows.targets()]
        edges += int((rows.indices != targets).sum())
        cut += int((part[rows.indices] != part[targets]).sum())
    return cut / max(edges, 1)


def _graph_of(data: Any, num_parts: int = 1) -> Neighborhood:
    graph = data.graph if isinstance(data, NodeSource) else neighborhood_from(data)
    if not isinstance(num_parts, int) or not 1 <= num_parts <= graph.num_dst:
        raise ValueError(f"num_parts: got {num_parts!r}, expected 1 to {graph.num_dst} nodes")
    return graph


def check_part(part: Any, nodes: int) -> None:
    """Raise unless this is a part of each node."""
    if not isinstance(part, Tensor) or part.dtype != torch.int64:
        kind = getattr(part, "dtype", type(part).__name__)
        raise TypeError(f"part: got {kind}, expected an int64 tensor [{nodes}]")
    if part.shape != (nodes,) or int(part.min()) < 0:
        raise ValueError(
            f"part: shape {tuple(part.shape)}, expected one part of 0 or more for each of the "
            f"{nodes} nodes"
        )
