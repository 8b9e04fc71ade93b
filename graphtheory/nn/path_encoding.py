"""Edges along the shortest path as a bias of attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphtheory.nn.batches import graph_sizes
from graphtheory.nn.graph_encoders import feature_encoder


class PathEncoding(nn.Module):
    r"""Mean over a shortest path of the products of edge features with a weight per step and head.

    .. math:: c^h_{ij} = \frac1N \sum_{n=1}^{N} x_{e_n}^\top w^h_n, \qquad N = \min(\text{hops}, S)

    A pair without edges between its nodes (the same node, no path) gets 0. All products of edges
    and steps are computed first, [E, S, heads], and averaged for each pair from its S edge ids:
    no tensor has pairs, steps and features as axes.

    Args:
        features: Floating features of an edge, or the number of categories of each column, where
            x_e stands for the one-hot columns and w for a table.
        heads: Heads of the attention.
        max_steps: S, the steps with weights of their own.

    Shapes:
        - **edge_attr:** floating [E, features] or integers [E, columns].
        - **paths:** integers [P, S] of `structure.shortest_path_edges(graph, S)`, flattened to
          pairs in the order of `graph.cliques`; entries of -1 are no edges.
        - **edge_index, batch:** of a PyG `Batch`, where edge ids count from the first edge of each
          graph; None is one graph.
        - **output:** [P, heads], for `attn_bias` of `GPSConv` or `bias` of `ops.attention`.

    Raises:
        ValueError: If shapes differ from these, or edges are not stored graph after graph.
        IndexError: If a path has an edge that its graph does not have.

    Source:
        Ying et al. (2021), eq. (7). Steps count from the target, whose query attends. Their code
        has one embedding of an edge per head and mixes heads by a matrix per step, which this
        weight per step and category contains.

    Example:
        >>> from graphtheory.graph import Neighborhood
        >>> from graphtheory.structure import shortest_path_edges
        >>> edge_index, edge_attr = torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 4)
        >>> graph = Neighborhood.from_edge_index(edge_index, num_nodes=3)
        >>> paths = shortest_path_edges(graph, 5).flatten(0, 1)
        >>> PathEncoding(4, heads=2, max_steps=5)(edge_attr, paths).shape
        torch.Size([9, 2])
    """

    def __init__(self, features: int | Sequence[int], heads: int, max_steps: int = 5) -> None:
        super().__init__()
        for name, value in (("heads", heads), ("max_steps", max_steps)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        self.heads, self.max_steps = heads, max_steps
        self.products = feature_encoder(features, max_steps * heads, bias=False)

    def forward(
        self,
        edge_attr: Tensor,
        paths: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        if paths.is_floating_point() or paths.dim() != 2 or paths.size(1) != self.max_steps:
            raise ValueError(
                f"paths: {paths.dtype} of shape {tuple(paths.shape)}, expected integers "
                f"[num_pairs, {self.max_steps}]"
            )
        edges = len(edge_attr)
        ids, there = paths.int(), paths >= 0
        if batch is not None:
            if edge_index is None:
                raise ValueError("edge_index: got None beside a batch, expected the batch's edges")
            first, count = _edges_of_pairs(edge_index, batch, len(paths))
            _check_ids(ids, count[:, None])
            ids = ids + first[:, None].int()
        else:
            _check_ids(ids, torch.tensor(edges, device=ids.device))
        steps = torch.arange(self.max_steps, device=ids.device, dtype=torch.int32)
        none = edges * self.max_steps
        place = torch.where(there, ids * self.max_steps + steps, none)
        products = self.products(edge_attr).view(none, self.heads)
        table = torch.cat([products, products.new_zeros(1, self.heads)])
        return functional.embedding_bag(place, table, mode="mean", padding_idx=none)


def _edges_of_pairs(edge_index: Tensor, batch: Tensor, num_pairs: int) -> tuple[Tensor, Tensor]:
    """First edge and number of edges of the graph of each pair, int64 [P] each."""
    pairs = graph_sizes(batch).square()
    if num_pairs != int(pairs.sum()):
        raise ValueError(
            f"paths: {num_pairs} rows, expected {int(pairs.sum())}: one for each pair of nodes of "
            "a graph"
        )
    graph = batch[edge_index[1]]
    if bool((graph[1:] < graph[:-1]).any()):
        raise ValueError(
            "edge_index: edges of several graphs alternate, expected one after another"
        )
    count = torch.bincount(graph, minlength=len(pairs))
    both = torch.stack([count.cumsum(0) - count, count])
    first, count = both.repeat_interleave(pairs, 1, output_size=num_pairs).unbind()
    return first, count


def _check_ids(ids: Tensor, count: Tensor) -> None:
    """Raise if a path has an edge beyond the `count` of its graph."""
    if torch.compiler.is_compiling() or not bool((wrong := ids >= count).any()):
        return
    pair, step = wrong.nonzero()[0].tolist()
    known = int(count.expand_as(ids)[pair, step])
    raise IndexError(
        f"paths: pair {pair}, step {step} is edge {int(ids[pair, step])}, expected one of the "
        f"{known} edges of its graph"
    )
