"""PyG's GCNConv on the core, also for bipartite graphs and sampled neighborhoods."""

import math
from contextlib import suppress
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import OptTensor, Size, SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import is_tracing
from graphtheory.nn.conv import adjacency, again, on_core
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.nn.conv.direct import Direct
from graphtheory.nn.conv.sparse_features import version_of
from graphtheory.ops import layers
from graphtheory.ops.derivatives import needs_grad

Rows = tuple[Neighborhood, Tensor | None]  # and the weight of each edge in its order


@on_core.checked
class GCNConv(on_core.OnCore, pyg.GCNConv):
    r"""Sum over the neighbors and the node itself with symmetric degree normalization.

    .. math::
        x'_i = \Theta^\top \sum_{j \in N(i) \cup \{i\}} \frac{w_{ij}}{\sqrt{d_j\, d_i}}\, x_j,
        \qquad d_i = \sum_j w_{ij}

    Same arguments, parameters, state dict and results as PyG's layer of this name, whose
    documentation explains the arguments; `aggr` must be a sum, and `flow="target_to_source"`
    requires an edge list. A node without incoming edges gets only the bias. With `cached` the
    normalized edges of the first call serve all later calls with a graph of its kind: PyG's
    attribute `_cached_adj_t` shows and clears those of a `SparseTensor`, `_cached_edge_index` those
    of any other graph.

    Unlike PyG's layer, this one accepts a pair (x_src, x_dst) of different node sets. The degree of
    a source node is then :math:`d_j = \sum_i w_{ij}`, and self-loops connect the first
    min(N_src, N_dst) nodes of both sets, as in a sampled block whose target nodes are its first
    source nodes; pass `add_self_loops=False` if the sets have no nodes in common. The `weight` of a
    `Neighborhood` is its `edge_weight`, unchanged with `normalize=False`.

    Shapes:
        - **x:** [..., N, in_channels], dense or sparse, or a pair ([N_src, in_channels], [N_dst, .]
          or None), of whose second entry only the number of rows is used.
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_weight:** [E], in the order of the given edges.
        - **size:** (N_src, N_dst), needed if x_dst is None.
        - **output:** [..., N_dst, out_channels].

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Kipf and Welling (2017), eq. (2). Differs from PyG as said above; `edge_weight` beside a
        sparse matrix is an error.

    Example:
        >>> conv = GCNConv(16, 8)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 8])
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_weight": OptTensor}
    decomposes = True
    arguments = "x", "edge_index", "edge_weight", "size"
    pays_from = 4_000, 2**20
    _kept: tuple[Any, Any, Rows] | None = None  # what is cached, sizes and versions, and its rows

    @staticmethod
    def at_new_edges(kind: type) -> type:
        return _AtNewEdges

    def _is_first(self, *args: Any, **named: Any) -> bool:
        weight = named.get("edge_weight", *args[2:3])  # PyG's gradient of a learned one may be NaN
        learned = self.normalize and needs_grad((weight,))
        return not learned and super()._is_first(*args, **named)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_weight: Tensor | None = None,
        size: Size = None,
    ) -> Tensor:
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again(self, x, edge_index, edge_weight, size)
            if found is not None:
                return found
        if self.needs_messages():
            return self._by_messages(x, edge_index, edge_weight)
        one_set = isinstance(x, Tensor)
        x_src = x if isinstance(x, Tensor) else on_core.pair(x, self.flow)[0]
        on_core.check_features("x", x_src, getattr(self.lin, "in_channels", -1))
        num_dst = self._targets(x, size, edge_index)
        args = (edge_index, edge_weight, x_src, num_dst, one_set)
        cached = self._cached_edges(*args) if self.normalize else None
        rows = self._rows(*args) if cached is None else self._kept_rows(cached, x_src, num_dst)
        out = None
        if not rows[0].indptr.is_cpu and one_set and edge_weight is None:
            out = self._whole((x_src, edge_index, edge_weight, size), *rows)
        if out is not None:
            return out
        given, x_src = x_src, self.lin(x_src)
        if edge_weight is not None:
            _, x_src = on_core.multiplied(edge_weight, x_src)
        elif cached is not None and rows[1] is not None and rows[1].dtype is torch.float64:
            x_src = x_src.double()
        out = self._sum(x_src, *rows)
        if self.normalize and out.dtype is not given.dtype:  # under autocast
            out = on_core.widened(out, given)
        return out if self.bias is None else out + self.bias

    def _whole(self, args: Any, nb: Neighborhood, weight: Tensor | None) -> Tensor | None:
        """The output as one function; None where its parts have to run."""
        x = args[0]
        if weight is None or weight.requires_grad or self.node_dim not in (0, -2):
            return None
        if not on_core.run_inside(x, self.lin):
            return None
        given = (x, self.lin.weight, self.bias, weight)
        return again.compute(self, args, layers.MappedSums, nb, given, False)

    def _cached_edges(self, given: Any, weight: Tensor | None, x_src: Tensor, *more: Any) -> Any:
        """What PyG's layer would have cached in the first call with a graph of this kind."""
        name = "_cached_adj_t" if isinstance(given, SparseTensor) else "_cached_edge_index"
        if getattr(self, name) is None and self.cached and not torch.compiler.is_exporting():
            args = given, weight, x_src, *more
            setattr(self, name, adjacency.outside_inference_mode(lambda: self._to_cache(*args)))
        return getattr(self, name)

    def _to_cache(
        self, given: Any, weight: Tensor | None, x_src: Tensor, num_dst: int | None, one_set: bool
    ) -> Any:
        nb, normalized = self._rows(given, weight, x_src, num_dst, one_set)
        if isinstance(given, Neighborhood) or not one_set:
            return nb.edge_index(), normalized
        return self._by_gcn_norm(given, weight, x_src)

    def _kept_rows(self, cached: Any, x_src: Tensor, num_dst: int | None) -> Rows:
        kept, parts = self._kept, cached.coo() if isinstance(cached, SparseTensor) else cached
        versions = [version_of(part) for part in parts if part is not None]
        given = (x_src.shape[self.node_dim], num_dst, versions)
        if kept is None or kept[0] is not cached or kept[1] != given:
            of = adjacency.outside_inference_mode(lambda: self._rows_of(cached, x_src, num_dst))
            kept = cached, given, of
            if not torch.compiler.is_exporting():
                self._kept = kept
        return kept[2]

    def _rows_of(self, cached: Any, x_src: Tensor, num_dst: int | None) -> Rows:
        edges, weight = (cached, None) if isinstance(cached, SparseTensor) else cached
        num_src = x_src.shape[self.node_dim]
        adj = adjacency.adjacency_of(edges, num_src, num_dst, flow=self.flow)
        weight = adjacency.stored_values(edges) if weight is None else weight
        return adj.neighborhood, None if weight is None else adj.to_csr_order(weight)

    def _by_messages(self, x: Any, edge_index: Any, edge_weight: Tensor | None) -> Tensor:
        if not isinstance(x, Tensor):
            raise NotImplementedError(
                "x: got a pair, which explainers and message hooks do not support"
            )
        if isinstance(edge_index, Neighborhood) and edge_weight is None:
            edge_weight = edge_index.weight
        return super().forward(x, self.for_messages(edge_index), edge_weight)

    def _targets(self, x: Any, size: Size, edge_index: Any) -> int | None:
        if isinstance(x, Tensor):
            num_nodes = x.shape[self.node_dim]
            if size is not None and tuple(size) != (num_nodes, num_nodes):
                raise ValueError(
                    f"size: got {tuple(size)}, expected two times {num_nodes} rows of x"
                )
            return num_nodes
        return on_core.num_targets(x[0], x[1], size, edge_index)

    def _rows(
        self, given: Any, weight: Tensor | None, x_src: Tensor, num_dst: int | None, one_set: bool
    ) -> Rows:
        num_src = x_src.shape[self.node_dim]
        if isinstance(given, SparseTensor) or is_torch_sparse_tensor(given):
            if weight is not None:
                raise ValueError("edge_weight: got some beside a sparse matrix, which has its own")
            if self.normalize and one_set:
                return self._rows_of(self._by_gcn_norm(given, None, x_src), x_src, num_dst)
            weight = adjacency.stored_values(given)
        elif isinstance(given, Neighborhood) and weight is None:
            weight = given.weight
        loops = self.normalize and self.add_self_loops
        adj = adjacency.adjacency_of(given, num_src, num_dst, add_self_loops=loops, flow=self.flow)
        if weight is not None:
            weight = weight.flatten() if self.normalize else adj.one_per_edge(weight)
            on_core.check_entries("edge_weight", weight, "edge", adj.num_given)
            weight, _ = on_core.multiplied(weight, x_src)
        if not self.normalize:
            return adj.neighborhood, None if weight is None else adj.to_csr_order(weight)
        if weight is not None:
            return adj.neighborhood, self._normalized(adj, weight, one_set, x_src.dtype)
        key = ("gcn", self.improved, one_set, x_src.dtype)
        return adj.neighborhood, adj.cached(
            key, lambda: self._normalized(adj, None, one_set, x_src.dtype)
        )

    def _by_gcn_norm(self, given: Any, weight: Tensor | None, x: Tensor) -> Any:
        """PyG's normalization, which treats self-loops differently per kind of sparse matrix."""
        if is_torch_sparse_tensor(given) and given.layout is torch.sparse_csc:
            given = given.to_sparse_csr()
        if weight is not None:
            weight, _ = on_core.multiplied(weight.flatten(), x)
        # the degree of a hub overflows in float16
        wide, num_nodes = torch.promote_types(x.dtype, torch.float32), x.shape[self.node_dim]
        options = self.improved, self.add_self_loops, self.flow, wide
        return gcn_norm(given, weight, num_nodes, *options)

    def _normalized(
        self, adj: Adjacency, weight: Tensor | None, one_set: bool, dtype: torch.dtype
    ) -> Tensor:
        """Weights [E] divided by the roots of both degrees, with self-loops, in CSR order."""
        nb, fill = adj.neighborhood, 1.0 if weight is None or not self.improved else 2.0
        if weight is None:
            # as in `_by_gcn_norm`
            wide = torch.promote_types(dtype, torch.float32)
            weight = torch.ones(adj.num_given, dtype=wide, device=nb.device)
        weight = adj.to_csr_order(_with_loops(adj, weight, fill))
        received = _sums(weight, nb)
        sent = received
        if not one_set:
            back = nb.transpose()
            assert back.perm is not None
            sent = _sums(weight[back.perm], back)
        dst, src = _inverse_root(received), _inverse_root(sent)
        return dst.index_select(0, adj.targets()) * weight * src.index_select(0, nb.indices)

    def _sum(self, x: Tensor, nb: Neighborhood, weight: Tensor | None) -> Tensor:
        """Weighted sums along the node axis; further axes become heads of `ops.aggregate`."""
        x = x.movedim(self.node_dim, 0)  # [N_src, ..., F]
        value = x.reshape(x.size(0), math.prod(x.shape[1:-1]), x.size(-1))
        weights = None if weight is None else weight[:, None].expand(-1, value.size(1))
        out = ops.aggregate(weights, value, nb)
        return out.view(nb.num_dst, *x.shape[1:]).movedim(0, self.node_dim).contiguous()


class _AtNewEdges(Direct, pyg.GCNConv):
    """PyG's layer; where no weights are given, fewer operations make those of PyG, bit by bit."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        found = None
        if edge_weight is None and self.normalize and self.add_self_loops:
            with suppress(IndexError, RuntimeError):  # which PyG raises in its own words
                found = self._normalized(x, edge_index)
        if found is None:
            return cast(Tensor, super().forward(x, edge_index, edge_weight))
        out: Tensor = self.propagate(found[0], x=self.lin(x), edge_weight=found[1])
        return out if self.bias is None else out + self.bias

    def _normalized(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """The other edges and a self-loop of each node, and weights by degrees of 1 or more."""
        src, dst = edge_index
        others = (src != dst).nonzero().squeeze(1)
        ids = torch.arange(x.size(0), device=x.device)
        edges = torch.cat([edge_index.index_select(1, others), ids.expand(2, -1)], 1)
        src, dst = edges
        ends = dst if self.flow == "source_to_target" else src
        ones = x.new_ones(edges.size(1))
        scale = x.new_zeros(x.size(0)).scatter_add_(0, ends, ones).pow_(-0.5)
        return edges, scale.index_select(0, src) * scale.index_select(0, dst)


def _with_loops(adj: Adjacency, weight: Tensor, fill: float) -> Tensor:
    """Weights of the given edges, then of the appended self-loops: the last given one or `fill`.

    As in PyG every given self-loop of a node has the gradient of the one that counts.
    """
    if adj.edges is None:
        return weight
    src, dst = adj.edges[:, : adj.num_given]

    def ends() -> tuple[Tensor, Tensor]:
        """Of each edge the node whose self-loop it is; of each node the place of its last one."""
        at = torch.arange(src.size(0), device=src.device)
        node = torch.where(src == dst, src, adj.loops)
        last = at.new_full((adj.loops + 1,), -1).scatter_reduce(0, node, at, "amax")[: adj.loops]
        return node, torch.where(last < 0, src.size(0), last)  # one behind the edges for none

    node, last = adj.cached("last loops", ends)
    others = torch.where(src == dst, 0, weight)
    loops = torch.cat([weight.detach(), weight.new_full((1,), fill)]).index_select(0, last)
    if weight.requires_grad or is_tracing():  # a transform hides that a gradient is asked for
        zero = (weight - weight.detach()).nan_to_num(0)  # but with a gradient
        loops = loops + zero.new_zeros(adj.loops + 1).index_add(0, node, zero)[: adj.loops]
    return torch.cat([others, loops])


def _sums(weight: Tensor, nb: Neighborhood) -> Tensor:
    return ops.aggregate(weight[:, None], weight.new_ones(nb.num_src, 1, 1), nb).flatten()


def _inverse_root(degree: Tensor) -> Tensor:
    """Inverse square root of the degree; 0 with zero gradient where the degree is 0."""
    empty = degree == 0
    return torch.where(empty, 0, torch.where(empty, 1, degree) ** -0.5)
