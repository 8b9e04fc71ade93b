"""Gated graph convolutions: PyG's `ResGatedGraphConv`, and GatedGCN with states of edges."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import Linear

from graphtheory import ops
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import adjacency_of, stored_values
from graphtheory.nn.conv.edge_features import edge_features, gather, in_rows


class ResGatedGraphConv(on_core.OwnPropagate, pyg.ResGatedGraphConv):
    r"""PyG's `ResGatedGraphConv` with its gated sum over the neighbors by `ops`.

    .. math:: x'_i = W_1 x_i + \sum_{j \in N(i)} \sigma(W_3 x_i + W_4 x_j) \odot W_2 x_j

    Without edge features no gate and no message is built. With them, nodes and edges are mapped
    apart, nodes once and not per edge. PyG's own path runs for another `act` than the sigmoid and
    where messages are not reduced by "sum" or "mean".

    Source: Bresson and Laurent (2017), Residual gated graph ConvNets, eq. (11).
    """

    node_axis = -2

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        super().check_options(layer)
        if not _is_sigmoid(layer.act):
            raise ValueError(f"act: got {layer.act}, expected a sigmoid")

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        xs, edge_attr = [given[name] for name in "kqv"], given["edge_attr"]
        if edge_attr is None and self.edge_dim is not None:
            edge_attr = stored_values(edge_index)
        maps = self.lin_key, self.lin_query, self.lin_value
        reduce = on_core.REDUCTIONS.get(type(self.aggr_module))
        own = type(self).message is not pyg.ResGatedGraphConv.message or "message" in vars(self)
        if own or reduce not in ("sum", "mean") or not _is_sigmoid(self.act) or xs[0].dim() != 2:
            return None
        if (edge_attr is None) != (self.edge_dim is None):
            got = "none" if edge_attr is None else "some"
            raise ValueError(f"edge_attr: got {got}, but the layer has edge_dim={self.edge_dim}")
        adj = adjacency_of(edge_index, xs[1].size(0), xs[0].size(0), flow=self.flow)
        nb, (k, q, v) = adj.neighborhood, xs
        if edge_attr is not None:
            if not all(map(on_core.is_plain, maps)):
                return None
            xs = [on_core.widened(x, edge_attr) for x in xs]  # PyG concatenates both
            edge_attr = on_core.widened(edge_attr, *xs)
            edge_attr = edge_features(edge_attr, nb.num_edges, self.edge_dim)
            edge_attr, nodes, edges = on_core.kept(edge_attr, self.lin_key.weight), [], []
            for x, m in zip(xs, maps, strict=True):
                weight, of_edge = m.weight.split([x.size(1), self.edge_dim], 1)
                nodes.append(linear(on_core.kept(x, m.weight), weight, m.bias))
                edges.append(of_edge)
            k, q, v = nodes
            q = gather(q, adj) + linear(edge_attr, edges[0] + edges[1])
            v = gather(v, adj) + linear(edge_attr, edges[2])
            nb = adj.edges_as_sources(given_order=True)
        out = ops.gated_sum(v[:, None], nb, source=q, target=k).squeeze(1)
        return out if reduce == "sum" else out / nb.degree().clamp(min=1)[:, None]


def _is_sigmoid(act: Any) -> bool:
    return act is torch.sigmoid or (type(act) is nn.Sigmoid and not on_core.is_watched(act))


class GatedGCNConv(pyg.ResGatedGraphConv):
    r"""Graph convolution whose gates are states of the edges, which it returns beside the nodes.

    .. math::
        e'_{ij} = A x_i + B x_j + C e_{ij}, \qquad
        x'_i = U x_i + \sum_{j \in N(i)} \frac{\sigma(e'_{ij})}
        {\sum_{k \in N(i)} \sigma(e'_{ik}) + \epsilon} \odot V x_j

    Norms, activations and residual connections are left to the caller.

    Args:
        in_channels: Features of a node.
        out_channels: Features of a node and of an edge after the layer.
        edge_dim: Features of an edge before it.
        normalize: Divide each gate by the sum of the gates of its target node.
        eps: Epsilon (dimensionless).
        **kwargs: More of PyG's `ResGatedGraphConv`, such as `bias`.

    Shapes:
        x [num_nodes, in_channels], edge_attr [num_edges, edge_dim] in the order of `edge_index`
        -> ([num_nodes, out_channels], [num_edges, out_channels]).

    Raises:
        ValueError: If shapes do not fit.

    Source: Dwivedi et al. (2020), Benchmarking graph neural networks, GatedGCN.

    Example:
        >>> x, edges = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
        >>> out, states = GatedGCNConv(4, 8, edge_dim=2)(x, edges, torch.randn(2, 2))
        >>> out.shape, states.shape
        (torch.Size([3, 8]), torch.Size([2, 8]))
    """

    def __init__(
        self, in_channels: int, out_channels: int, edge_dim: int, *, normalize: bool = True,
        eps: float = 1e-6, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, **kwargs)
        self.normalize, self.eps = normalize, eps
        self.lin_edge = Linear(edge_dim, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Any, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        adj = adjacency_of(edge_index, x.size(0), x.size(0), flow=self.flow)
        nb, targets = adj.neighborhood, adj.edges_as_sources().transpose()
        edge_attr = edge_features(edge_attr, nb.num_edges, self.lin_edge.in_channels)
        states = self.lin_edge(in_rows(adj, edge_attr))
        states = states + gather(self.lin_query(x), adj, given_order=False)
        states = states + ops.aggregate(None, self.lin_key(x)[:, None], targets).squeeze(1)
        values = [self.lin_value(x)]
        if self.normalize:
            values.append(torch.ones_like(values[0]))
        out, *gates = ops.gated_sum(torch.stack(values, 1), nb, edge=states).unbind(1)
        out = out / (gates[0] + self.eps) if gates else out
        if self.lin_skip is not None:
            out = out + self.lin_skip(x)
        return out if self.bias is None else out + self.bias, adj.to_edge_order(states)
