"""PyG's layers for several kinds of nodes or edges on the core: RGCN, FastRGCN, HGT and HAN."""

from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense import HeteroLinear
from torch_geometric.typing import EdgeType, OptTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index, sort_by_key
from graphtheory.nn.conv import adjacency, on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.on_core import REDUCTIONS
from graphtheory.ops.edge import Reduction


class Relations:
    """The relation of each edge in CSR order, and the pairs of relation and target with edges."""

    def __init__(self, adj: Adjacency, kinds: Tensor, num_relations: int) -> None:
        self.adjacency, self.kinds, self.num_relations = adj, kinds, num_relations
        # edges by relation, in each by target node as before
        _, order = sort_by_key(kinds, num_relations)
        ends, kinds = adj.targets()[order], kinds[order]
        new = torch.ones_like(kinds, dtype=torch.bool)
        new[1:] = (kinds[1:] != kinds[:-1]) | (ends[1:] != ends[:-1])
        self._sorted = order, ends, new

    @cached_property
    def sources(self) -> Neighborhood:
        """[P pairs <- N_src]: the source nodes of each pair, pairs sorted by relation."""
        order, _, new = self._sorted
        starts = torch.cat([new.nonzero().flatten(), new.new_tensor([len(new)], dtype=torch.long)])
        nb = self.adjacency.neighborhood
        return Neighborhood(starts, nb.indices[order], nb.num_src, validate=False)

    @cached_property
    def targets(self) -> Neighborhood:
        """[N_dst <- P pairs]: the pairs of each target node."""
        _, targets, new = self._sorted
        ends = targets[new]
        edges = torch.stack([torch.arange(len(ends), device=ends.device), ends])
        num_dst = self.adjacency.neighborhood.num_dst
        return Neighborhood.from_edge_index(edges, num_src=len(ends), num_dst=num_dst)

    @cached_property
    def counts(self) -> list[int]:
        """Number of pairs of each relation."""
        order, _, new = self._sorted
        found = torch.bincount(self.kinds[order][new], minlength=self.num_relations)
        return [int(count) for count in found.tolist()]

    @cached_property
    def share(self) -> Tensor:
        """1 / number of edges of its relation and target node, for each edge in CSR order [E]."""
        order, _, new = self._sorted
        per_pair = self.sources.degree().to(torch.float64).reciprocal()
        return torch.zeros_like(order, dtype=torch.float64).index_copy(
            0, order, per_pair[new.cumsum(0) - 1]
        )

    @cached_property
    def by_kind(self) -> Neighborhood:
        """The edges with a source node of its own for each relation: relation * N_src + source."""
        nb = self.adjacency.neighborhood
        indices = self.kinds * nb.num_src + nb.indices
        return Neighborhood(nb.indptr, indices, self.num_relations * nb.num_src, validate=False)


def relations_of(adj: Adjacency, kinds: Tensor, num_relations: int) -> Relations:
    """The relations, made once for an adjacency and a tensor `kinds` in the given order."""

    def make() -> Relations:
        whole = kinds.detach().long()
        if kinds.is_floating_point() and not torch.equal(whole, kinds.detach()):
            raise ValueError("edge_type: got numbers with a fraction, expected relations, integers")
        check_index("edge_type", whole, num_relations, "relation")
        return Relations(adj, adj.to_csr_order(whole), num_relations)

    cache = adjacency.cached_for(kinds)
    if cache is None:
        return make()
    found = cache.get("relations")
    if found is None or found.adjacency is not adj or found.num_relations != num_relations:
        found = cache["relations"] = adjacency.outside_inference_mode(make)
    return found


class Relational(on_core.OnCore):
    r"""Mixin of the relational graph convolutions; list it before PyG's layer.

    .. math:: x'_i = \Theta_0^\top x_i + \sum_r \Theta_r^\top
        \operatorname{reduce}_{j \in N_r(i)} x_j

    Same arguments, parameters, state dict and results as PyG's layer of this name. Features are
    reduced once for each pair of relation and target node that has edges, multiplied by the
    relation's weight, and summed. Ids of nodes in the place of features take rows of the weights,
    with a basis decomposition those of the bases, so that no [relations, nodes, features] is built;
    with ids and a largest value PyG's own path runs.

    Source: Schlichtkrull et al. (2018), eq. (2) to (4).
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_type_ptr": OptTensor}
    inlined: ClassVar[on_core.Inlined] = {"aggr_module": tuple(REDUCTIONS)}
    takes_ids: ClassVar[bool] = True
    node_axis = 0
    pays_from = 0, 0

    def forward(self, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        x_src, x_dst = x if isinstance(x, tuple) else (x, x)
        ids = x_src is None or not x_src.is_floating_point()
        reduce = self._reduction(edge_index)
        odd = ids and (reduce not in ("sum", "mean") or self.num_blocks is not None)
        odd = odd or (ids and x_src is not None and not self.takes_ids)
        if reduce is None or odd or self.needs_messages() or torch.compiler.is_exporting():
            return super().forward(x, self.for_messages(edge_index), edge_type)
        num_src = self.in_channels_l if x_src is None else x_src.size(0)
        num_dst = num_src if x_dst is None else x_dst.size(0)
        adj = adjacency.adjacency_of(edge_index, num_src, num_dst, flow=self.flow)
        kinds: Any = adjacency.stored_values(edge_index) if edge_type is None else edge_type
        on_core.check_entries("edge_type", kinds, "edge", adj.num_given)
        found = relations_of(adj, kinds, self.num_relations)
        sums = self._of_ids if ids else self._of_features
        out = on_core.widened(self._with_root(sums(x_src, found, reduce), x_dst), self.weight)
        return out if self.bias is None else out + self.bias

    def _reduction(self, edge_index: Any) -> Reduction | None:
        return on_core.reduction_of(self, edge_index)

    def _of_features(self, x: Tensor, found: Relations, reduce: Reduction) -> Tensor:
        x = on_core.kept(x) if reduce in ("max", "min") else x
        sums = ops.aggregate(None, x[:, None], found.sources, reduce).squeeze(1)  # [P, F_in]
        weight = self.weight
        if self.num_bases is not None:
            weight = torch.einsum("rb,bio->rio", self.comp, weight)
        matrices = weight.unbind(0)
        parts = [
            _times(part, matrix)
            for part, matrix in zip(sums.split(found.counts), matrices, strict=True)
            if part.size(0)
        ]
        of_pairs = torch.cat(parts or [_times(sums, matrices[0])])  # without edges, of no row
        return ops.aggregate(None, of_pairs[:, None], found.targets).squeeze(1)

    def _of_ids(self, ids: Tensor | None, found: Relations, reduce: Reduction) -> Tensor:
        factor = self.weight.new_ones(len(found.kinds), 1)
        if reduce == "mean":
            factor = found.share.to(factor.dtype)[:, None]
        weight = self.weight if ids is None else self.weight.index_select(1, ids)
        if self.num_bases is None:  # [R * N_src, 1, F_out]
            return ops.aggregate(factor, weight.flatten(0, 1)[:, None], found.by_kind).squeeze(1)
        of_edges = factor * self.comp.index_select(0, found.kinds)  # [E, bases]
        nb = found.adjacency.neighborhood
        return ops.aggregate(of_edges, weight.transpose(0, 1), nb).sum(1)

    def _with_root(self, out: Tensor, x_dst: Tensor | None) -> Tensor:
        if self.root is None:
            return out
        if x_dst is None:
            return out + self.root
        return out + (x_dst @ self.root if x_dst.is_floating_point() else self.root[x_dst])


def _times(x: Tensor, weight: Tensor) -> Tensor:
    if weight.dim() == 2:
        return x @ weight
    return torch.einsum("nbi,bio->nbo", x.view(-1, *weight.shape[:2]), weight).flatten(1)


class RGCNConv(Relational, pyg.RGCNConv):
    """PyG's `RGCNConv` with its sums by `ops`; see `Relational`."""

    def __prepare_scriptable__(self) -> MessagePassing:
        twin: Any = super().__prepare_scriptable__()
        # TorchScript needs this attribute, which only the forward of PyG's layer sets
        vars(twin).setdefault("_use_segment_matmul_heuristic_output", False)
        return twin


class FastRGCNConv(Relational, pyg.FastRGCNConv):
    """`RGCNConv`, for which PyG has a second path; given ids, that one runs.

    It takes the weights of node j, not those of the id that node j is given.
    """

    propagate_type: ClassVar[dict[str, Any]] = {"x": Tensor, "edge_type": OptTensor}
    takes_ids = False

    def _reduction(self, edge_index: Any) -> Reduction:
        return "mean" if self.aggr == "mean" else "sum"  # PyG does not call its `aggr_module`

    @classmethod
    def check_options(cls, layer: MessagePassing) -> None:
        super().check_options(layer)
        if layer.aggr not in ("add", "sum", "mean"):
            raise ValueError(f"aggr: got {layer.aggr!r}, expected 'add', 'sum' or 'mean'")


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
    inlined: ClassVar[on_core.Inlined] = {
        "aggr_module": (SumAggregation,), "k_rel": (HeteroLinear,), "v_rel": (HeteroLinear,),
    }  # fmt: skip
    flows_back = False
    pays_from = 0, 0
    __call__: Any  # a dict

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
    """One neighborhood of all kinds of edges, its sources kind after kind, kept with the edges."""
    adjs = [adjacency_of(e, sizes[kind[0]], sizes[kind[-1]]) for kind, e in edges.items()]
    kept = adjs[0].cached("joined", dict)
    # the adjacencies are kept as well, whose identity would otherwise be given to others
    found = kept.get("found")
    names = (tuple(edges), tuple(sizes.items()))
    same = found is not None and found[0] == names
    if same and all(a is b for a, b in zip(found[1], adjs, strict=True)):
        return found[2]
    first = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    parts, num_src = [], 0
    for adj, kind in zip(adjs, edges, strict=True):
        src, dst = adj.neighborhood.edge_index()
        parts.append(torch.stack([src + num_src, dst + first[kind[-1]]]))
        num_src += adj.neighborhood.num_src
    total = sum(sizes.values())
    nb = Neighborhood.from_edge_index(torch.cat(parts, 1), num_src=num_src, num_dst=total)
    kept["found"] = (names, adjs, nb._seal())
    return nb


class HANConv(on_core.OwnPropagate, pyg.HANConv):
    r"""PyG's `HANConv` with the attention along each kind of edge by `ops.additive_attention`.

    Dropout draws other random numbers than PyG's, with the same probability.

    Source: Wang et al. (2019), eq. (2) to (4).
    """

    flows_back = False
    inlined: ClassVar[on_core.Inlined] = {"aggr_module": (SumAggregation,)}
    pays_from = 0, 0
    __call__: Any  # a dict

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        (x_src, x_dst), (of_source, of_target) = given["x"], given["alpha"]
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0))
        return ops.additive_attention(
            x_src, of_source, of_target, adj.neighborhood, negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        ).flatten(1)  # fmt: skip
