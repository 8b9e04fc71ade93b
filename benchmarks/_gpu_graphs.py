"""What `gpu_models.py` trains and asks on graphs, beside the same models on PyG's layers."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from _gpu import (
    CURVE,
    Job,
    Step,
    Where,
    compared,
    replayed,
    same_losses,
    timed,
    trained_alike,
    trainer,
)
from _graphs import GRAPHS, power_law
from _pyg_jobs import NODES, whole
from distances import CUTOFF, adjacency, by_scipy, pubmed
from edge_features import BESIDE, Layer, assert_close, step_of
from end_to_end import losses
from end_to_end import trainer as example_trainer
from memory import Library
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import softmax

from graphtheory import Neighborhood, accelerate
from graphtheory.lab.bench.rows import Row
from graphtheory.models import GraphTransformer, SampledGCN, StackOptions
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import (
    AddSelf,
    Compose,
    FastGCN,
    KHop,
    Pattern,
    SymmetricNormalize,
    per_layer,
)
from graphtheory.structure import shortest_path_distance

OURS = "graphtheory"
WIDTHS = {"pubmed": (500, 3), "arxiv": (128, 40)}  # features, classes
SAMPLED = Compose(AddSelf(), SymmetricNormalize(), FastGCN(share=0.25))
PAIRS = 200_000


@dataclass(frozen=True)
class Task:
    """A graph with random features, of whose nodes half are labeled for training.

    Args:
        name: What it is.
        graph: On the CPU.
        data: On the device.
    """

    name: str
    graph: Neighborhood
    data: Data

    @property
    def about(self) -> dict[str, Any]:
        return {"graph": self.name, "nodes": self.graph.num_dst, "edges": self.graph.num_edges}

    def loss(self, scores: Tensor) -> Tensor:
        chosen = self.data.train_nodes  # a mask would make the host wait for their number
        return cross_entropy(scores[chosen], self.data.y[chosen])


def graph_of(name: str, tiny: bool) -> tuple[Neighborhood, str]:
    """The topology, and what it is."""
    if tiny:
        return power_law(60, 240, 0.4), f"{name}: tiny"
    if name == "pubmed":
        root = os.environ.get("GRAPHTHEORY_DATA")
        return pubmed(root and Path(root))
    return GRAPHS[name](), "power law of ogbn-arxiv's size"


@lru_cache
def task_of(name: str, where: Where) -> Task:
    """The same numbers every time."""
    graph, said = graph_of(name, where.tiny)
    draw = torch.Generator().manual_seed(2)
    features, classes = (8, 3) if where.tiny else WIDTHS[name]
    x = torch.randn(graph.num_dst, features, generator=draw)
    y = (x @ torch.randn(features, classes, generator=draw)).argmax(1)
    mask = torch.rand(len(x), generator=draw) < 0.5
    chosen = {"train_mask": mask, "train_nodes": mask.nonzero()[:, 0]}
    data = Data(x=x, y=y, **chosen, edge_index=graph.edge_index(), num_classes=classes)
    return Task(said, graph, data.to(where.device))


class SPDOnPyG(pyg.TransformerConv):
    """PyG's layer, to whose logits a number for each distance is added."""

    def __init__(self, layer: SPDTransformerConv) -> None:
        sizes = (layer.in_channels, layer.out_channels, layer.heads)
        super().__init__(*sizes, concat=layer.concat, root_weight=layer.lin_skip is not None)
        own = {k: t for k, t in layer.state_dict().items() if not k.startswith("bucket_bias")}
        self.load_state_dict(own)
        self.table = nn.Parameter(layer.bucket_bias.table.detach().clone())  # type: ignore[union-attr]

    def forward(self, x: Tensor, given: tuple[Tensor, Tensor]) -> Tensor:
        edges, bucket = given
        # Not `self.table[bucket]`, whose gradient takes a GPU 14 times as long as all the rest.
        return super().forward(x, edges, edge_attr=embedding(bucket, self.table))

    def message(
        self, query_i: Tensor, key_j: Tensor, value_j: Tensor, edge_attr: Tensor, index: Tensor,
        ptr: Tensor | None, size_i: int | None,
    ) -> Tensor:  # fmt: skip
        logits = (query_i * key_j).sum(-1) / math.sqrt(self.out_channels) + edge_attr
        return value_j * softmax(logits, index, ptr, size_i)[:, :, None]


class SampledOnPyG(nn.Module):
    """The network `SampledGCN` made of layers `GCNConv` of PyG."""

    def __init__(self, model: SampledGCN) -> None:
        super().__init__()
        self.convs = nn.ModuleList()
        for weight, bias in ((model.W, model.B1), (model.V, model.B2), (model.C, None)):
            conv = pyg.GCNConv(*weight.shape, bias=bias is not None, normalize=False)
            conv.lin.weight.data = weight.detach().T.clone()
            if bias is not None:
                conv.bias.data = bias.detach().clone()
            self.convs.append(conv)

    def forward(self, x: Tensor, samples: list[tuple[Tensor, Tensor]]) -> Tensor:
        for i, (conv, (edges, weight)) in enumerate(zip(self.convs, samples, strict=True)):
            x = conv(x.relu() if i else x, edges, weight)
        return x


def spd_on_pyg(model: GraphTransformer) -> GraphTransformer:
    """A copy whose layers are those of PyG."""
    model = copy.deepcopy(model)
    for block in model.body.blocks:
        block.layer = SPDOnPyG(block.layer).to(block.norm.weight.device)
    return model


def rivals(
    task: Task, ours: nn.Module, theirs: nn.Module, given: Any, edges: Any, compiling: bool = False,
    to_record: bool = False,
) -> dict[str, Callable[[], Step]]:  # fmt: skip
    """What makes a training step of ours and of PyG's, eager, compiled, or for a CUDA graph."""

    def make(model: nn.Module, call: Callable[..., Tensor], seen: Any) -> Step:
        adam = torch.optim.Adam(model.parameters(), lr=0.01, capturable=to_record)
        return trainer(model, lambda: task.loss(call(task.data.x, seen)), adam)

    def compiled() -> Step:
        torch._dynamo.reset()
        model = copy.deepcopy(theirs)
        return make(model, torch.compile(model), edges)

    name, rival = (
        ("PyG, compiled", compiled) if compiling else ("PyG", lambda: make(theirs, theirs, edges))
    )
    return {OURS: lambda: make(ours, ours, given), name: rival}


def transformer(
    name: str, pattern: Pattern, what: str, where: Where, compiling: bool = False
) -> Iterator[Row]:
    """The graph transformer with distance encoding over T^n, which exists before."""
    task = task_of(name, where)
    seen = pattern(task.graph).to(where.device)
    torch.manual_seed(0)
    width, depth = (8, 2) if where.tiny else (128, 4)
    sizes = (task.data.num_features, width, task.data.num_classes, depth)
    model = GraphTransformer(*sizes, heads=4, pattern=pattern, options=StackOptions(0.0)).to(
        where.device
    )
    distance = (seen.indices != seen.targets()) if seen.distance is None else seen.distance
    edges = seen.edge_index(), distance.long().clamp(max=19)
    theirs = spd_on_pyg(model).body
    bodies = model.body, theirs
    # Copies, for weights that have got gradients are tied to a stream.
    again = copy.deepcopy(bodies) if name == "pubmed" and not compiling else None
    makers = rivals(task, *bodies, seen, edges, compiling)
    about = task.about | {"pairs": seen.num_edges, "width": width, "depth": depth, "heads": 4}
    yield from trained_alike(what, makers, where, **about)
    if again is not None:
        recordable = rivals(task, *again, seen, edges, to_record=True)
        yield from replayed(what, recordable, where, **about)


def gat(name: str, where: Where, compiling: bool = False) -> list[Row]:
    """PyG's GAT, as it is and on the core."""
    task = task_of(name, where)
    torch.manual_seed(0)
    width, depth = (8, 2) if where.tiny else (256, 3)
    sizes = (task.data.num_features, width, depth, task.data.num_classes)
    theirs = pyg.models.GAT(*sizes, heads=4).to(where.device)
    ours, edges = copy.deepcopy(theirs), task.data.edge_index
    report = accelerate(ours)
    assert report.swapped and not report.kept, report
    about = task.about | {"width": width, "depth": depth, "heads": 4}
    makers = rivals(task, ours, theirs, edges, edges, compiling)
    return trained_alike(f"epoch of GAT on {name}", makers, where, **about)


def sampled(name: str, where: Where, compiling: bool = False) -> list[Row]:
    """The sampled GCN on one draw of three layers, and what a draw takes on the device."""
    task = task_of(name, where)
    layers = per_layer(SAMPLED, task.graph, 3, generator=torch.Generator().manual_seed(0))
    layers = [layer.to(where.device) for layer in layers]
    width = 8 if where.tiny else 128
    sizes = (task.data.num_features, width, task.data.num_classes)
    ours = SampledGCN(*sizes, generator=torch.Generator().manual_seed(0)).to(where.device)
    edges = [(layer.edge_index(), layer.weight) for layer in layers]
    makers = rivals(task, ours, SampledOnPyG(ours).to(where.device), layers, edges, compiling)
    about = task.about | {"pairs": sum(layer.num_edges for layer in layers), "width": width}
    what = f"epoch of sampled GCN on {name}"
    return trained_alike(what, makers, where, **about)


def drawing(name: str, where: Where) -> list[Row]:
    """What a draw of three layers takes on the device."""
    task = task_of(name, where)
    source = torch.Generator(where.device).manual_seed(0)
    draw = partial(per_layer, SAMPLED, task.graph.to(where.device), 3, generator=source)
    what = f"sampled GCN on {name}"
    return timed(what, {"drawing three layers": draw}, where, **task.about)[1]


def with_edges(name: Layer, what: str, where: Where) -> Iterator[Row]:
    """A layer with features of edges, forward and backward, beside PyG's."""
    sizes = {"nodes": 20_000, "edges": 400_000, "channels": 32, "heads": 4, "head_dim": 32}
    if where.tiny:
        sizes |= {"nodes": 30, "edges": 90}
    sizes["edge_dim"] = 16
    makers = {
        lib: partial(step_of, layer, *sizes.values(), device=where.device)
        for lib, layer in ((OURS, name), ("PyG", BESIDE[name]))
    }
    steps = {lib: make() for lib, make in makers.items()}
    assert_close(name, steps[OURS](), steps["PyG"]())
    yield from compared(what, steps, where, **sizes)
    yield from replayed(what, makers, where, **sizes)


def graphs(where: Where) -> Iterator[Job]:
    """Training epochs; those that a target is about come first."""
    near, ball = Compose(KHop(1), AddSelf()), Compose(KHop(2), AddSelf())
    for name in ("arxiv", "pubmed"):
        what = f"epoch of GT with SPD on {name}"
        yield what, partial(transformer, name, near, what, where)
    for name in BESIDE:
        what = f"{name} with features of edges"
        yield what, partial(with_edges, name, what, where)
    for name in ("arxiv", "pubmed"):
        yield f"GAT on {name}", partial(gat, name, where)
        yield f"sampled GCN on {name}", partial(sampled, name, where)
        yield f"drawing for sampled GCN on {name}", partial(drawing, name, where)
    what = "epoch of GT with SPD on pubmed, two hops"
    yield what, partial(transformer, "pubmed", ball, what, where)
    if where.device == "cuda":  # last, since to compile takes a minute
        for name in ("arxiv", "pubmed"):
            what = f"epoch of GT with SPD on {name}"
            yield f"{what}, beside compiled", partial(transformer, name, near, what, where, True)
            yield f"GAT on {name}, beside compiled", partial(gat, name, where, True)
            yield f"sampled GCN on {name}, beside compiled", partial(sampled, name, where, True)


def example(name: str, where: Where) -> list[Row]:
    """A model of PyG's examples, before and after `graphtheory.accelerate`."""
    task = task_of("arxiv", where)
    what = f"epoch of {name} on arxiv"
    job = whole(lambda graph: NODES[name](graph).to(where.device), task.data)
    libraries = sorted(get_args(Library), key="graphtheory".__ne__)  # ours first
    found = {lib: losses(job, lib, CURVE).tolist() for lib in libraries}
    rows = same_losses(f"{what}, no dropout of attention", found, **task.about)
    steps = {lib: example_trainer(job, lib) for lib in libraries}
    return rows + compared(what, steps, where, **task.about)


def accelerated(where: Where) -> Iterator[Job]:
    """A job for every example model of PyG."""
    for name in NODES:
        yield name, partial(example, name, where)


def all_pairs(where: Where) -> list[Row]:
    """Every distance of PubMed's topology, into the memory of the device."""
    graph, name = graph_of("pubmed", where.tiny)
    few = np.arange(0, graph.num_dst, max(1, graph.num_dst // 50))
    found = shortest_path_distance(graph, cutoff=CUTOFF)
    assert np.array_equal(found.numpy()[:, few], by_scipy(adjacency(graph), few)), "not scipy's"
    return _distances("all pairs", name, graph, {}, found, where)


def some_pairs(where: Where) -> list[Row]:
    """Distances of pairs drawn from the arxiv-sized graph."""
    graph, name = graph_of("arxiv", where.tiny)
    count, draw = 500 if where.tiny else PAIRS, torch.Generator().manual_seed(0)
    ids = torch.randint(graph.num_dst, (2, count), generator=draw)
    ids[0, :64] = ids[0, 0]
    found = shortest_path_distance(graph, cutoff=CUTOFF, pairs=ids)
    column = by_scipy(adjacency(graph), ids[0, :1].numpy())[:, 0]
    assert np.array_equal(found[:64].numpy(), column[ids[1, :64].numpy()]), "not scipy's"
    return _distances("sampled pairs", name, graph, {"pairs": ids}, found, where)


def _distances(
    what: str, name: str, graph: Neighborhood, asked: dict[str, Tensor], found: Tensor, where: Where
) -> list[Row]:
    """Rows of a graph on the device, whose search runs on the CPU, and of the transfer alone."""
    there = graph.to(where.device)
    options: dict[str, Any] = {key: ids.to(where.device) for key, ids in asked.items()}
    works: dict[str, Step] = {
        OURS: partial(shortest_path_distance, there, cutoff=CUTOFF, **options),
        "transfer of the distances alone": lambda: found.to(where.device, copy=True),
    }
    about = {"graph": name, "nodes": graph.num_dst, "edges": graph.num_edges, "cutoff": CUTOFF}
    about |= {"distances": found.numel(), "path": "CPU and transfer: no kernel for a GPU"}
    times, rows = timed(f"SPD of {what}", works, where, **about)
    rate = [1e3 * found.numel() / t for t in times[OURS]]
    return [*rows, Row.of(f"SPD of {what}: distances a second", rate, "1/s", **about)]


def distances(where: Where) -> Iterator[Job]:
    """All pairs of PubMed, some of the arxiv-sized graph."""
    yield "sampled pairs", partial(some_pairs, where)
    yield "all pairs", partial(all_pairs, where)
