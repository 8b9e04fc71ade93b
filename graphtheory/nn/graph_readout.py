"""From the nodes of each graph to one vector per graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphtheory.nn.batches import graph_sizes

_NAMES = ("sum", "mean", "max", "token")


class GraphReadout(nn.Module):
    r"""Sum, mean or maximum over the nodes of each graph, a PyG aggregation, or the graph token.

    .. math:: F(X_i) = K \sum_{n \in T^i} F(x_n)

    with K = 1 for "sum" and `1 / |T^i|` for "mean", T^i the nodes of graph i.

    A graph without nodes gives zeros, as in PyG; "token" refuses one. Sums are in the order of the
    nodes and do not depend on threads.

    Args:
        reduce: "sum", "mean", "max", "token" (the last node of each graph, where
            `graph.GraphTokens` puts the token), or a module called as PyG's `Aggregation`:
            ``reduce(x, index, dim_size=num_graphs)``.

    Shapes:
        x [N, F]; batch int64 [N], ascending, or None for one graph; or instead ptr int64
        [num_graphs + 1], the first node of each graph and N -> [num_graphs, F].

    Raises:
        ValueError: If `reduce` is another name; if `batch` does not ascend or has not one entry per
            node; if a graph has no node to take as token.
        TypeError: If `reduce` is neither a name nor a module.

    Source:
        Li (2024), eq. (B.224): "sum" and "mean" of the outputs of the nodes.

    Example:
        >>> x, batch = torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1])
        >>> [GraphReadout(name)(x, batch).flatten().tolist() for name in ("sum", "mean", "token")]
        [[4.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
    """

    def __init__(self, reduce: str | nn.Module = "mean") -> None:
        super().__init__()
        if isinstance(reduce, str):
            if reduce not in _NAMES:
                raise ValueError(f"reduce: got {reduce!r}, expected a module or one of {_NAMES}")
        elif not isinstance(reduce, nn.Module):
            raise TypeError(f"reduce: got {type(reduce).__name__}, expected a module or a name")
        self.reduce = reduce

    def forward(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        num_graphs: int | None = None,
        *,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """One vector per graph; `num_graphs` counts empty last graphs, `ptr` replaces `batch`."""
        sizes = _sizes(x, batch, num_graphs) if ptr is None else ptr.diff()
        if isinstance(self.reduce, nn.Module):
            graphs = torch.arange(len(sizes), device=x.device)
            index = graphs.repeat_interleave(sizes, output_size=len(x))
            return self.reduce(x, index, dim_size=len(sizes))
        if self.reduce == "token":
            return x[self._last(sizes)]
        reduce = "max" if self.reduce == "max" else "sum"
        out = torch.segment_reduce(x, reduce, lengths=sizes, axis=0, unsafe=True)
        if self.reduce == "mean":
            return out / sizes.clamp(min=1)[:, None].to(x.dtype)
        return torch.where(sizes[:, None] > 0, out, torch.zeros_like(out))

    def _last(self, sizes: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and bool((sizes == 0).any()):
            graph = int((sizes == 0).nonzero()[0])
            raise ValueError(f"batch: graph {graph} has no node, expected a token in every graph")
        return sizes.cumsum(0) - 1

    def extra_repr(self) -> str:
        """Name of the reduction."""
        return "" if isinstance(self.reduce, nn.Module) else repr(self.reduce)


def _sizes(x: Tensor, batch: Tensor | None, num_graphs: int | None) -> Tensor:
    if batch is None:
        batch = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        num_graphs = 1 if num_graphs is None else num_graphs
    if batch.shape != x.shape[:1]:
        raise ValueError(
            f"batch: shape {tuple(batch.shape)}, expected one entry per node: [{len(x)}]"
        )
    return graph_sizes(batch, num_graphs)
