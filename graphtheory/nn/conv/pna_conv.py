"""PyG's PNAConv on the core."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import SparseTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.edge_features import gather
from graphtheory.nn.conv.on_core import REDUCTIONS, OwnPropagate, check_entries


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

    inlined: ClassVar[on_core.Inlined] = {
        "aggr_module": (aggr.DegreeScalerAggregation,),
        "pre_nns": (nn.ModuleList,), "post_nns": (nn.ModuleList,),
    }  # fmt: skip

    node_axis = 0

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        super().check_options(layer)
        problem = _other_parts(layer)
        if problem:
            raise ValueError(problem)

    def needs_messages(self) -> bool:
        return super().needs_messages() or bool(_other_parts(self))

    def forward(self, x: Tensor, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        if edge_attr is not None:  # PyG concatenates both
            x = x.to(torch.promote_types(x.dtype, next(self.parameters()).dtype))
        towers = self.towers if self.divide_input else 1
        x_own = on_core.kept(x, *self.parameters())
        split = x_own.view(-1, towers, self.F_in).expand(-1, self.towers, -1)
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
        if edge_attr is not None:
            if self.edge_dim is None:
                raise ValueError("edge_attr: got some, but the layer has edge_dim=None")
            check_entries("edge_attr", edge_attr, "edge", adj.num_given, *edge_attr.shape[1:])
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


def _other_parts(layer: Any) -> str:
    """Which submodule of a `PNAConv` is of a kind that is not computed here; "" if none is."""
    for network in layer.pre_nns:
        if type(network) is not nn.Sequential or [type(part) for part in network] != [Linear]:
            return (
                f"pre_layers: got {(len(network) + 1) // 2}, expected 1: more layers have an "
                "activation between source and target node"
            )
    for network in layer.post_nns:
        if type(network) is not nn.Sequential or type(network[0]) is not Linear:
            return f"post_nns: got {network}, expected a Linear first"
    for one in _aggregations(layer):
        if type(one) not in REDUCTIONS and not _is_variance(one):
            kind = type(one).__name__
            return f"aggregators: got {kind}, expected sums, means, max, min, var and std"
    return ""


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
        if all(map(_is_variance, wanted)):
            variance = variance + 0 * here  # whose parameters get the gradient 0, as in PyG
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
