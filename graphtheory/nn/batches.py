"""The graphs of a batch: their sizes, all pairs of nodes, and one vector for each of them."""

from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood, cliques
from graphtheory.graph.content import PerTensorCache, is_plain, refuse_traces
from graphtheory.graph.csr import check_pointers
from graphtheory.ops.call import sum_type

_NAMES = ("sum", "mean", "max", "token")
_OF_ONE: WeakValueDictionary[tuple[int, torch.device], Neighborhood] = WeakValueDictionary()


def graph_sizes(batch: Tensor, num_graphs: int | None = None) -> Tensor:
    """Nodes of each graph, int64 [num_graphs], of the graph of each node, ascending as in PyG."""
    if not isinstance(batch, Tensor) or batch.dtype != torch.int64:
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"batch: got {kind}, expected an int64 tensor [num_nodes]")
    if batch.dim() != 1:
        raise ValueError(f"batch: shape {tuple(batch.shape)}, expected [num_nodes]")
    if not torch.compiler.is_compiling() and len(batch):
        down = batch[1:] < batch[:-1]
        if bool(down.any()):
            at = int(down.nonzero()[0]) + 1
            raise ValueError(
                f"batch: entry {at} is {int(batch[at])} behind {int(batch[at - 1])}, expected the "
                "nodes of a graph to follow each other (ascending entries): sort the nodes by graph"
            )
        if int(batch[0]) < 0:
            raise ValueError(f"batch: got {int(batch[0])}, expected graphs of 0 or more")
        if num_graphs is not None and int(batch[-1]) >= num_graphs:
            raise ValueError(f"batch: got {int(batch[-1])}, expected graphs in 0..{num_graphs - 1}")
    return torch.bincount(batch, minlength=num_graphs or 0)


def _wrong_length(batch: Tensor, num_nodes: int) -> ValueError:
    return ValueError(
        f"batch: shape {tuple(batch.shape)}, expected one entry per node: [{num_nodes}]"
    )


def graph_cliques(batch: Tensor | None, num_nodes: int, device: torch.device) -> Neighborhood:
    """All pairs of nodes of the same graph, kept as long as `batch` lives and does not change."""
    refuse_traces()
    if batch is None:
        return _one_clique(num_nodes, device)
    if batch.shape != (num_nodes,):
        raise _wrong_length(batch, num_nodes)
    return _cliques(batch).to(device)


_cliques: PerTensorCache[Neighborhood] = PerTensorCache(
    lambda batch: cliques(graph_sizes(batch)).to(batch.device)._seal()
)


def _one_clique(num_nodes: int, device: torch.device) -> Neighborhood:
    """All pairs of one graph; the layers of a network share it until the backward pass is over."""
    num_nodes = int(num_nodes)  # torch.export: for this number of nodes
    key = num_nodes, device
    found = None if torch.compiler.is_compiling() else _OF_ONE.get(key)
    if found is None:
        with torch.inference_mode(False):
            found = cliques([num_nodes]).to(device)._seal()
        if not torch.compiler.is_compiling():
            _OF_ONE[key] = found
    return found


def _check_ends(ptr: Tensor, nodes: int) -> None:
    """Raise unless they run from 0 to the number of nodes and never fall; a GPU is told to look."""
    if not is_plain(ptr):  # which something traces
        return
    if ptr.is_cpu or ptr.dim() != 1 or not len(ptr) or ptr.is_floating_point():
        return check_pointers(ptr, nodes, "ptr", of="nodes")
    fits = (ptr[0] == 0) & (ptr[-1] == nodes) & (ptr.diff() >= 0).all()
    torch._assert_async(fits, f"ptr: expected 0 to {nodes}, the number of nodes, never falling")


class GraphReadout(nn.Module):
    r"""Sum, mean or maximum over the nodes of each graph, or the graph token.

    .. math:: F(X_i) = K \sum_{n \in T^i} F(x_n)

    with K = 1 for "sum" and `1 / |T^i|` for "mean", T^i the nodes of graph i.

    A graph without nodes gives zeros, as in PyG; "token" refuses one. Sums are in the order of the
    nodes and do not depend on threads. "sum" and "mean" on a CPU, and "token", have derivatives of
    any order; the others have first ones.

    Args:
        reduce: "sum", "mean", "max" or "token" (the last node of each graph, where
            `graph.GraphTokens` puts the token).

    Shapes:
        x [N, F]; batch int64 [N], ascending, or None for one graph; or instead ptr int64
        [num_graphs + 1], the first node of each graph and N -> [num_graphs, F].

    Raises:
        ValueError: If `reduce` is another value; if x has not two axes; if `batch` does not ascend
            or has not one entry per node, or `ptr` does not run from 0 to N; if a graph has no node
            to take as token.

    Source: Li (2024), eq. (B.224): "sum" and "mean" of the outputs of the nodes.

    Example:
        >>> x, batch = torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1])
        >>> [GraphReadout(name)(x, batch).flatten().tolist() for name in ("sum", "mean", "token")]
        [[4.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
    """

    def __init__(self, reduce: str = "mean") -> None:
        super().__init__()
        if reduce not in _NAMES:
            raise ValueError(f"reduce: got {reduce!r}, expected one of {_NAMES}")
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
        if x.dim() != 2:
            raise ValueError(f"x: shape {tuple(x.shape)}, expected [num_nodes, features]")
        if ptr is not None:
            _check_ends(ptr, len(x))
            sizes = ptr.diff()
        else:
            if batch is None:
                batch = torch.zeros(len(x), dtype=torch.int64, device=x.device)
                num_graphs = 1 if num_graphs is None else num_graphs
            if batch.shape != x.shape[:1]:
                raise _wrong_length(batch, len(x))
            sizes = graph_sizes(batch, num_graphs)
        if self.reduce == "token":
            return x[self._last(sizes)]
        reduce = "max" if self.reduce == "max" else "sum"
        wide = x.to(sum_type(x))  # sums of 16 bits stop growing
        if reduce == "sum" and x.is_cpu:  # on a GPU its order is not that of the nodes
            if ptr is not None or batch is None:
                batch = torch.repeat_interleave(sizes, output_size=len(x))
            out = wide.new_zeros(sizes.size(0), x.size(1)).index_add(0, batch, wide)
        else:
            out = torch.segment_reduce(wide, reduce, lengths=sizes, axis=0, unsafe=True)
        if self.reduce == "mean":
            return (out / sizes.clamp(min=1)[:, None].to(wide.dtype)).to(x.dtype)
        return torch.where(sizes[:, None] > 0, out, torch.zeros_like(out)).to(x.dtype)

    def _last(self, sizes: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and bool((sizes == 0).any()):
            graph = int((sizes == 0).nonzero()[0])
            raise ValueError(f"batch: graph {graph} has no node, expected a token in every graph")
        return sizes.cumsum(0) - 1

    def extra_repr(self) -> str:
        return repr(self.reduce)
