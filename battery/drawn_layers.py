"""Layers of PyG with drawn options, and what each may be called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import nn

Rng = np.random.Generator
Options = dict[str, Any]

WIDTH, OUT, EDGE, RELATIONS = 6, 4, 3, 3
KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
METADATA = (["a", "b"], KINDS)
_AGGREGATORS = ["sum", "mean", "min", "max", "var", "std"]
_SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


def one(rng: Rng, *values: Any) -> Any:
    """Draw one of the values, each equally likely."""
    return values[int(rng.integers(len(values)))]


def some(rng: Rng, values: list[Any]) -> list[Any]:
    """At least one of them, in their order."""
    kept = rng.random(len(values)) < 0.5
    kept[rng.integers(len(values))] = True
    return [value for value, keep in zip(values, kept, strict=True) if keep]


def _flow(rng: Rng) -> Options:
    return {"flow": "target_to_source"} if rng.random() < 0.15 else {}


def _width(rng: Rng) -> Any:
    return one(rng, WIDTH, WIDTH, (WIDTH, WIDTH))


def _attention(rng: Rng) -> Options:
    options = {"heads": one(rng, 1, 2), "concat": one(rng, True, True, False)}
    options |= {"edge_dim": one(rng, None, EDGE, 1), "bias": one(rng, True, False)}
    return options | _flow(rng)


def _gat(rng: Rng) -> Options:
    fill = one(rng, "mean", 1.0, "add", "max")
    more = {"add_self_loops": one(rng, True, False), "residual": one(rng, True, False)}
    return _attention(rng) | {"fill_value": fill} | more


def _network(rng: Rng) -> nn.Module:
    linear = nn.Linear(WIDTH, OUT)
    return one(rng, linear, nn.Sequential(linear, nn.ReLU(), nn.Linear(OUT, OUT)))


def _relations(rng: Rng) -> Options:
    how: Options = one(rng, {}, {"num_bases": 2}, {"num_blocks": 2})
    return (
        how | {"aggr": one(rng, "mean", "add"), "root_weight": one(rng, True, False)} | _flow(rng)
    )


def _gps(rng: Rng) -> nn.Module:
    conv = one(rng, pyg.GCNConv, pyg.SAGEConv, pyg.GATConv)(WIDTH, WIDTH)
    norm = one(rng, None, "layer_norm", "batch_norm")
    return pyg.GPSConv(WIDTH, one(rng, conv, conv, None), heads=one(rng, 1, 2), norm=norm)


def _pna(rng: Rng) -> nn.Module:
    degrees, edge_dim = torch.tensor([1, 3, 2, 1]), one(rng, None, EDGE)
    return pyg.PNAConv(
        WIDTH, OUT, some(rng, _AGGREGATORS), some(rng, _SCALERS), degrees, edge_dim=edge_dim,
        towers=one(rng, 1, 2), divide_input=one(rng, True, False), post_layers=one(rng, 1, 2),
        **_flow(rng),
    )  # fmt: skip


def _gcn(rng: Rng) -> nn.Module:
    normalize = bool(rng.random() < 0.7)
    return pyg.GCNConv(
        WIDTH, OUT, improved=one(rng, True, False), normalize=normalize,
        add_self_loops=one(rng, True, False) if normalize else False, **_flow(rng),
    )  # fmt: skip


LAYERS: dict[str, Callable[[Rng], nn.Module]] = {
    "TransformerConv": lambda rng: pyg.TransformerConv(
        _width(rng), OUT, beta=one(rng, True, False), root_weight=one(rng, True, False),
        **_attention(rng),
    ),
    "GATConv": lambda rng: pyg.GATConv(_width(rng), OUT, **_gat(rng)),
    "GATv2Conv": lambda rng: pyg.GATv2Conv(
        _width(rng), OUT, share_weights=one(rng, True, False), **_gat(rng)
    ),
    "GCNConv": _gcn,
    "GPSConv": _gps,
    "SAGEConv": lambda rng: pyg.SAGEConv(
        _width(rng), OUT, one(rng, "sum", "mean", "max", "min"), normalize=one(rng, True, False),
        root_weight=one(rng, True, False), project=one(rng, True, False, False), **_flow(rng),
    ),
    "GINConv": lambda rng: pyg.GINConv(
        _network(rng), train_eps=one(rng, True, False), **_flow(rng)
    ),
    "GINEConv": lambda rng: pyg.GINEConv(
        _network(rng), edge_dim=one(rng, None, EDGE), aggr=one(rng, "add", "mean", "max"),
        **_flow(rng),
    ),
    "GraphConv": lambda rng: pyg.GraphConv(
        _width(rng), OUT, one(rng, "add", "mean", "max"), **_flow(rng)
    ),
    "ChebConv": lambda rng: pyg.ChebConv(
        WIDTH, OUT, one(rng, 1, 2, 3), normalization=one(rng, "sym", "rw", None), **_flow(rng)
    ),
    "SGConv": lambda rng: pyg.SGConv(
        WIDTH, OUT, one(rng, 1, 2), add_self_loops=one(rng, True, False), **_flow(rng)
    ),
    "APPNP": lambda rng: pyg.APPNP(
        one(rng, 1, 2), 0.1, normalize=one(rng, True, True, False), **_flow(rng)
    ),
    "PNAConv": _pna,
    "RGCNConv": lambda rng: pyg.RGCNConv(_width(rng), OUT, RELATIONS, **_relations(rng)),
    "FastRGCNConv": lambda rng: pyg.FastRGCNConv(_width(rng), OUT, RELATIONS, **_relations(rng)),
    "HGTConv": lambda rng: pyg.HGTConv(WIDTH, OUT, METADATA, heads=one(rng, 1, 2)),
    "HANConv": lambda rng: pyg.HANConv(WIDTH, OUT, METADATA, heads=one(rng, 1, 2)),
}  # fmt: skip
BY_KIND = ("HGTConv", "HANConv")
WEIGHTED = ("GCNConv", "GraphConv", "ChebConv", "SGConv", "APPNP")
WITH_FEATURES = ("TransformerConv", "GATConv", "GATv2Conv", "GINEConv", "PNAConv")
WITH_TYPES = ("RGCNConv", "FastRGCNConv")


def draw_layer(name: str, rng: Rng) -> nn.Module:
    """A layer with drawn options, whose parameters are all other than 0."""
    torch.manual_seed(int(rng.integers(2**31)))
    layer = LAYERS[name](rng)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.5)
    return layer
