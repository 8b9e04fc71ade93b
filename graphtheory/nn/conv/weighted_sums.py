"""PyG's layers that keep their `forward`, on the core: their sums over neighbors run on `ops`.

Only `propagate`, which gathers and scatters messages in PyG, is ours, and the forward of PNAConv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy
from torch_geometric.nn import aggr
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import SparseTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.inference import innermost_transform
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of, stored_values
from graphtheory.nn.conv.edge_features import gather
from graphtheory.nn.conv.on_core import REDUCTIONS, OwnPropagate, check_layout

_MOST = 0.75  # share of the target nodes up to which `SAGEConv` leaves the others out


class Sums(on_core.OwnPropagate):
    """Mixin of a layer whose `propagate` reduces features of neighbors by one of `REDUCTIONS`."""

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        on_core.check_reduction(layer, -2)


class WeightedSums(Sums):
    """Mixin of a layer whose message is a neighbor's features, maybe times a weight of the edge."""

    pays_from = 4_000, 2**21
    weight_name: ClassVar[str | None] = None  # of the argument of `propagate` with these weights

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        x = given["x"]
        x_src, x_dst = x if isinstance(x, (tuple, list)) else (x, x)
        # PyG's generated and its generic `propagate` read such a pair differently
        if x_dst is not None and x_dst is not x_src and self.flow != "source_to_target":
            raise ValueError(f"flow: got {self.flow!r} with a pair, expected the default")
        odd = x_src is None or x_src.dim() != 2 or not x_src.is_floating_point()
        if odd or (x is not x_src and self.flow != "source_to_target"):
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size)
        edge_index = _kept(self, edge_index) if self.weight_name is not None else edge_index
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        weight = None if self.weight_name is None else given[self.weight_name]
        stored = None if self.weight_name is None else stored_values(edge_index)
        weight = weight if stored is None else stored
        if weight is not None:
            if weight.numel() != adj.num_given:
                raise ValueError(
                    f"{self.weight_name}: shape {tuple(weight.shape)}, expected one per edge "
                    f"[{adj.num_given}]"
                )
            weight = adj.to_csr_order(weight.flatten())[:, None]
        reduce = REDUCTIONS[type(self.aggr_module)]
        return ops.aggregate(weight, x_src[:, None], adj.neighborhood, reduce).squeeze(1)


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
    _LAST[layer] = edge_index.detach()
    return _LAST[layer]


class GINConv(WeightedSums, pyg.GINConv):
    """PyG's `GINConv` with its sum over the neighbors by `ops`."""


class GraphConv(WeightedSums, pyg.GraphConv):
    """PyG's `GraphConv` with its sum over the neighbors by `ops`."""

    weight_name = "edge_weight"


class ChebConv(WeightedSums, pyg.ChebConv):
    """PyG's `ChebConv` with the sums of its recurrence by `ops`."""

    weight_name = "norm"


class SGConv(WeightedSums, pyg.SGConv):
    """PyG's `SGConv` with its K sums over the neighbors by `ops`."""

    weight_name = "edge_weight"


class APPNP(WeightedSums, pyg.APPNP):
    """PyG's `APPNP` with its K sums over the neighbors by `ops`."""

    weight_name = "edge_weight"


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
        if self.project:
            x_src = self.lin(x_src).relu()
        sums = self.propagate(first, x=(x_src, None))
        alone = self.lin_l(sums.new_zeros(1, sums.size(1)))
        add: Any = _Added.apply
        out = add(self.lin_r(x_dst), self.lin_l(sums), alone)
        return functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _first_rows(self, x: Any, edge_index: Any, size: Any) -> Neighborhood | None:
        """The rows up to the last with an edge; None where PyG's forward has to, or may as well."""
        if not self.root_weight or torch.compiler.is_compiling() or self.needs_messages():
            return None
        if self.flow != "source_to_target" or (isinstance(x, Tensor) and x.dim() != 2):
            return None
        x_src, x_dst = on_core.pair(x, self.flow)
        if (
            x_dst is None
            or x_src.device.type != "cpu"
            or innermost_transform() is not None
            or type(self.aggr_module) not in REDUCTIONS
            or not (on_core.is_plain(self.lin_l) and on_core.is_plain(self.lin_r))
        ):
            return None
        adj = adjacency_of(edge_index, x_src.size(0), on_core.num_targets(x_src, x_dst, size))
        return adj.cached("first rows", lambda: _up_to_the_last_edge(adj.neighborhood))


def _up_to_the_last_edge(nb: Neighborhood) -> Neighborhood | None:
    rows = int(torch.searchsorted(nb.indptr, nb.num_edges))
    if rows > _MOST * nb.num_dst:
        return None
    return Neighborhood(nb.indptr[: rows + 1], nb.indices, nb.num_src, validate=False)


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

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), edge_attr = given["x"], given["edge_attr"]
        if x_dst is not None and x_dst is not x_src and self.flow != "source_to_target":
            raise ValueError(f"flow: got {self.flow!r} with a pair, expected the default")
        if edge_attr is None or x_src.dim() != 2:
            return None
        num_dst = on_core.num_targets(x_src, x_dst, size)
        adj = adjacency_of(edge_index, x_src.size(0), num_dst, flow=self.flow)
        reduce = REDUCTIONS[type(self.aggr_module)]
        is_own = type(self).message is not pyg.GINEConv.message or "message" in vars(self)
        if reduce in ("sum", "mean") and not is_own and isinstance(edge_attr, Tensor):
            if edge_attr.shape[:1] != (adj.neighborhood.num_edges,):
                raise ValueError(
                    f"edge_attr: shape {tuple(edge_attr.shape)}, expected a row for each of the "
                    f"{adj.neighborhood.num_edges} edges"
                )
            x, of_edges, matrix = _terms(x_src, edge_attr, self.lin)
            if matrix is not None or of_edges.shape[1:] == x_src.shape[1:]:
                if matrix is None:
                    dtype = torch.promote_types(
                        x.dtype, of_edges.dtype
                    )  # they differ under autocast
                    x, of_edges = x.to(dtype), of_edges.to(dtype)[:, None]
                nb, given_order = adj.neighborhood, adj.order is not None
                out = ops.relu_sum(
                    x[:, None], of_edges, nb, edge_matrix=matrix, given_order=given_order
                ).squeeze(1)
                return out if reduce == "sum" else out / nb.degree().clamp(min=1)[:, None]
        messages = self.message(gather(x_src, adj), edge_attr)[:, None]
        return ops.aggregate(
            None, messages, adj.edges_as_sources(given_order=True), reduce
        ).squeeze(1)


def _terms(
    x: Tensor, edge_attr: Tensor, lin: torch.nn.Module | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Nodes, features of edges, and on a CPU the matrix that maps these, its bias in the nodes."""
    if lin is None:
        return x, edge_attr, None
    if not x.is_cpu or not on_core.is_plain(lin) or torch.is_autocast_enabled("cpu"):
        return x, lin(edge_attr), None
    weight, bias = cast(Tensor, lin.weight), cast("Tensor | None", lin.bias)
    fits = not is_lazy(weight) and weight.shape == (x.size(1), *edge_attr.shape[1:])
    if not fits or not x.dtype == edge_attr.dtype == weight.dtype:
        return x, lin(edge_attr), None
    return x if bias is None else x + bias, edge_attr, weight.T[None]


class PNAConv(OwnPropagate, pyg.PNAConv):
    r"""PyG's `PNAConv` with its aggregations by `ops`.

    The one linear map of a message is a sum of three,

    .. math:: m_{ij} = A x_i + B x_j + C e_{ij} + c

    so that it is computed per node, and :math:`B x_j (+ C e_{ij})` alone is reduced: a sum, mean,
    largest or smallest of messages is that of :math:`B x_j` plus the rest, variance and standard
    deviation do not depend on it. Without edge features no tensor has both an edge axis and a
    feature axis. A scaler multiplies what the last linear map makes of the aggregations, not the
    aggregations. In float32 a variance, a difference of means of squares as in PyG, is rounded
    differently.

    Source: Corso et al. (2020), eq. (4) to (8).
    """

    inlined = ("aggr_module", "pre_nns", "post_nns")

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        check_layout(layer, 0)
        for network in layer.pre_nns:
            if [type(part) for part in network] != [Linear]:
                raise ValueError(
                    f"pre_layers: got {(len(network) + 1) // 2}, expected 1: more layers have an "
                    "activation between source and target node"
                )
        for network in layer.post_nns:
            if type(network[0]) is not Linear:
                raise ValueError(f"post_nns: got a {type(network[0]).__name__}, expected a Linear")
        for one in _aggregations(layer):
            if type(one) not in REDUCTIONS and not _is_variance(one):
                raise ValueError(
                    f"aggregators: got {type(one).__name__}, expected sums, means, max, min, var "
                    "and std"
                )

    def forward(self, x: Tensor, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        towers = self.towers if self.divide_input else 1
        split = x.view(-1, towers, self.F_in).expand(-1, self.towers, -1)
        out = None if self.needs_messages() else self._reduced(edge_index, split, edge_attr)
        if out is None:
            return super().forward(x, edge_index, edge_attr)
        reduced, degree = out
        weight = torch.stack([network[0].weight for network in self.post_nns])  # [T, F_out, .]
        bias = torch.stack([network[0].bias for network in self.post_nns])
        widths = [self.F_in] + [reduced.size(2)] * len(self.aggr_module.scaler)
        of_own, *of_scaled = weight.split(widths, 2)
        mapped = torch.einsum("ntf,tof->nto", split, of_own) + bias
        scaled = torch.einsum("ntf,tsof->ntso", reduced, torch.stack(of_scaled, 1))
        factors = torch.cat(_scalers(self.aggr_module, degree), 2)[..., None]  # [N, 1, S, 1]
        mapped = mapped + (scaled * factors).sum(2)
        outs = zip(self.post_nns, mapped.unbind(1), strict=True)
        return self.lin(torch.cat([network[1:](tower) for network, tower in outs], 1))

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> None:
        """Nothing: PyG's forward runs only where its messages are needed."""

    def _reduced(
        self, edge_index: Any, x: Tensor, edge_attr: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        """Every aggregation [N, towers, F], and degrees; None where only PyG has them."""
        if edge_attr is None and (self.edge_dim or isinstance(edge_index, SparseTensor)):
            return None
        adj = adjacency_of(edge_index, x.size(0), x.size(0), flow=self.flow)
        weight = torch.stack([network[0].weight for network in self.pre_nns])  # [T, F, 2 or 3 F]
        bias = torch.stack([network[0].bias for network in self.pre_nns])
        of_target, of_source, *of_edge = weight.split(self.F_in, 2)
        here = torch.einsum("ntf,tof->nto", x, of_target) + bias
        there = torch.einsum("ntf,tof->nto", x, of_source)
        nb = adj.neighborhood
        if edge_attr is not None:
            encoded = self.edge_encoder(edge_attr).view(-1, self.F_in)
            there = gather(there, adj) + torch.einsum("ef,tof->eto", encoded, of_edge[0])
            nb = adj.edges_as_sources(given_order=True)
        degree = nb.degree().to(x.dtype)[:, None, None]
        return torch.cat(_aggregated(_aggregations(self), there, here, nb, degree), -1), degree


def _aggregations(layer: Any) -> list[nn.Module]:
    of = layer.aggr_module.aggr
    return list(of.aggrs) if isinstance(of, aggr.MultiAggregation) else [of]


def _is_variance(one: Any) -> bool:
    one = one.var_aggr if type(one) is aggr.StdAggregation else one
    return type(one) is aggr.VarAggregation and not one.semi_grad


def _aggregated(
    wanted: list[nn.Module], there: Tensor, here: Tensor, nb: Neighborhood, degree: Tensor
) -> list[Tensor]:
    """Each aggregation [N, towers, F_in] of all messages, zeros where there are none."""
    found = {"mean": ops.aggregate(None, there, nb, "mean")}
    variance = None
    if any(map(_is_variance, wanted)):
        variance = ops.aggregate(None, there**2, nb, "mean") - found["mean"] ** 2
    outs = []
    for one in wanted:
        how = REDUCTIONS.get(type(one))
        if how is None:
            assert variance is not None
            outs.append(variance if type(one) is aggr.VarAggregation else _root(variance))
            continue
        if how not in found:
            found[how] = ops.aggregate(None, there, nb, how)
        outs.append(found[how] + here * (degree if how == "sum" else degree.clamp(max=1)))
    return outs


def _root(variance: Tensor) -> Tensor:
    """Standard deviation; as in PyG 0, with gradient 0, for a variance up to 1e-5."""
    out = variance.clamp(min=1e-5).sqrt()
    return out.masked_fill(out <= 1e-5**0.5, 0.0)


def _scalers(module: Any, degree: Tensor) -> list[Tensor]:
    linear, log = module.avg_deg_lin, module.avg_deg_log
    some = degree.clamp(min=1)
    known: dict[str, Callable[[], Tensor]] = {
        "identity": lambda: torch.ones_like(degree),
        "amplification": lambda: (degree + 1).log() / log,
        "attenuation": lambda: log / (some + 1).log(),
        "linear": lambda: degree / linear,
        "inverse_linear": lambda: linear / some,
    }
    return [known[name]() for name in module.scaler]
