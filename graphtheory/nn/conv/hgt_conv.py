"""PyG's HGTConv and HANConv, for several kinds of nodes and edges, on the core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.nn.dense import HeteroDictLinear, HeteroLinear
from torch_geometric.nn.parameter_dict import ParameterDict
from torch_geometric.typing import EdgeType

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of


class HGTConv(on_core.OnCore, pyg.HGTConv):
    r"""Transformer attention over the neighbors along all kinds of edges together.

    .. math:: \alpha_{ij} = \operatorname{softmax}_{j \in N(i)}
        \frac{\mu_r\, q_i^\top W_r^{\text{att}} k_j}{\sqrt d}, \qquad
        m_i = \sum_{j \in N(i)} \alpha_{ij} W_r^{\text{msg}} v_j

    where r is the kind of the edge. Key and value are transformed once per source node and kind of
    edge, with the prior :math:`\mu_r` multiplied into the key, and one `ops.attention` runs over
    the joined neighborhood. Same arguments, parameters, state dict and results as PyG's layer of
    this name, but that the order of `edge_index_dict` need not be that of `metadata`: PyG's weights
    then belong to other kinds.

    Source: Hu et al. (2020), Heterogeneous Graph Transformer, eq. (3) to (5).
    """

    propagate_type: ClassVar[dict[str, Any]] = {
        "k": Tensor, "q": Tensor, "v": Tensor, "edge_attr": Tensor,
    }  # fmt: skip
    parts = (SumAggregation, HeteroDictLinear, HeteroLinear, ParameterDict)
    inlined = ("aggr_module", "k_rel", "v_rel")
    smallest = (1, 1, (["a"], [("a", "to", "a")]))
    flows_back = False

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Any]
    ) -> dict[str, Tensor | None]:
        if self.needs_messages():
            given = {kind: self.for_messages(e) for kind, e in edge_index_dict.items()}
            return super().forward(x_dict, given)
        shape = (-1, 3, self.heads, self.out_channels // self.heads)
        parts = {name: t.view(shape).unbind(1) for name, t in self.kqv_lin(x_dict).items()}
        key, value = (
            torch.cat([self._transformed(parts[kind[0]][i], rel, kind) for kind in edge_index_dict])
            for i, rel in ((0, self.k_rel), (2, self.v_rel))
        )
        query = torch.cat([q for _, q, _ in parts.values()])
        sizes = {name: q.size(0) for name, (_, q, _) in parts.items()}
        nb = joined(edge_index_dict, sizes)
        out = ops.attention(query, key, value, nb).flatten(1).split(list(sizes.values()))
        of_type = {t: o for t, o in zip(sizes, out, strict=True) if t in self.dst_node_types}
        found = self.out_lin({t: nn.functional.gelu(o) for t, o in of_type.items()})
        for t in of_type:
            if found[t].size(-1) == x_dict[t].size(-1):
                gate = self.skip[t].sigmoid()
                found[t] = gate * found[t] + (1 - gate) * x_dict[t]
        return {t: found[t] for t in of_type}

    def _transformed(self, x: Tensor, linear: Any, kind: EdgeType) -> Tensor:
        """Keys or values [N_src, H, D] for a kind of edge; keys with its prior."""
        weight = linear.weight.view(self.heads, len(self.edge_types), *linear.weight.shape[1:])
        weight = weight[:, self.edge_types_map[kind]]
        if linear is self.k_rel:
            weight = weight * self.p_rel["__".join(kind)].view(-1, 1, 1)
        return torch.einsum("nhd,hde->nhe", x, weight)


def joined(edges: Mapping[EdgeType, Any], sizes: Mapping[str, int]) -> Neighborhood:
    """One neighborhood of all kinds of edges, kept while the given edges are the same tensors.

    Targets are the nodes of all types, sources those of each kind of edge, one after another.
    """
    adjs = [adjacency_of(e, sizes[kind[0]], sizes[kind[-1]]) for kind, e in edges.items()]
    kept = adjs[0].cached("joined", dict)
    # the adjacencies are kept as well, whose identity would otherwise be given to others
    found = kept.get("found")
    names = (tuple(edges), tuple(sizes.items()))
    same = found is not None and found[0] == names
    if not same or any(a is not b for a, b in zip(found[1], adjs, strict=True)):
        found = kept["found"] = (names, adjs, _join(adjs, tuple(edges), sizes))
    return found[2]


def _join(
    adjs: list[Adjacency], kinds: tuple[EdgeType, ...], sizes: Mapping[str, int]
) -> Neighborhood:
    first, total = {}, 0
    for name, size in sizes.items():
        first[name], total = total, total + size
    parts, num_src = [], 0
    for adj, kind in zip(adjs, kinds, strict=True):
        src, dst = adj.neighborhood.edge_index()
        parts.append(torch.stack([src + num_src, dst + first[kind[-1]]]))
        num_src += adj.neighborhood.num_src
    return Neighborhood.from_edge_index(torch.cat(parts, 1), num_src=num_src, num_dst=total)


class HANConv(on_core.OwnPropagate, pyg.HANConv):
    r"""PyG's `HANConv` with the attention along each kind of edge by `ops.additive_attention`.

    Dropout draws other random numbers than PyG's, with the same probability.

    Source: Wang et al. (2019), eq. (2) to (4).
    """

    flows_back = False

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), (of_source, of_target) = given["x"], given["alpha"]
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0))
        return ops.additive_attention(
            x_src, of_source, of_target, adj.neighborhood, negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        ).flatten(1)  # fmt: skip
