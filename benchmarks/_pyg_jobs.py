"""What PyG's examples train on: graphs of the sizes of theirs, whole, sampled or in batches."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import _pyg_examples as examples
import torch
from ops import random_graph
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader, LinkNeighborLoader, NeighborLoader
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from graphtheory.lab.datasets.graphs import load, load_graphs

FEATURES, CLASSES = 128, 40  # of ogbn-arxiv


@dataclass(frozen=True)
class Job:
    """An example and what it trains on.

    Attributes:
        model: The network, given what it was made for.
        given: The graph or the graphs.
        batches: Of an epoch, drawn anew in each.
        about: Sizes, for the row.
        dtype: Of the loss curves. The gradient of PNA's standard deviation is 1 over a difference
            that is rounded: curves of float32 part there within five steps.
    """

    model: Callable[[Any], examples.Example]
    given: Any
    batches: Callable[[], list[Any] | TorchLoader[Any]]
    about: dict[str, int]
    dtype: torch.dtype = torch.float32


def whole(model: Callable[[Any], examples.Example], graph: Any) -> Job:
    """A job with one step an epoch, on all of the graph."""
    return Job(model, graph, lambda: [graph], {"nodes": graph.num_nodes, "edges": graph.num_edges})


def cora() -> Data:
    """Cora with features normalized as in the examples."""
    return NormalizeFeatures()(load("Cora", os.environ["GRAPHTHEORY_DATA"]))


def labeled(nodes: int, edges: int, features: int = FEATURES, classes: int = CLASSES) -> Data:
    """Random edges, labels by features."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(nodes, features, generator=generator)
    y = (x @ torch.randn(features, classes, generator=generator)).argmax(1)
    train_mask = torch.rand(nodes, generator=generator) < 0.5
    edge_index = random_graph(nodes, edges)
    return Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask, num_classes=classes)


def links(graph: Data, batches: int) -> Job:
    """Batches of 256 edges and as many pairs that are none, with 10 and 10 sampled neighbors."""
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(0))
    loader = LinkNeighborLoader(
        graph, num_neighbors=[10, 10], edge_label_index=graph.edge_index[:, order[: 256 * batches]],
        batch_size=256, shuffle=True, neg_sampling_ratio=1.0,
    )  # fmt: skip
    about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "batches": len(loader)}
    return Job(examples.UnsupervisedSAGE, graph, lambda: loader, about)


def reddit(nodes: int, batches: int, degree: int = 492) -> Job:
    """Reddit's degree, features and classes on fewer nodes; batches of 1,024 nodes."""
    graph = labeled(nodes, nodes * degree, 602, 41)
    loader = NeighborLoader(
        graph, [25, 10], input_nodes=torch.arange(min(nodes, 1024 * batches)), batch_size=1024,
        shuffle=True,
    )  # fmt: skip
    about = {"nodes": nodes, "edges": graph.num_edges, "batches": len(loader)}
    return Job(examples.SampledSAGE, graph, lambda: loader, about)


def batched(model: Callable[[Any], examples.Example], given: Any, graphs: list[Data]) -> Job:
    """A job on batches of 128 graphs."""
    loader = DataLoader(graphs, batch_size=128, shuffle=True)
    about = {"graphs": len(graphs), "edges": sum(g.num_edges for g in graphs)}
    return Job(model, given, lambda: loader, about)


def enzymes() -> Job:
    """ENZYMES, 600 graphs with an attribute and a kind for each node, all of them."""
    graphs = load_graphs("ENZYMES", os.environ["GRAPHTHEORY_DATA"])
    plain = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in graphs]
    facts = Data(x=plain[0].x, num_classes=6)
    return batched(examples.GIN, facts, plain)


def molecules(count: int) -> Job:
    """Trees of 23 atoms with two rings, about as many bonds as in ZINC; 21 atoms, 4 bonds."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randint, generator=generator)
    graphs = []
    for _ in range(count):
        n = int(draw(15, 32, (1,)))
        parent = torch.stack([draw(i, (1,)) for i in range(1, n)]).flatten()
        bonds = torch.cat([torch.stack([torch.arange(1, n), parent]), draw(n, (2, 2))], 1)
        kinds, y = draw(4, (bonds.size(1),)), torch.randn(1, generator=generator)
        edges, kinds = torch.cat([bonds, bonds.flip(0)], 1), torch.cat([kinds, kinds])
        graphs.append(Data(x=draw(21, (n,)), edge_index=edges, edge_attr=kinds, y=y, num_nodes=n))
    return replace(batched(examples.PNA, graphs, graphs), dtype=torch.float64)


def relational(nodes: int, edges: int, relations: int, labeled_nodes: int) -> Data:
    """Ids of nodes and random edges of random relations, four classes."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (nodes,), generator=generator)
    kinds = torch.randint(relations, (edges,), generator=generator)
    mask = torch.rand(nodes, generator=generator) < labeled_nodes / nodes
    return Data(
        num_nodes=nodes, edge_index=random_graph(nodes, edges), edge_type=kinds, y=y,
        train_mask=mask, num_classes=4, num_relations=relations,
    )  # fmt: skip


def hetero(
    nodes: dict[str, int], widths: dict[str, int], edges: dict[tuple[str, str, str], int],
    target: str, classes: int, words: int | None = None,
) -> HeteroData:  # fmt: skip
    """Random edges of several kinds; features are words, `words` of them to a node, or normal."""
    generator, graph = torch.Generator().manual_seed(0), HeteroData()
    for name, count in nodes.items():
        width = widths[name]
        if words is None or width <= words:
            graph[name].x = torch.randn(count, width, generator=generator)
        else:
            found = torch.randint(width, (count, words), generator=generator)
            graph[name].x = torch.zeros(count, width).scatter_(1, found, 1.0)
    for kind, count in edges.items():
        ends = [torch.randint(nodes[t], (count,), generator=generator) for t in kind[::2]]
        graph[kind].edge_index = torch.stack(ends)
    graph[target].y = torch.randint(classes, (nodes[target],), generator=generator)
    graph[target].train_mask = torch.rand(nodes[target], generator=generator) < 0.1
    graph.num_classes = classes
    return graph


def both_ways(edges: dict[tuple[str, str, str], int]) -> dict[tuple[str, str, str], int]:
    """Every kind of edges and, between two kinds of nodes, its reverse."""
    back = {(b, f"rev_{r}", a): count for (a, r, b), count in edges.items() if a != b}
    return edges | back


def shared_by(part: int, counts: dict[Any, int]) -> dict[Any, int]:
    """Each count divided, at least 1."""
    return {name: max(1, count // part) for name, count in counts.items()}


def dblp(part: int = 1) -> Job:
    """The sizes of DBLP, or a part of them."""
    nodes = {"author": 4057, "paper": 14328, "term": 7723, "conference": 20}
    widths = {"author": 334, "paper": 4231, "term": 50, "conference": 1}
    edges = {
        ("author", "to", "paper"): 19645, ("paper", "to", "term"): 85810,
        ("paper", "to", "conference"): 14328,
    }  # fmt: skip
    nodes, edges = shared_by(part, nodes), shared_by(part, both_ways(edges))
    graph = hetero(nodes, widths, edges, "author", 4, words=20)
    return whole(examples.HGT, graph)


def imdb(part: int = 1) -> Job:
    """The sizes of IMDB's paths between movies, or a part of them."""
    edges = {("movie", "metapath_0", "movie"): 85358, ("movie", "metapath_1", "movie"): 17446}
    nodes, edges = shared_by(part, {"movie": 4278}), shared_by(part, edges)
    graph = hetero(nodes, {"movie": 3066}, edges, "movie", 3, words=20)
    return whole(examples.HAN, graph)


def mag(part: int, batches: int) -> Job:
    """A part of the sizes of OGB-MAG; batches of 1,024 papers, 10 and 10 sampled neighbors."""
    sizes = {"paper": 736389, "author": 1134649, "institution": 8740, "field": 59965}
    edges = {
        ("author", "affiliated_with", "institution"): 1043998,
        ("author", "writes", "paper"): 7145660,
        ("paper", "cites", "paper"): 10792672,
        ("paper", "has_topic", "field"): 7505078,
    }
    nodes, edges = shared_by(part, sizes), shared_by(part, both_ways(edges))
    graph = hetero(nodes, dict.fromkeys(nodes, 128), edges, "paper", 349)
    inputs = ("paper", torch.arange(min(nodes["paper"], 1024 * batches)))
    loader = NeighborLoader(graph, [10, 10], input_nodes=inputs, batch_size=1024, shuffle=True)
    about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "batches": len(loader)}
    return Job(examples.HeteroSAGE, graph, lambda: loader, about)


def jobs(nodes: int, edges: int, quick: bool = False) -> dict[str, Callable[[], Job]]:
    """By name what makes a job; those that read files only where GRAPHTHEORY_DATA is set."""
    graph, of_aifb = partial(labeled, nodes, edges), partial(relational, 8285, 58086, 90, 140)
    small = partial(relational, 60, 300, 3, 30)
    kinds = small if quick else of_aifb
    found: dict[str, Callable[[], Job]] = {
        f"{name} on {nodes} nodes": lambda m=model: whole(m, graph())
        for name, model in NODES.items()
    }
    found |= {
        f"graph_sage_unsup.py on {nodes} nodes": lambda: links(graph(), 1 if quick else 8),
        "pna.py": lambda: molecules(8 if quick else 256),
        "rgcn.py, FastRGCNConv": lambda: whole(examples.FastRGCN, kinds()),
        "rgcn.py, RGCNConv": lambda: whole(examples.RGCN, kinds()),
        "reddit.py": lambda: reddit(40, 1, 5) if quick else reddit(50_000, 4),
        "to_hetero_mag.py": lambda: mag(8000, 1) if quick else mag(20, 4),
        "hgt_dblp.py": lambda: dblp(50 if quick else 1),
        "han_imdb.py": lambda: imdb(50 if quick else 1),
    }
    if "GRAPHTHEORY_DATA" in os.environ and not quick:
        found |= {
            f"{name} on Cora": lambda m=model: whole(m, cora()) for name, model in NODES.items()
        }
        found["graph_sage_unsup.py on Cora"] = lambda: links(cora(), 1000)
        found["mutag_gin.py on ENZYMES"] = enzymes
    return {name: job for name, job in found.items() if SAMPLES or not name.startswith(SAMPLED)}


SAMPLED = ("graph_sage_unsup.py", "reddit.py", "to_hetero_mag.py")
SAMPLES = WITH_PYG_LIB or WITH_TORCH_SPARSE  # which PyG's loaders of sampled neighbors need
NODES = {"gcn.py": examples.GCN, "gat.py": examples.GAT, "unimp_arxiv.py": examples.UniMP}


def without_dropout_of_attention(model: torch.nn.Module) -> None:
    """Dropout of attention weights draws other random numbers in either library."""
    for layer in model.modules():
        if isinstance(getattr(layer, "dropout", None), float):
            layer.dropout = 0.0


def mean_loss(job: Job, model: examples.Example, optimizer: torch.optim.Optimizer) -> float:
    """Train for an epoch and return its mean loss."""
    losses: list[Tensor] = []
    for batch in job.batches():
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())
