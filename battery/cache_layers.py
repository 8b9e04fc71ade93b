"""Layers that remember what they made of an argument, and the arguments that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.typing import WITH_TORCH_SPARSE

from battery.cache_arguments import FEW, KINDS, NODES
from graphtheory import Neighborhood, ops
from graphtheory.integrations.flex import flex_attention
from graphtheory.nn import BucketBias, SPDTransformerConv
from graphtheory.nn import GPSConv as OwnGPSConv
from graphtheory.ops.reference import edge_bias
from graphtheory.patterns.importance import column_norms

WIDTH, OUT = 6, 4
_GRAPHS = ("list", "EdgeIndex", "coo", "csr", "csc", "SparseTensor")
_LISTS = ("list", "EdgeIndex")


def _call(layer: Any, x: Any, edges: Any, **more: Any) -> Any:
    return layer(x, edges, **more)


class Kind(NamedTuple):
    """A layer and its arguments.

    Attributes:
        make: The layer, before `accelerate`.
        takes: Of each argument the forms that it may have.
        call: Runs it on features of nodes and the arguments.
    """

    make: Callable[[], nn.Module]
    takes: dict[str, tuple[str, ...]]
    call: Callable[..., Any] = _call

    @property
    def made_here(self) -> dict[str, tuple[str, ...]]:
        """What it takes and this machine can make: a `SparseTensor` needs torch-sparse."""
        without = () if WITH_TORCH_SPARSE else ("SparseTensor",)
        found = {n: tuple(f for f in some if f not in without) for n, some in self.takes.items()}
        return {name: forms for name, forms in found.items() if forms}


def _edges(*forms: str, **more: str) -> dict[str, tuple[str, ...]]:
    return {"edges": forms or _GRAPHS} | {name: (form,) for name, form in more.items()}


def _gin() -> nn.Module:
    return nn.Linear(WIDTH, OUT)


def _pna(**more: Any) -> nn.Module:
    return pyg.PNAConv(
        WIDTH, OUT, ["mean", "max", "std"], ["attenuation"], torch.tensor([0, 3, 2, 1]), **more
    )


_TYPES = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
_METADATA = (["a", "b"], _TYPES)


def _of_types(layer: Any, x: Tensor, **edges: Any) -> Any:
    return layer({"a": x, "b": x.flip(0)}, dict(zip(_TYPES, edges.values(), strict=True)))


def _typed() -> dict[str, tuple[str, ...]]:
    return {"first": ("list", "csr", "SparseTensor"), "second": ("csr",), "third": ("list",)}


def _in_heads(x: Tensor) -> Tensor:
    return x.view(NODES, 2, WIDTH // 2)


def _by_offsets(layer: Any, x: Tensor, offsets: Tensor) -> Tensor:
    q = _in_heads(x)
    return ops.varlen_attention(q, q, q, offsets)


def _by_mask(layer: Any, x: Tensor, mask: Any) -> Tensor:
    q = _in_heads(x).transpose(0, 1)[None]
    return flex_attention(q, q, q, block_mask=mask)


def _turned(layer: Any, x: Tensor, nb: Neighborhood) -> Tensor:
    back = nb.transpose()
    carried = back.weight if back.distance is None else back.distance.float()
    assert carried is not None
    return ops.aggregate(carried[:, None], x[:, None], back)


LAYERS: dict[str, Kind] = {
    "GCNConv": Kind(lambda: pyg.GCNConv(WIDTH, OUT), _edges()),
    "GCNConv, weights": Kind(
        lambda: pyg.GCNConv(WIDTH, OUT), _edges(*_LISTS, edge_weight="edge weights")
    ),
    "GCNConv, no normalization": Kind(
        lambda: pyg.GCNConv(WIDTH, OUT, normalize=False),
        _edges(*_LISTS, edge_weight="edge weights"),
    ),
    "GCNConv of a Neighborhood": Kind(lambda: pyg.GCNConv(WIDTH, OUT), _edges("with weights")),
    "GCNConv, features": Kind(
        lambda: pyg.GCNConv(FEW[1], OUT), {"x": ("few", "SparseFeatures"), "edges": ("wide list",)},
        lambda layer, _, x, edges: layer(x, edges),
    ),
    "SAGEConv, features": Kind(
        lambda: pyg.SAGEConv(FEW[1], OUT), {"x": ("few",), "edges": ("wide list",)},
        lambda layer, _, x, edges: layer(x, edges),
    ),
    "GATConv": Kind(lambda: pyg.GATConv(WIDTH, OUT, 2), _edges()),
    "GATConv, edges": Kind(
        lambda: pyg.GATConv(WIDTH, OUT, 2, edge_dim=3), _edges(*_LISTS, edge_attr="edge features")
    ),
    "GATv2Conv": Kind(lambda: pyg.GATv2Conv(WIDTH, OUT, 2), _edges()),
    "GATv2Conv, edges": Kind(
        lambda: pyg.GATv2Conv(WIDTH, OUT, 2, edge_dim=3), _edges(*_LISTS, edge_attr="edge features")
    ),
    "TransformerConv": Kind(lambda: pyg.TransformerConv(WIDTH, OUT, 2), _edges()),
    "TransformerConv, edges": Kind(
        lambda: pyg.TransformerConv(WIDTH, OUT, 2, edge_dim=3), _edges(edge_attr="edge features")
    ),
    "SPDTransformerConv": Kind(
        lambda: SPDTransformerConv(WIDTH, OUT, 2, num_buckets=5), _edges(distance="hops")
    ),
    "SPDTransformerConv, edges": Kind(
        lambda: SPDTransformerConv(
            WIDTH, OUT, 2, num_buckets=5, edge_dim=3, value_encoding=True
        ),
        _edges(distance="hops", edge_attr="edge features"),
    ),
    "SPDTransformerConv of a Neighborhood": Kind(
        lambda: SPDTransformerConv(WIDTH, OUT, 2, num_buckets=5), _edges("with hops")
    ),
    "SPDTransformerConv without distances": Kind(
        lambda: SPDTransformerConv(WIDTH, OUT, 2, num_buckets=5), _edges()
    ),
    "SAGEConv": Kind(lambda: pyg.SAGEConv(WIDTH, OUT), _edges()),
    "SAGEConv, first rows": Kind(
        lambda: pyg.SAGEConv(WIDTH, OUT), _edges("list of the first")
    ),
    "GINConv": Kind(lambda: pyg.GINConv(_gin()), _edges()),
    "GINEConv": Kind(
        lambda: pyg.GINEConv(_gin(), edge_dim=3), _edges(*_LISTS, edge_attr="edge features")
    ),
    "GraphConv": Kind(lambda: pyg.GraphConv(WIDTH, OUT), _edges()),
    "GraphConv, weights": Kind(
        lambda: pyg.GraphConv(WIDTH, OUT, "max"), _edges(*_LISTS, edge_weight="edge weights")
    ),
    "ChebConv": Kind(
        lambda: pyg.ChebConv(WIDTH, OUT, 3), _edges("list", edge_weight="edge weights")
    ),
    "SGConv": Kind(lambda: pyg.SGConv(WIDTH, OUT, 2), _edges("list", "coo", "csr", "SparseTensor")),
    "APPNP": Kind(lambda: pyg.APPNP(3, 0.1), _edges("list", "coo", "csr", "SparseTensor")),
    "PNAConv": Kind(_pna, _edges(*_LISTS)),
    "PNAConv, edges": Kind(lambda: _pna(edge_dim=3), _edges(*_LISTS, edge_attr="edge features")),
    "RGCNConv": Kind(
        lambda: pyg.RGCNConv(WIDTH, OUT, KINDS, num_bases=2),
        _edges(*_LISTS, "csr", "SparseTensor", edge_type="edge types"),
    ),
    "FastRGCNConv": Kind(
        lambda: pyg.FastRGCNConv(WIDTH, OUT, KINDS), _edges(*_LISTS, edge_type="edge types")
    ),
    "GPSConv": Kind(
        lambda: pyg.GPSConv(WIDTH, pyg.GCNConv(WIDTH, WIDTH), heads=2, norm=None),
        _edges("list", "SparseTensor", batch="batch"),
    ),
    "GPSConv, hops": Kind(
        lambda: OwnGPSConv(WIDTH, None, heads=2, norm=None, bias=BucketBias(5, 2)),
        _edges("list", distance="hops of pairs"),
    ),
    "HGTConv": Kind(lambda: pyg.HGTConv(WIDTH, OUT, _METADATA, heads=2), _typed(), _of_types),
    "HANConv": Kind(lambda: pyg.HANConv(WIDTH, OUT, _METADATA, heads=2), _typed(), _of_types),
    "BucketBias": Kind(
        lambda: BucketBias(5, 2), {"distance": ("hops", "hops of pairs")},
        lambda layer, x, distance: edge_bias(layer(distance)),
    ),
    "varlen_attention": Kind(nn.Identity, {"offsets": ("offsets",)}, _by_offsets),
    "flex_attention": Kind(nn.Identity, {"mask": ("mask",)}, _by_mask),
    "transpose": Kind(nn.Identity, {"nb": ("with weights", "with hops")}, _turned),
    "FastGCN": Kind(
        nn.Identity, {"nb": ("with weights",)}, lambda layer, x, nb: column_norms(nb)
    ),
}  # fmt: skip


# Forms of which nothing is kept: read in each call, or kept by a call for its own gradients alone.
_READ_ANEW = ("edge weights", "edge features", "mask")
# Layers of which PyG's own code normalizes weights in each call, or where no edge is remembered.
_NORMALIZED = ("ChebConv", "SGConv", "APPNP", "GPSConv, hops", "GCNConv of a Neighborhood")
_MATRICES = ("coo", "csr", "csc", "SparseTensor")


def remembers(name: str, argument: str, form: str) -> bool:
    """Whether something that is made of an argument outlives a call for certain."""
    if form in _READ_ANEW or (argument == "edges" and name in _NORMALIZED):
        return False
    return not (form in _MATRICES and name in ("GCNConv", "GPSConv"))


def every_argument() -> Iterator[tuple[str, str, dict[str, str]]]:
    """A layer, the argument to change and the forms of all: each form of each argument once."""
    for name, kind in LAYERS.items():
        first = {argument: forms[0] for argument, forms in kind.takes.items()}
        for argument, forms in kind.takes.items():
            for form in forms:
                yield name, argument, first | {argument: form}
