"""The graphs of a batch: their sizes, and all pairs of nodes of each."""

from __future__ import annotations

from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from graphtheory.graph import Neighborhood, cliques
from graphtheory.graph.content import state_of

_CLIQUES = WeakIdKeyDictionary()  # batch -> (its state, Neighborhood)
_OF_ONE: WeakValueDictionary[tuple[int, torch.device], Neighborhood] = WeakValueDictionary()


def graph_sizes(batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Number of nodes of each graph, int64 [num_graphs].

    Args:
        batch: Graph of each node, int64 [N], ascending, as in a PyG `Batch`.
        num_graphs: B; None is the last entry + 1. Graphs without nodes have 0.

    Raises:
        TypeError: If `batch` is not an int64 tensor.
        ValueError: If it has not one axis, does not ascend, or names a graph outside 0..B-1.

    Example:
        >>> graph_sizes(torch.tensor([0, 0, 2])).tolist()
        [2, 0, 1]
    """
    if not isinstance(batch, Tensor) or batch.dtype != torch.int64:
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"batch: got {kind}, expected an int64 tensor [num_nodes]")
    if batch.dim() != 1:
        raise ValueError(f"batch: shape {tuple(batch.shape)}, expected [num_nodes]")
    if not torch.compiler.is_compiling():
        _check_order(batch, num_graphs)
    return torch.bincount(batch, minlength=num_graphs or 0)


def _check_order(batch: Tensor, num_graphs: int | None) -> None:
    down = batch[1:] < batch[:-1]
    if bool(down.any()):
        at = int(down.nonzero()[0]) + 1
        raise ValueError(
            f"batch: entry {at} is {int(batch[at])} behind {int(batch[at - 1])}, expected the "
            "nodes of a graph to follow each other (ascending entries): sort the nodes by graph"
        )
    if len(batch) and int(batch[0]) < 0:
        raise ValueError(f"batch: got {int(batch[0])}, expected graphs of 0 or more")
    if num_graphs is not None and len(batch) and int(batch[-1]) >= num_graphs:
        raise ValueError(f"batch: got {int(batch[-1])}, expected graphs in 0..{num_graphs - 1}")


def graph_cliques(batch: Tensor | None, num_nodes: int, device: torch.device) -> Neighborhood:
    """All pairs of nodes of the same graph, kept as long as `batch` lives and does not change.

    Args:
        batch: As in `graph_sizes`; None is one graph.
        num_nodes: N.
        device: Device of the result.

    Raises:
        ValueError: If `batch` has not one entry per node; as in `graph_sizes`.
    """
    if batch is None:
        return _one_clique(num_nodes, device)
    if batch.shape != (num_nodes,):
        raise ValueError(
            f"batch: shape {tuple(batch.shape)}, expected one entry per node: [{num_nodes}]"
        )
    content = None if torch.compiler.is_compiling() else state_of(batch)
    if content is None:
        return cliques(graph_sizes(batch)).to(device)
    state, known = (content, device), _CLIQUES.get(batch)
    if known is None or known[0] != state:
        with torch.inference_mode(False):
            known = _CLIQUES[batch] = state, cliques(graph_sizes(batch)).to(device)
    return known[1]


def _one_clique(num_nodes: int, device: torch.device) -> Neighborhood:
    """All pairs of one graph; the layers of a network share it until the backward pass is over."""
    num_nodes = int(num_nodes)  # torch.export: for this number of nodes
    key = num_nodes, device
    found = None if torch.compiler.is_compiling() else _OF_ONE.get(key)
    if found is None:
        with torch.inference_mode(False):
            found = cliques([num_nodes]).to(device)
        if not torch.compiler.is_compiling():
            _OF_ONE[key] = found
    return found
