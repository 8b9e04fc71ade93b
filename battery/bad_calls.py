"""Calls that are right but for one argument, as data: what is called, how it is right, what is bad.

A bad value is a class of exceptions, the argument, and the value that takes the right one's place.
After a slash stands the name that the message has where it is another than the argument's.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn as tnn
from torch_geometric.data import Data

import graphtheory
from graphtheory import Neighborhood, bipartite, causal, cliques, neighbor_lists, nn, ops, star
from graphtheory import patterns as p
from graphtheory import structure as s
from graphtheory.data import transforms
from graphtheory.data.loaders import GraphFolder, NodeSetLoader, PartitionLoader
from graphtheory.graph import Grid, neighborhood_from, windows
from graphtheory.lab import train as t
from graphtheory.lab.bench.search import search
from graphtheory.lab.cli.main import main
from graphtheory.lab.datasets import graphs, own_graphs, splits
from graphtheory.lab.metrics import mass_on, nearest_accuracy
from graphtheory.papers.fusion.contrastive import nt_xent
from graphtheory.vision import nn as vision
from graphtheory.vision.integrations import transformers as hf

T, V, OUT = TypeError, ValueError, IndexError
Bad = tuple[Any, str, Any]
EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
GRAPH = Neighborhood.from_edge_index(EDGES, 4)
X, Y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
QKV = {"query": torch.randn(4, 2, 8), "key": torch.randn(4, 2, 8), "value": torch.randn(4, 2, 8)}
MASK = torch.tensor([True, False, True, False])
DATA = Data(x=X, y=Y, edge_index=EDGES, train_mask=MASK, val_mask=~MASK)
LONG, WIDE, FLAT = torch.randn(5, 2, 8), torch.randn(4, 3, 8), torch.randn(4, 16)
WHOLE = torch.zeros(4, 2, 8, dtype=torch.int64)


class _Linear(tnn.Linear):
    def forward(self, x: Any, neighborhood: Any) -> Any:  # type: ignore[override]
        return super().forward(x)


def _fit(**options: Any) -> Any:
    task = t.NodeTask(_Linear(8, 2), num_classes=2)
    return t.fit(task, t.FullGraph(DATA), **{"epochs": 1, "progress": False} | options)


def _search(**options: Any) -> Any:
    return search("karate", **options)


def _folder(folder: str) -> Any:
    with tempfile.TemporaryDirectory() as home:
        GraphFolder.write(DATA, home)
        return GraphFolder(Path(home) / folder)


def _on_data(transform: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **options: transform(**options)(DATA.clone())


def _on_vit(model: Any = None, what: Any = None) -> Any:
    from transformers import ViTConfig, ViTModel

    size = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = ViTConfig(**size, intermediate_size=8, image_size=16, patch_size=4)
    return hf.apply(model or ViTModel(config), vision.Keep(0.5) if what is None else what)


def _command(**options: str) -> Any:
    """What a command line says on the error stream, raised."""
    words = {"--dataset": "karate", "--models": "mlp", "--epochs": "1"} | options
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as out, redirect_stderr(said), redirect_stdout(said):
        try:
            code = main(["bench", *chain(*words.items()), "--out", out, "-q"])
        except SystemExit as end:
            raise SystemExit(" ".join(said.getvalue().split())) from end
    if code:
        raise RuntimeError(" ".join(said.getvalue().split()))


def _on(name: str) -> Callable[..., Any]:
    """A layer of 8 channels, called with x and edge_index."""
    layer = getattr(nn, name)(8, 4)
    return lambda x, edge_index: layer(x, edge_index)


_HEADED = (("heads", 0), ("heads", -1), ("dropout", 1.5), ("dropout", -0.1))
_CONV: list[Bad] = [
    (V, "x", torch.randn(4, 7)), ((T, V), "x", torch.randn(8)), (T, "x", X.long()), (T, "x", None),
    (T, "x", X.numpy()), (T, "edge_index", EDGES.float()), (T, "edge_index", EDGES.bool()),
    ((V, OUT), "edge_index", EDGES[:, :0].T), (V, "edge_index", EDGES[0]),
    ((V, OUT), "edge_index", EDGES.T), (OUT, "edge_index", EDGES + 1),
    (OUT, "edge_index", EDGES - 1), (OUT, "edge_index", EDGES + 2**40),
    (T, "edge_index", EDGES.tolist()), (T, "edge_index", None),
]  # fmt: skip
_ATTENTIONAL = ("GATConv", "GATv2Conv", "TransformerConv", "SPDTransformerConv")
_CONV_INPUT = {"x": X, "edge_index": EDGES}

CALLS: list[tuple[Callable[..., Any], dict[str, Any], list[Bad]]] = [
    (ops.attention, QKV | {"neighborhood": GRAPH}, [
        (V, "query", FLAT), (V, "query", LONG), (V, "key", LONG), (V, "key", WIDE),
        (T, "key", None),
        (V, "value", LONG), (V, "value", WIDE), (T, "query", WHOLE),
        (T, "value", QKV["value"].double()), (T, "query", QKV["query"].numpy()),
        (T, "neighborhood", EDGES), (V, "bias", torch.randn(4, 2)), (V, "bias", torch.randn(5, 3)),
        (T, "bias", "distance"), (V, "dropout", 1.5), (V, "dropout", -0.1),
        (V, "dropout", float("nan")), (V, "backend", "cuda"), (T, "scale", "big"),
    ]),
    (ops.topk_attention, QKV | {"neighborhood": GRAPH, "k": 2}, [
        (V, "k", 0), (V, "k", -3), (T, "k", 1.5), (V, "key", LONG),
    ]),
    (ops.aggregate, {
        "weights": torch.rand(5, 2), "value": QKV["value"], "neighborhood": GRAPH, "reduce": "sum",
    }, [
        (V, "weights", torch.rand(4, 2)), (V, "weights", torch.rand(5, 3)), (V, "reduce", "median"),
        (V, "value", LONG), (T, "neighborhood", EDGES), (T, "weights", [1.0]),
        (V, "value", X[:, 0]),
    ]),
    (ops.additive_attention, {
        "value": QKV["value"], "src_score": X[:, :2], "dst_score": X[:, :2],
        "neighborhood": GRAPH,
    }, [
        (V, "src_score", X[:, :3]), (V, "dst_score", X[:3, :2]), (V, "dropout", 2.0),
        (V, "value", LONG), (V, "src_score", X[:3, :2]),
    ]),
    (ops.edge_softmax, {"logits": torch.randn(5, 2), "neighborhood": GRAPH}, [
        (V, "logits", torch.randn(4, 2)), (T, "neighborhood", None), (T, "logits", None),
    ]),
    (ops.edge_dot, {"query": QKV["query"], "key": QKV["key"], "neighborhood": GRAPH}, [
        (V, "query", LONG), (V, "key", WIDE),
    ]),
    (Neighborhood.from_edge_index, {"edge_index": EDGES, "num_nodes": 4}, [
        (T, "edge_index", EDGES.float()), (T, "edge_index", EDGES.bool()),
        (V, "edge_index", EDGES[0]), (V, "edge_index", EDGES.T), (OUT, "edge_index", EDGES + 1),
        (OUT, "edge_index", EDGES - 1), (OUT, "edge_index", EDGES + 2**40),
        (T, "edge_index", EDGES.tolist()), (V, "num_nodes", -1), (T, "num_nodes", 4.5),
    ]),
    (Neighborhood, {
        "indptr": torch.tensor([0, 1, 2]), "indices": torch.tensor([0, 1]), "num_src": 2,
    }, [
        (V, "indptr", torch.tensor([0, 2, 1])), (V, "indptr", torch.tensor([0, 1, 3])),
        (T, "indptr", torch.tensor([0.0, 1, 2])), (OUT, "indices", torch.tensor([0, 2])),
        (T, "indices", torch.tensor([0.0, 1])), (V, "weight", torch.ones(3)),
        (OUT, "perm", torch.tensor([0, -1])), (V, "perm", torch.tensor([0])),
        (V, "distance", torch.tensor([1])),
    ]),
    (cliques, {"sizes": [2, 3]}, [(V, "sizes", [-1, 2]), (V, "sizes", [1.5]), (V, "sizes", "2")]),
    (causal, {"sizes": [2, 3]}, [(V, "sizes", [-1])]),
    (star, {"sizes": [2, 3]}, [(V, "sizes", [-1])]),
    (bipartite, {"sizes_dst": [1, 2], "sizes_src": [2, 1]}, [
        (V, "sizes_src", [2]), (V, "sizes_dst", [-1, 2]),
    ]),
    (neighbor_lists, {"sources": torch.tensor([[0, 1], [1, 0]]), "num_src": 2}, [
        (OUT, "sources", torch.tensor([[0, 7]])), (T, "sources", torch.rand(2, 2)),
    ]),
    (neighborhood_from, {"obj": EDGES, "num_nodes": 4}, [(T, "obj", "graph"), (T, "obj", None)]),
    (windows, {"grid": Grid(1, 4, 4), "size": 2}, [(V, "size", 0), (V, "shift", 5)]),
    (p.KHop, {"radius": 1}, [(V, "radius", 0), (V, "radius", -1), ((T, V), "radius", 1.5)]),
    (p.Sample, {"n": 3}, [(V, "n", 0)]),
    (p.TopK, {"k": 3}, [(V, "k", 0), (V, "k", 1.5)]),
    (p.GraphSAGE, {"n": 3}, [(V, "n", 0)]),
    (p.AtDistance, {"z": 1}, [(V, "z", -1)]),
    (p.Window, {"size": 1}, [(V, "size", -1)]),
    (p.Expander, {"degree": 4}, [(V, "degree", 3), (V, "degree", 0)]),
    (p.FastGCN, {"count": 3}, [(V, "count", 0), (V, "share", 0.5)]),
    (p.LADIES, {"share": 0.5}, [(V, "share", 0.0), (V, "share", 1.5)]),
    (p.UniformNodes, {"share": 0.5}, [(V, "share", -0.5)]),
    (p.DilatedHops, {"hops": 4, "step": 2}, [(V, "step", 0), (V, "hops", 0)]),
    (s.shortest_path_distance, {"graph": GRAPH, "cutoff": 3}, [
        (V, "cutoff", 0), (V, "cutoff", 300), (OUT, "pairs", torch.tensor([[0], [9]])),
        (T, "graph", EDGES),
    ]),
    (s.hop_ball, {"graph": GRAPH, "radius": 2}, [(V, "radius", -1)]),
    (s.count_by_distance, {"graph": GRAPH, "pattern": Y, "num_classes": 2}, [
        (V, "pattern", Y[:3]), (V, "num_classes/pattern", 1),
    ]),
    (s.degree_encoding, {"graph": GRAPH}, [(T, "graph", EDGES)]),
    *[(getattr(nn, name), {"in_channels": 8, "out_channels": 4, "heads": 2}, [
        *[(V, arg, value) for arg, value in _HEADED], (V, "out_channels", 0),
        (V, "in_channels", -3),
    ]) for name in _ATTENTIONAL],
    (nn.GCNConv, {"in_channels": 8, "out_channels": 4}, [(V, "out_channels", 0)]),
    *[(_on(name), _CONV_INPUT, _CONV) for name in (*_ATTENTIONAL[:3], "GCNConv")],
    (nn.Attention, {"dim": 8, "heads": 2}, [(V, "heads", 3), (V, "heads", 0), (V, "dropout", 1.5)]),
    (nn.BucketBias, {"num_buckets": 4, "heads": 2}, [(V, "num_buckets", 0), (V, "heads", 0)]),
    (vision.PatchEmbedding, {"dim": 8, "patch_size": 4}, [(V, "patch_size", 0)]),
    (vision.NearestNeighbors, {"k": 3}, [(V, "k", 0), (V, "dilation", 0)]),
    (vision.Keep, {"k": 0.5}, [(V, "k", 0), (V, "k", 1.5)]),
    (nn.LaplacianEncoding, {"k": 2, "dim": 8}, [(V, "k", 0)]),
    (nn.WalkEncoding, {"steps": 2, "dim": 8}, [(V, "steps", 0)]),
    (nn.PathEncoding, {"features": 3, "heads": 2}, [(V, "max_steps", 0)]),
    (nn.GraphReadout, {"reduce": "mean"}, [(V, "reduce", "middle")]),
    (NodeSetLoader, {"data": DATA, "pattern": p.GraphSAGE(2), "num_layers": 2}, [
        (T, "data", EDGES), (T, "pattern", "sage"), (V, "num_layers", 0), (V, "num_layers", 1.5),
        (OUT, "input_nodes", torch.tensor([9])), (V, "input_nodes", torch.tensor([1, 1])),
        (T, "input_nodes", torch.tensor([0.5])), (V, "attributes", ["color"]), (V, "batch_size", 0),
        (V, "rank", 1), (V, "seed", -1),
    ]),
    (PartitionLoader, {"data": DATA, "part": Y}, [(V, "part", Y[:3]), (T, "part", X[:, 0])]),
    (_folder, {"folder": ""}, [(FileNotFoundError, "folder", "nowhere")]),
    (_on_data(transforms.AddDistances), {"cutoff": 3}, [(V, "cutoff", 0), (V, "cutoff", 300)]),
    (_on_data(transforms.AddPaths), {"steps": 3}, [(V, "steps/max_steps", 0)]),
    (s.resistance_bucket, {"resistance": torch.ones(3), "width": 0.5}, [(V, "width", 0.0)]),
    (t.NodeTask, {"model": _Linear(8, 2), "num_classes": 2}, [
        (V, "num_classes", 0), (V, "metric", "charm"), (V, "kind", "ordinal"),
    ]),
    (t.FullGraph, {"data": DATA}, [(V, "seed", -1), (T, "data", EDGES), (T, "pattern", "KHop")]),
    (t.AdamOptions, {"lr": 0.1}, [
        (V, "lr", -1.0), (V, "lr", float("nan")), (V, "weight_decay", -1.0),
    ]),
    (t.Recipe, {"epochs": 2}, [(V, "epochs", 0), (V, "lr", 0.0), (V, "smoothing", 1.5)]),
    (t.Augmentation, {"crop": 1}, [(V, "crop", -1), (V, "erase", 1.5)]),
    (nt_xent, {"first": X, "second": X.flip(0)}, [(V, "second", X[:3]), (V, "temperature", 0.0)]),
    (_fit, {"epochs": 1}, [
        (V, "epochs", 0), (V, "patience", 0), (V, "seed", -1), (V, "resume", True),
    ]),
    (graphtheory.bench, {
        "data": "karate", "models": ("mlp",), "seeds": 1, "epochs": 1, "progress": False,
    }, [
        (V, "seeds", 0), (V, "epochs", 0), (V, "budget", -1), (V, "data/name", "Carate"),
        (T, "data", 7), (V, "models", ()), (V, "models/model", ("gtt",)), (V, "split", "weekly"),
        (V, "options", {"walks": 3}), (V, "kind", "edge"),
    ]),
    (_search, {"models": ()}, [(V, "models/model", ("gtt",)), (V, "budget", 0)]),
    (graphs.load, {"name": "karate"}, [
        (V, "name", "Carate"), (V, "split", "weekly"), (V, "seed", -1),
        (FileNotFoundError, "name/root", "Cora"),
    ]),
    (own_graphs.graph_set, {"graphs": [DATA] * 20}, [
        ((T, V), "graphs", []), (V, "split", (0.8, 0.3, 0.1)), (T, "graphs/graph", [EDGES] * 20),
    ]),
    (splits.stratified, {
        "y": torch.zeros(9), "val": 0.2, "test": 0.2, "generator": torch.Generator(),
    }, [
        (V, "val", 0.9), (V, "test", -0.1),
    ]),
    (nearest_accuracy, {"features": X, "labels": Y}, [(V, "labels", Y[:3])]),
    (mass_on, {
        "weights": torch.rand(5, 1), "neighborhood": GRAPH, "relevant": torch.ones(5).bool(),
    }, [
        (V, "weights", torch.rand(4, 1)), (V, "relevant", torch.ones(4).bool()),
    ]),
    (graphtheory.accelerate, {"model": _Linear(8, 2)}, [(T, "model", "GAT"), (T, "model", None)]),
    (_on_vit, {"what": vision.Keep(0.5)}, [
        (T, "what", "EViT"), (V, "what/after", hf.Reduce({-1: vision.Keep(0.5)})),
        (V, "what/after", {9: vision.Keep(0.5)}), (T, "what/after", hf.Reduce(3)),
        (V, "what/tokens", hf.Semantic(3, base=0)), (V, "what/base", hf.Semantic(4, base=7)),
    ]),
    (_on_vit, {"model": None}, [(T, "model", tnn.Linear(2, 2)), (T, "model", "ViT")]),
    (_command, {"--seeds": "1"}, [
        (SystemExit, "--seeds", "one"), (RuntimeError, "--seeds", "0"),
        (RuntimeError, "--models/models", "gtt"), (RuntimeError, "--split/split", "weekly"),
        (RuntimeError, "--dataset", "Carate"), (RuntimeError, "--epochs", "-1"),
        (RuntimeError, "--set", "walks=3"), (RuntimeError, "--root", "/nowhere"),
        (RuntimeError, "--data/data", "/nowhere.pt"), (RuntimeError, "--sead", "--sead"),
    ]),
]  # fmt: skip

NEEDED: dict[Callable[..., Any], str] = {_on_vit: "transformers"}
"""Calls that need a package which may be missing."""
