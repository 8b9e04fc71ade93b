"""PyG's layers that keep their `forward`, on the core: their sums over neighbors run on `ops`.

Only `propagate`, which gathers and scatters messages in PyG, is ours.
"""

from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import innermost_transform
from graphtheory.nn.conv import again, on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of, stored_values
from graphtheory.nn.conv.direct import direct
from graphtheory.nn.conv.edge_features import gather
from graphtheory.nn.conv.on_core import REDUCTIONS
from graphtheory.ops import layers

_MOST = 0.75  # share of the target nodes up to which `SAGEConv` leaves the others out


class Sums(on_core.OwnPropagate):
    """Mixin of a layer whose `propagate` reduces features of neighbors by one of `REDUCTIONS`."""

    node_axis = -2

    def _both(self, x: Any) -> tuple[Tensor, Tensor | None]:
        """Features of source and target nodes, which have to be the same against the flow."""
        x_src, x_dst = x if isinstance(x, (tuple, list)) else (x, x)
        # PyG's generated and its generic `propagate` read a pair differently
        if x_dst is not x_src and self.flow != "source_to_target":
            raise ValueError(f"flow: got {self.flow!r} with a pair, expected the default")
        return x_src, x_dst


class WeightedSums(Sums):
    """Mixin of a layer whose message is a neighbor's features, maybe times a weight of the edge."""

    pays_from = 4_000, 2**21
    at_new_edges = staticmethod(direct)
    weight_name: ClassVar[str | None] = None  # of the argument of `propagate` with these weights

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        x = given["x"]
        x_src, x_dst = self._both(x)
        reduce = on_core.reduction_of(self, edge_index)
        if reduce is None or not _is_matrix(x_src) or not _is_matrix(x_dst):
            return None
        if x is not x_src and self.flow != "source_to_target":
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size, edge_index)
        edge_index = _kept(self, edge_index) if self.weight_name is not None else edge_index
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        weight = self._weights(edge_index, given)
        args = self._args(edge_index, size, given)
        if weight is None and adj.neighborhood.weight is None and args[0] is x_src:
            whole = self._whole(args, adj.neighborhood, reduce)
            if whole is not None:
                return whole
        if reduce in ("max", "min") or (weight is not None and weight.requires_grad):
            x_src = on_core.kept(x_src, weight)
        if weight is not None:
            weight = adj.one_per_edge(weight)
            on_core.check_entries(str(self.weight_name), weight, "edge", adj.num_given)
            if is_sparse(edge_index):
                weight = weight.to(x_src.dtype)
            weight, x_src = on_core.multiplied(weight, x_src)
            weight = adj.to_csr_order(weight)[:, None]
        return ops.aggregate(weight, x_src[:, None], adj.neighborhood, reduce).squeeze(1)

    def _whole(self, args: tuple[Any, ...], nb: Neighborhood, reduce: str) -> Tensor | None:
        """Sums as one function that is replayed; None where their parts have to run."""
        x, kind, mean = args[0], layers.MappedSums, reduce == "mean"
        if x.is_cpu or reduce not in ("sum", "mean") or not on_core.run_inside(x):
            return None
        return again.compute(self, args, kind, nb, (x, None, None, None), mean)

    def _weights(self, edge_index: Any, given: dict[str, Any]) -> Tensor | None:
        """The values of a matrix by which PyG multiplies; else the weights given, or stored."""
        weight = None if self.weight_name is None else given[self.weight_name]
        if self.fuse and is_sparse(edge_index):
            unweighted = isinstance(edge_index, SparseTensor) and self.weight_name is None
            return None if unweighted else stored_values(edge_index)
        if weight is None and self.weight_name is not None:
            return stored_values(edge_index)
        return weight


def _is_matrix(x: Any) -> bool:
    """Whether it is None or dense features of nodes of one graph, floats."""
    return x is None or bool(x.dim() == 2 and x.is_floating_point() and x.layout is torch.strided)


_LAST: WeakKeyDictionary[WeightedSums, Tensor] = WeakKeyDictionary()


def _kept(layer: WeightedSums, edge_index: Any) -> Any:
    """The edges of the call before if these are equal: PyG may make a new tensor in every call."""
    listed = type(edge_index) is Tensor and edge_index.layout is torch.strided
    if not listed or innermost_transform() is not None or torch.compiler.is_compiling():
        return edge_index
    last = _LAST.get(layer)
    if last is not None and (last.dtype, last.device) != (edge_index.dtype, edge_index.device):
        last = None  # the layer moved
    if last is not None and torch.equal(last, edge_index):
        return last
    last = _LAST[layer] = edge_index.detach()
    return last  # what another thread puts there meanwhile is not this call's


class GINConv(WeightedSums, pyg.GINConv):
    """PyG's `GINConv` with its sum over the neighbors by `ops`."""


class GraphConv(WeightedSums, pyg.GraphConv):
    """PyG's `GraphConv` with its sum over the neighbors by `ops`."""

    weight_name = "edge_weight"


class NormalizedSums(WeightedSums):
    """Mixin of a layer whose `forward` normalizes weights before the sums."""

    weight_name = "edge_weight"

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Tensor:
        _check_weights(edge_index, edge_weight if getattr(self, "normalize", True) else None)
        return cast(Tensor, super().forward(x, edge_index, edge_weight))


def _check_weights(edges: Any, weight: Any) -> None:
    """Raise unless there is a weight for each edge of a list, before PyG normalizes them."""
    if weight is not None and isinstance(edges, Tensor) and not is_sparse(edges):
        weight = weight.flatten() if isinstance(weight, Tensor) else weight
        on_core.check_entries("edge_weight", weight, "edge", edges.size(-1))


class ChebConv(WeightedSums, pyg.ChebConv):
    """PyG's `ChebConv` with the sums of its recurrence by `ops`."""

    weight_name = "norm"

    def __norm__(
        self, edge_index: Any, num_nodes: Any, edge_weight: Any, *more: Any, **named: Any
    ) -> Any:
        _check_weights(edge_index, edge_weight)
        return super().__norm__(edge_index, num_nodes, edge_weight, *more, **named)


class SGConv(NormalizedSums, pyg.SGConv):
    """PyG's `SGConv` with its K sums over the neighbors by `ops`."""


class APPNP(NormalizedSums, pyg.APPNP):
    """PyG's `APPNP` with its K sums over the neighbors by `ops`."""

    ops_drop = False


class SAGEConv(WeightedSums, pyg.SAGEConv):
    """PyG's `SAGEConv` with a sum, mean, largest or smallest over the neighbors by `ops`.

    A loader that samples neighbors puts the nodes that have some first; the nodes of its last hop,
    which are most of a batch, have none. On a CPU the sums and their linear map are computed for
    the first rows alone: the others all have the map of zero, the bias.
    """

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        super().check_options(layer)
        if layer.project and layer.flow != "source_to_target":
            raise ValueError(f"flow: got {layer.flow!r} with project=True, expected the default")

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        first = self._first_rows(x, edge_index, size)
        if first is None:
            return super().forward(x, edge_index, size)
        x_src, x_dst = on_core.pair(x)
        assert x_dst is not None
        if self.project:
            x_src = self.lin(x_src).relu()
        sums = self.propagate(first, x=(x_src, None))
        if first.num_dst == x_dst.size(0):
            out = self.lin_l(sums) + self.lin_r(x_dst)
        else:
            alone = self.lin_l(sums.new_zeros(1, sums.size(1)))
            add: Any = _Added.apply
            out = add(self.lin_r(x_dst), self.lin_l(sums), alone)
        return functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _first_rows(self, x: Any, edge_index: Any, size: Any) -> Neighborhood | None:
        """The rows up to the last with an edge, all if most have some; None where PyG's has to."""
        if not self.root_weight or torch.compiler.is_compiling() or self.needs_messages():
            return None
        both = [x] if isinstance(x, Tensor) else x
        if self.flow != "source_to_target" or not all(map(_is_matrix, both)):
            return None
        x_src, x_dst = on_core.pair(x, self.flow)
        reduce = REDUCTIONS.get(type(self.aggr_module))  # that of the rows, which are no matrix
        if (
            x_dst is None
            or not x_src.is_cpu
            or innermost_transform() is not None
            or reduce is None
            or reduce != on_core.reduction_of(self, edge_index)
            or self._weights(edge_index, {}) is not None
            or not (on_core.is_plain(self.lin_l) and on_core.is_plain(self.lin_r))
        ):
            return None
        adj = adjacency_of(
            edge_index, x_src.size(0), on_core.num_targets(x_src, x_dst, size, edge_index)
        )
        return adj.cached("first rows", lambda: _up_to_the_last_edge(adj.neighborhood))


def _up_to_the_last_edge(nb: Neighborhood) -> Neighborhood:
    rows = int(torch.searchsorted(nb.indptr, nb.num_edges))
    if rows > _MOST * nb.num_dst:
        return nb
    return Neighborhood(nb.indptr[: rows + 1], nb.indices, nb.num_src, validate=False)._seal(nb)


class _Added(torch.autograd.Function):
    """`root` [N, F] plus `first` [n, F] on its first rows and `others` [1, F] below, in place."""

    @staticmethod
    def forward(ctx: Any, root: Tensor, first: Tensor, others: Tensor) -> Tensor:
        ctx.rows = len(first)
        ctx.mark_dirty(root)
        root[: ctx.rows] += first
        root[ctx.rows :] += others
        return root

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return grad, grad[: ctx.rows], grad[ctx.rows :].sum(0, keepdim=True)


class GINEConv(Sums, pyg.GINEConv):
    r"""PyG's `GINEConv` with gathering and reducing by `ops`.

    .. math:: x'_i = h\Big((1 + \epsilon) x_i
        + \sum_{j \in N(i)} \operatorname{ReLU}(x_j + e_{ij})\Big)

    Messages are built, as PyG builds them, only for the largest and the smallest; where the values
    of a `SparseTensor` are the features, PyG's own path runs.

    Source: Hu et al. (2020), Strategies for pre-training GNNs.
    """

    pays_from = 0, 0
    at_new_edges = staticmethod(direct)

    @property
    def edge_dim(self) -> int | None:
        """How many features an edge has, if they are mapped."""
        return getattr(self.lin, "in_channels", None)

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), edge_attr = self._both(given["x"]), given["edge_attr"]
        reduce = on_core.reduction_of(self, edge_index)
        if edge_attr is None or reduce is None or not _is_matrix(x_src):
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size, edge_index)
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        is_own = type(self).message is not pyg.GINEConv.message or "message" in vars(self)
        args = self._args(edge_index, size, given)
        whole = None if is_own else self._whole(args, adj, reduce)
        if whole is not None:
            return whole
        if isinstance(edge_attr, Tensor):
            wide = (self.edge_dim or x_src.size(1),)
            if edge_attr.shape in (wide, (1, *wide)):  # those of all edges
                edge_attr = edge_attr.expand(adj.num_given, -1)
            features = edge_attr.shape[1:]
            on_core.check_entries("edge_attr", edge_attr, "edge", adj.num_given, *features)
        if reduce in ("sum", "mean") and not is_own and isinstance(edge_attr, Tensor):
            x, of_edges, matrix = _terms(x_src, edge_attr, self.lin)
            if matrix is not None or of_edges.shape[1:] == x_src.shape[1:]:
                read = x, of_edges, matrix  # of which PyG's backward pass reads less
                if of_edges is edge_attr and (matrix is None or not matrix.requires_grad):
                    of_edges = on_core.kept(of_edges, *read)
                if matrix is not None and not edge_attr.requires_grad:
                    matrix = on_core.kept(matrix, *read)
                x = on_core.kept(*read) if x is x_src else x
                if matrix is None:  # types differ under autocast
                    dtype = torch.promote_types(x.dtype, of_edges.dtype)
                    x, of_edges = x.to(dtype), of_edges.to(dtype)[:, None]
                nb, given_order = adj.neighborhood, adj.order is not None
                out = ops.relu_sum(
                    x[:, None], of_edges, nb, edge_matrix=matrix, given_order=given_order
                ).squeeze(1)
                return out if reduce == "sum" else out / nb.degree().clamp(min=1)[:, None]
        messages = self.message(gather(x_src, adj), edge_attr)[:, None]
        edges = adj.edges_as_sources(given_order=True)
        return ops.aggregate(None, messages, edges, reduce).squeeze(1)

    def _args(self, edge_index: Any, size: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        x, *others = super()._args(edge_index, size, given)
        if self.lin is not None and type(x) is Tensor and not x.is_cpu:
            x = on_core.kept(x, self.lin.weight)
        return x, *others

    def _whole(self, args: tuple[Any, ...], adj: Adjacency, reduce: str) -> Tensor | None:
        """Sums as one function that is replayed; None where their parts have to run."""
        (x, edge_attr, *_), lin = args, self.lin
        if lin is None or reduce != "sum" or type(x) is not Tensor or x.is_cpu or adj.order is None:
            return None
        if type(edge_attr) is not Tensor or edge_attr.dtype is not x.dtype:
            return None
        shape = adj.num_given, getattr(lin, "in_channels", -1)
        if edge_attr.shape != shape or not on_core.run_inside(x, lin):
            return None
        given = x, edge_attr, lin.weight, lin.bias, adj.neighborhood.perm
        return again.compute(self, args, layers.MappedReLU, adj.neighborhood, given, free=[0, 1])


def _terms(
    x: Tensor, edge_attr: Tensor, lin: torch.nn.Module | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Nodes, features of edges, and on a CPU the matrix that maps these, its bias in the nodes."""
    if lin is None:
        return x, edge_attr, None
    if not x.is_cpu or not on_core.is_plain(lin) or torch.is_autocast_enabled("cpu"):
        return x, lin(edge_attr), None
    weight, bias = cast(Tensor, lin.weight), cast("Tensor | None", lin.bias)
    lazy = isinstance(weight, UninitializedParameter)
    fits = not lazy and weight.shape == (x.size(1), *edge_attr.shape[1:])
    if not fits or not x.dtype == edge_attr.dtype == weight.dtype:
        return x, lin(edge_attr), None
    return x if bias is None else x + bias, edge_attr, weight.T[None]
