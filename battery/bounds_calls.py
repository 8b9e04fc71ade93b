"""Valid calls of the operations and of some layers, whose ids can be changed afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from battery.bounds_builds import placed
from battery.draw import KINDS, Case
from graphtheory import Neighborhood, nn, ops
from graphtheory.ops import projected

_SETS = ("ragged cliques", "ragged blocks", "equal cliques")
EQUAL = [KINDS.index("equal cliques")]
PLAIN = [k for k in range(len(KINDS)) if KINDS[k] not in _SETS]


@dataclass
class Call:
    """A valid call of an operation or a layer.

    Attributes:
        name: Of it.
        neighborhood: Who aggregates from whom.
        run: Gives the output.
        tensors: Differentiable inputs by name.
        ids: Other tensors of ids by name, and how many rows each looks up in.
        kept: Names of ids that the backward pass reads.
    """

    name: str
    neighborhood: Neighborhood
    run: Callable[[], Any]
    tensors: dict[str, Tensor]
    ids: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    kept: tuple[str, ...] = ("indptr", "indices", "t_indptr", "targets", "perm")

    def value(self) -> Tensor:
        """The sum of all outputs, as a number to go back from."""
        out = self.run()
        first, more = out if isinstance(out, tuple) else (out, ())
        return first.sum() + sum(one.sum() for one in more)


def case_of(number: int, kinds: list[int], rng: np.random.Generator) -> Case:
    """A case of one of these kinds."""
    at = kinds[int(rng.integers(len(kinds)))]
    return Case.draw(at + len(KINDS) * int(rng.integers(1, 1000)), number)


def _neighborhood(nb: Neighborhood, build: str, rng: np.random.Generator) -> Neighborhood:
    """The same without sets, in tensors of its own."""
    indptr, indices = placed([nb.indptr, nb.indices], build, rng)
    perm = torch.arange(nb.num_edges) if nb.perm is None else nb.perm
    made = Neighborhood(
        indptr, indices, nb.num_src, perm=placed(perm, build, rng), validate=False
    )  # fmt: skip
    turned = nb._turned()
    made._adopt_transpose(*placed([turned.indptr, turned.indices, turned.perm], build, rng))
    return made


class Drawn:
    """Tensors for one call, made as they are asked for."""

    def __init__(self, number: int, build: str, kinds: list[int], rng: np.random.Generator) -> None:
        self.rng, self.build, self.case = rng, build, case_of(number, kinds, rng)
        self.nb = self.case.neighborhood
        if kinds is PLAIN:
            self.nb = _neighborhood(self.nb, build, rng)
        self.heads, self.dim = int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 3, 5, 8, 17]))
        self.dtype = (torch.float32, torch.float64)[int(rng.random() < 0.3)]
        self.tensors: dict[str, Tensor] = {}
        self.ids: dict[str, tuple[Tensor, int]] = {}

    def make(self, name: str, *shape: int) -> Tensor:
        """A leaf tensor of normal numbers, kept under its name."""
        made = placed(self.case.normal(*shape).to(self.dtype), self.build, self.rng)
        self.tensors[name] = made.requires_grad_()
        return self.tensors[name]

    def on(self, name: str, side: str) -> Tensor:
        """A leaf with vectors of nodes of a side."""
        return self.make(name, getattr(self.nb, side), self.heads, self.dim)

    def look(self, name: str, rows: int, dtype: torch.dtype = torch.uint8) -> Tensor:
        """Row numbers of a table, one for each edge."""
        drawn = torch.from_numpy(self.rng.integers(0, rows, self.nb.num_edges)).to(dtype)
        self.ids[name] = (placed(drawn, self.build, self.rng), rows)
        return self.ids[name][0]

    def nodes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all nodes."""
        sides = (("query", "num_dst"), ("key", "num_src"), ("value", "num_src"))
        query, key, value = (self.on(*one) for one in sides)
        return query, key, value

    def bias(self) -> Any:
        """None, by edge, or by bucket."""
        kind = int(self.rng.integers(3))
        if kind == 0:
            return None
        if kind == 1:
            return self.make("bias", self.nb.num_edges, self.heads)
        return ops.BucketedBias(self.look("bucket", 5), self.make("table", 5, self.heads))

    def features(self, rows: int | None = None) -> Any:
        """Of edges, or with a table of some rows."""
        shape = (self.nb.num_edges if rows is None else rows, 3)
        row = None if rows is None else self.look("row", rows, torch.int64)
        name = "features" if rows is None else "rows"
        query = None
        if self.rng.random() < 0.5:
            query = self.make(f"query of {name}", self.nb.num_dst, self.heads, 3)
        return ops.EdgeFeatures(self.make(name, *shape), query, row)

    def call(self, name: str, run: Callable[[], Any], **more: Any) -> Call:
        """The call on what was drawn so far."""
        return Call(name, self.nb, run, self.tensors, self.ids, **more)


_NUMBA = "numba_csr"


def _attention(d: Drawn) -> Call:
    tensors, bias = d.nodes(), d.bias()
    dropout = 0.3 * float(d.rng.integers(2))
    return d.call("attention", lambda: ops.attention(
        *tensors, d.nb, bias=bias, dropout=dropout, backend=_NUMBA
    ))  # fmt: skip


def _edge_attention(d: Drawn) -> Call:
    tensors, bias, kind = d.nodes(), d.bias(), int(d.rng.integers(3))
    edges = [d.features()] if kind != 1 else []
    edges += [d.features(4)] if kind != 0 else []
    return d.call("attention with edges", lambda: ops.attention(
        *tensors, d.nb, bias=bias, edges=edges, backend=_NUMBA
    ))  # fmt: skip


def _topk(d: Drawn) -> Call:
    tensors, bias = d.nodes(), d.bias()
    return d.call("topk_attention", lambda: ops.topk_attention(
        *tensors, d.nb, 2, bias=bias, backend=_NUMBA
    ))  # fmt: skip


def blocks(d: Drawn) -> Call:
    """The nearest on equal complete sets, whose loops read no ids."""
    d.dtype, d.dim = torch.float32, min(d.dim, 8)
    tensors, bias = d.nodes(), d.bias()
    k = int(d.rng.integers(1, 4))
    return d.call("topk_attention on blocks", lambda: ops.topk_attention(
        *tensors, d.nb, k, bias=bias, backend="blocks"
    ), kept=())  # fmt: skip


def _additive(d: Drawn) -> Call:
    value, sent = d.on("value", "num_src"), d.make("sent", d.nb.num_src, d.heads)
    received = d.make("received", d.nb.num_dst, d.heads) if d.rng.random() < 0.7 else None
    edge = d.make("edge", d.nb.num_edges, d.heads) if d.rng.random() < 0.5 else None
    return d.call("additive_attention", lambda: ops.additive_attention(
        value, sent, received, d.nb, edge=edge, backend=_NUMBA
    ))  # fmt: skip


def _score(d: Drawn) -> Call:
    source, target = d.on("source", "num_src"), d.on("target", "num_dst")
    att, more = d.make("att", d.heads, d.dim), {}
    if d.rng.random() < 0.5:
        more = {
            "edge_features": d.make("features", d.nb.num_edges, 3),
            "edge_matrix": d.make("matrix", d.heads, 3, d.dim),
        }
    return d.call("additive_score", lambda: ops.additive_score(
        source, target, att, d.nb, backend=_NUMBA, **more
    ))  # fmt: skip


def _relu(d: Drawn) -> Call:
    value, matrix = d.on("value", "num_src"), None
    if d.rng.random() < 0.6:
        features = d.make("features", d.nb.num_edges, 3)
        matrix = d.make("matrix", d.heads, 3, d.dim)
    else:
        features = d.make("features", d.nb.num_edges, d.heads, d.dim)
    given = bool(d.rng.integers(2)) and d.case.kind != "no nodes"
    if given:
        d.ids["order"] = (d.nb.perm, d.nb.num_edges)
    kept = ("indptr", "indices", "t_indptr") if matrix is None else Call.kept
    name = "relu_sum" if matrix is None else "relu_sum with a matrix"
    return d.call(name, lambda: ops.relu_sum(
        value, features, d.nb, edge_matrix=matrix, given_order=given, backend=_NUMBA
    ), kept=kept)  # fmt: skip


def _gated(d: Drawn) -> Call:
    value, asked = d.on("value", "num_src"), int(d.rng.integers(1, 8))
    sizes = {"source": d.nb.num_src, "target": d.nb.num_dst, "edge": d.nb.num_edges}
    given = [name for bit, name in enumerate(sizes) if asked >> bit & 1]
    terms = {name: d.make(name, sizes[name], d.dim) for name in given}
    return d.call("gated_sum", lambda: ops.gated_sum(value, d.nb, backend=_NUMBA, **terms))


def _projected(d: Drawn) -> Call:
    width = d.heads * d.dim
    x_src, x_dst = d.make("x_src", d.nb.num_src, 4), d.make("x_dst", d.nb.num_dst, 6)
    maps = [
        (d.make(f"map {k}", width, inner), d.make(f"shift {k}", width))
        for k, inner in enumerate((6, 4, 4))
    ]
    matrix, bias = d.make("matrix", d.heads, 3, d.dim), d.bias()
    features = d.make("features", d.nb.num_edges, 3)
    order = d.nb.perm if d.rng.random() < 0.5 and d.nb.num_edges else None
    if order is not None:
        d.ids["order"] = (order, d.nb.num_edges)
    return d.call("projected attention", lambda: projected.attention(
        x_src, x_dst, maps, matrix, features, d.nb, order, bias, 0.5, 0.0, None
    ))  # fmt: skip


def _dot(d: Drawn) -> Call:
    query, key, _ = d.nodes()
    return d.call("edge_dot", lambda: ops.edge_dot(query, key, d.nb, backend=_NUMBA))


def _softmax(d: Drawn) -> Call:
    logits = d.make("logits", d.nb.num_edges, d.heads)
    run = partial(ops.edge_softmax, logits, d.nb, backend=_NUMBA)
    return d.call("edge_softmax", lambda: run().square(), kept=("indptr",))


def _aggregate(d: Drawn) -> Call:
    weights, value = d.make("weights", d.nb.num_edges, d.heads), d.on("value", "num_src")
    reduce: Any = ("sum", "mean", "max", "min")[int(d.rng.integers(4))]
    run = partial(ops.aggregate, weights, value, d.nb, reduce, backend=_NUMBA)
    return d.call(f"aggregate, {reduce}", run)


_LAYERS = {"GATConv": {"heads": 2}, "GATv2Conv": {"heads": 2}, "TransformerConv": {}, "GCNConv": {}}


def _layer(d: Drawn) -> Call:
    name = list(_LAYERS)[int(d.rng.integers(len(_LAYERS)))]
    wide = (4, 4) if name in ("GATv2Conv", "TransformerConv") else 4
    layer = getattr(nn, name)(wide, 3, **_LAYERS[name]).to(d.dtype)
    d.nb = d.nb if d.nb.num_src == d.nb.num_dst else _neighborhood(square(d.case), d.build, d.rng)
    x = d.make("x", d.nb.num_src, 4)
    return d.call(f"nn.{name}", lambda: layer(x, d.nb), kept=())


def square(case: Case) -> Neighborhood:
    """A graph with the edges of a case."""
    nodes = max(case.edges.num_src, case.edges.num_dst)
    return Neighborhood.from_edge_index(case.neighborhood.edge_index(), num_nodes=nodes)


CALLS: tuple[Callable[[Drawn], Call], ...] = (
    _attention, _edge_attention, _topk, blocks, _additive, _score, _relu, _gated, _projected, _dot,
    _softmax, _aggregate, _layer,
)  # fmt: skip
