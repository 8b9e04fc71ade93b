"""PyG's GCNConv on the core, for two node sets and samples, too."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor, Size, SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, read, stored_values, to_keep


class GCNConv(on_core.OnCore, pyg.GCNConv):
    r"""Sum over the neighbors and the node itself, each term weighted by both degrees.

    .. math::
        x'_i = \Theta^\top \sum_{j \in N(i) \cup \{i\}} \frac{w_{ij}}{\sqrt{d_j\, d_i}}\, x_j,
        \qquad d_i = \sum_j w_{ij}

    Arguments, parameters, state dict and results are those of PyG's layer of this name. A node that
    nothing reaches gets the bias alone.

    What PyG's layer refuses: with a pair (x_src, x_dst) senders and receivers are different nodes.
    Then :math:`d_j = \sum_i w_{ij}` of a sender is what it sends, and self-loops join the first
    min(N_src, N_dst) of both sides, as in a sampled block whose receivers are its first senders;
    pass `add_self_loops=False` where the sides have no nodes in common. A `Neighborhood` brings its
    `weight` along; with `normalize=False` those weights are taken as they are, which is what a
    sampler that corrects its own bias needs.

    Args:
        in_channels: Features of a node; -1 is read off the first input.
        out_channels: Features of the output.
        improved: Self-loops of weight 2; as in PyG only where there are weights.
        cached: Keep the normalized edges of the first call for all that follow.
        add_self_loops: Add one to each node that has none; default as `normalize`.
        normalize: Divide by the degrees; False takes the weights as they are.
        bias: Additive bias of the output.
        **kwargs: Of PyG's `MessagePassing`; `flow` only takes edge lists, `aggr` is a sum.

    Shapes:
        - **x:** [..., N, in_channels], dense or sparse, or a pair ([N_src, in_channels], [N_dst, .]
          or None), of whose second only the number of rows counts.
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_weight:** [E], in the order of the edges given.
        - **size:** (N_src, N_dst), for x_dst None.
        - **output:** [..., N_dst, out_channels].

    Raises:
        ValueError: An option or a shape that does not fit.
        IndexError: A node id out of range.

    Source:
        Kipf and Welling (2017), eq. (2). Differs from PyG: what is said above; weights
        beside a sparse matrix are an error.

    Example:
        >>> conv = GCNConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_weight": OptTensor}
    decomposes = True
    _cached_rows: tuple[Neighborhood, Tensor | None] | None = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        on_core.check_counts(out_channels=out_channels)
        super().__init__(
            in_channels, out_channels, improved, cached, add_self_loops, normalize, bias, **kwargs
        )
        self.check_options(self)

    def reset_parameters(self) -> None:
        """Fresh parameters; forget the cached edges."""
        super().reset_parameters()
        self._cached_rows = None

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_weight: Tensor | None = None,
        size: Size = None,
    ) -> Tensor:
        """Project, then sum; see the class for shapes."""
        if self.needs_messages():
            return self._by_messages(x, edge_index, edge_weight)
        one_set = isinstance(x, Tensor)
        x_src = x if isinstance(x, Tensor) else on_core.pair(x, self.flow)[0]
        on_core.check_features("x", x_src, self.lin.in_channels)
        num_dst = self._receivers(x, size)
        rows = self._cached_rows
        if rows is None and self.cached and self.normalize:
            rows = self._cached_rows = to_keep(
                lambda: self._rows(edge_index, edge_weight, x_src, num_dst, one_set)
            )
        elif rows is None:
            rows = self._rows(edge_index, edge_weight, x_src, num_dst, one_set)
        out = self._sum(self.lin(x_src), *rows)
        return out if self.bias is None else out + self.bias

    def _by_messages(self, x: Any, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        if not isinstance(x, Tensor):
            raise NotImplementedError(
                "x: got a pair, which explainers and message hooks do not take"
            )
        if isinstance(edge_index, Neighborhood) and edge_weight is None:
            edge_weight = edge_index.weight
        return super().forward(x, on_core.for_messages(edge_index), edge_weight)

    def _receivers(self, x: Any, size: Size) -> int | None:
        if isinstance(x, Tensor):
            num_nodes = x.shape[self.node_dim]
            if size is not None and tuple(size) != (num_nodes, num_nodes):
                raise ValueError(
                    f"size: got {tuple(size)}, expected two times {num_nodes} rows of x"
                )
            return num_nodes
        return on_core.receivers(x[0], x[1], size)

    def _rows(
        self, given: Any, weight: Tensor | None, x_src: Tensor, num_dst: int | None, one_set: bool
    ) -> tuple[Neighborhood, Tensor | None]:
        """Rows of senders and the weight of each edge."""
        num_src = x_src.shape[self.node_dim]
        if isinstance(given, SparseTensor) or is_torch_sparse_tensor(given):
            if weight is not None:
                raise ValueError("edge_weight: got some beside a sparse matrix, which has its own")
            if self.normalize and one_set:
                return self._normalized_by_pyg(given, x_src)
            weight = stored_values(given)
        elif isinstance(given, Neighborhood) and weight is None:
            weight = given.weight
        loops = self.normalize and self.add_self_loops
        adj = read(given, num_src, num_dst, add_self_loops=loops, flow=self.flow)
        if weight is not None and weight.shape != (adj.num_given,):
            raise ValueError(
                f"edge_weight: shape {tuple(weight.shape)}, expected [{adj.num_given}]: one an edge"
            )
        if weight is not None and not weight.is_floating_point():
            raise TypeError(f"edge_weight: dtype {weight.dtype}, expected a floating type")
        if not self.normalize:
            return adj.neighborhood, None if weight is None else adj.to_rows(weight)
        if weight is not None:
            return adj.neighborhood, self._normalized(adj, weight, one_set, x_src.dtype)
        key = ("gcn", self.improved, one_set, x_src.dtype)
        return adj.neighborhood, adj.once(
            key, lambda: self._normalized(adj, None, one_set, x_src.dtype)
        )

    def _normalized_by_pyg(self, given: Any, x: Tensor) -> tuple[Neighborhood, Tensor | None]:
        """PyG's own rule for matrices, which treats the self-loops they hold by kind of matrix."""
        if is_torch_sparse_tensor(given) and given.layout is torch.sparse_csc:
            given = given.to_sparse_csr()
        num_nodes = x.shape[self.node_dim]
        out = gcn_norm(
            given, None, num_nodes, self.improved, self.add_self_loops, self.flow, x.dtype
        )
        nb = neighborhood_from(
            out if isinstance(out, SparseTensor) else out[0], num_nodes=num_nodes
        )
        return nb, nb.weight

    def _normalized(
        self, adj: Adjacency, weight: Tensor | None, one_set: bool, dtype: torch.dtype
    ) -> Tensor:
        """Weights [E] over the roots of both degrees, self-loops too, in the order of the rows."""
        nb, fill = adj.neighborhood, 1.0 if weight is None or not self.improved else 2.0
        if weight is None:
            wide = torch.promote_types(
                dtype, torch.float32
            )  # a hub's degree overflows half a float
            weight = torch.ones(adj.num_given, dtype=wide, device=nb.device)
        weight = adj.to_rows(_with_loops(adj, weight, fill))
        received = _sums(weight, nb)
        sent = received
        if not one_set:
            back = nb.transpose()
            assert back.perm is not None
            sent = _sums(weight[back.perm], back)
        to, of = _inverse_root(received), _inverse_root(sent)
        return to.index_select(0, adj.receivers()) * weight * of.index_select(0, nb.indices)

    def _sum(self, x: Tensor, nb: Neighborhood, weight: Tensor | None) -> Tensor:
        """Weighted sums along the axis of nodes; further axes are heads to the core."""
        x = x.movedim(self.node_dim, 0)  # [N_src, ..., F]
        value = x.reshape(x.size(0), math.prod(x.shape[1:-1]), x.size(-1))
        weights = None if weight is None else weight[:, None].expand(-1, value.size(1))
        out = ops.aggregate(weights, value, nb)
        return out.view(nb.num_dst, *x.shape[1:]).movedim(0, self.node_dim)


def _with_loops(adj: Adjacency, weight: Tensor, fill: float) -> Tensor:
    """Weights of the given edges, then of the self-loops: that of a given one, or `fill`."""
    if adj.edges is None:
        return weight
    src, dst = adj.edges[:, : adj.num_given]
    slot = torch.where(src == dst, src, adj.loops)
    loops = weight.new_full((adj.loops + 1,), fill).index_put((slot,), weight)
    return torch.cat([torch.where(src == dst, 0, weight), loops[: adj.loops]])


def _sums(weight: Tensor, nb: Neighborhood) -> Tensor:
    """Sum of each row's weights [num_dst]."""
    return ops.aggregate(weight[:, None], weight.new_ones(nb.num_src, 1, 1), nb).flatten()


def _inverse_root(degree: Tensor) -> Tensor:
    """Return degree ** -0.5, and 0 for 0 with zero gradient."""
    empty = degree == 0
    return torch.where(empty, 0, torch.where(empty, 1, degree) ** -0.5)
