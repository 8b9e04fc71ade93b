"""Mini-batch training with this library's loader and samplers beside PyG's NeighborLoader.

    GRAPHTHEORY_DATA=<folder> python benchmarks/loaders.py
    python benchmarks/loaders.py --graphs arxiv --out benchmarks/results/loaders.csv

Every way trains a GCN of three layers, or three layers of attention (`gt`: with distance encoding,
beside PyG's TransformerConv), on the same seeds in batches of the same size: loading, forward,
backward, optimizer. The graph is Facebook's (where GRAPHTHEORY_DATA names a folder that
holds it) or a random one with a power law and as many nodes and edges as ogbn-arxiv; features and
labels are random, for times alone count. An epoch goes through `seeds` of the nodes.

NeighborLoader draws for each node once, when a hop first reaches it, and PyG's model sums over all
drawn edges in every layer. "trimmed" is PyG's `trim_to_layer`, with counts taken from the batch,
for torch-sparse does not give them: each layer sums over the edges that the seeds need. Here each
layer draws afresh for all its targets, and has its own edges. Hence two numbers of work: edges
drawn for a batch, and edges that the three layers sum over, which are about as many in GraphSAGE's
batches as in trimmed ones. NeighborLoader needs torch-sparse or pyg-lib (`pip install
pyg-graphtheory[scatter]`); without them ours alone is timed.

"Attention of the seeds" is one layer in which the seeds of a batch of NeighborLoader attend to all
that was drawn within two hops, with a learned bias for each hop, relation and time: fused, with
rows for the seeds alone, or dense, by PyTorch's attention with a mask of seeds times nodes. A step
is timed on one batch, the same for both, whose outputs and gradients are equal. `--only seeds`
measures these two, `--only sets` attention sets, drawn while their balls are searched, beside those
drawn from whole balls, and `--only sage` GraphSAGE's batches beside NeighborLoader's. The graphs
`1e5` and `1e6` are random, of as many nodes and 14 times as many edges: rows are of time alone, and
of both what an epoch, and a node of its batches, cost more in the larger one.

Memory comes from fresh processes as in `memory.py`: the peak of one epoch above what was resident
before it, with the graph there, after an epoch on a small graph.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
import torch_geometric.typing
import tyro
from _graphs import GRAPHS
from _rows import clock_of, ratios, save, seconds, show
from memory import MIB, in_a_fresh_process, peak_of
from ops import random_graph
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, scaled_dot_product_attention
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCNConv, SAGEConv, TransformerConv

from graphtheory import Neighborhood
from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets.graphs import load
from graphtheory.models import SampledGCN
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    FastGCN,
    GraphSAGE,
    KHop,
    Pattern,
    Sample,
    SymmetricNormalize,
    on_rows,
)

Graph = Literal["facebook", "arxiv", "1e5", "1e6", "small"]
Only = Literal["seeds", "sets", "sage"]
DEGREE = 14  # of random graphs, whose nodes their name tells
FEATURES, WIDTH, CLASSES, LAYERS, SOURCES = 128, 128, 40, 3, 5
PROCESSES = 2
HEADS = 4
HOPS, RELATIONS, TIMES = 3, 4, 8  # buckets of each, of hops with that of the seed itself


def attention(layer: Any) -> Callable[[int, int], Any]:
    """A layer of attention by its widths: heads side by side, the mean of them in the last."""

    def made(width: int, out: int) -> Any:
        last = out == CLASSES
        return layer(width, out if last else out // HEADS, heads=HEADS, concat=not last)

    return made


SAGE, GT = "NodeSetLoader, GraphSAGE", "NodeSetLoader, GraphSAGE, gt"
SAGE_THERE = "NeighborLoader, SAGEConv, trimmed"
THEIRS: dict[str, tuple[Any, bool, str]] = {
    "NeighborLoader, GCNConv": (GCNConv, False, SAGE),
    "NeighborLoader, GCNConv, trimmed": (GCNConv, True, SAGE),
    SAGE_THERE: (SAGEConv, True, SAGE),
    "NeighborLoader, TransformerConv, trimmed": (attention(TransformerConv), True, GT),
}
"""Name -> layer, whether batches are trimmed, and which of our ways it stands beside."""
FUSED, DENSE = "NeighborLoader, attention of the seeds", "NeighborLoader, the same dense"
DRAWN, WHOLE = "AttentionSetLoader, 30 of two hops", "AttentionSetLoader, 30 of whole balls"
MISSING = "NeighborLoader: not measured, it needs torch-sparse or pyg-lib, of which neither is here"
Batches = Callable[[], Iterator[Data]]


class WholeBalls(KHop):
    """The same balls, which are written before anything is drawn from them."""

    def drawn_rows(self, *given: Any) -> None:
        """Nothing together with a sampler."""


def ours(batch_size: int) -> dict[str, Pattern]:
    """The samplers; a tenth of the nodes a layer where they draw nodes for the whole graph."""
    return {
        SAGE: GraphSAGE(SOURCES),
        GT: GraphSAGE(SOURCES),
        "NodeSetLoader, LADIES": LADIES(count=4 * batch_size),
        "NodeSetLoader, FastGCN": FastGCN(share=0.1),
        "NodeSetLoader, DegreeGroups": DegreeGroups(groups=3, share=0.1),
    }


def can_draw() -> bool:
    """Whether PyG's NeighborLoader finds a library that draws."""
    return torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE


def data_of(graph: Graph) -> Data:
    """Structure with random features and labels."""
    if graph == "facebook":
        edge_index = load("facebook", os.environ["GRAPHTHEORY_DATA"]).edge_index
    elif graph == "arxiv":
        edge_index = GRAPHS[graph]().edge_index()
    else:
        count = 100 if graph == "small" else int(float(graph))
        edge_index = random_graph(count, 4 * count if graph == "small" else DEGREE * count)
    nodes = int(edge_index.max()) + 1
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(nodes, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    relation = torch.randint(RELATIONS, (nodes,), generator=generator)
    time = torch.randint(TIMES, (nodes,), generator=generator)
    return Data(x=x, y=y, relation=relation, time=time, edge_index=edge_index)


class PyGNet(nn.Module):
    """Layers of PyG on a batch of NeighborLoader."""

    def __init__(self, layer: Any, *, trim: bool) -> None:
        super().__init__()
        widths = [FEATURES, *[WIDTH] * (LAYERS - 1), CLASSES]
        self.layers = nn.ModuleList(layer(a, b) for a, b in pairwise(widths))
        self.trim = trim

    def forward(self, batch: Data) -> Tensor:
        """Compute the logits of the seeds."""
        x = batch.x
        for place, (layer, hops) in enumerate(zip(self.layers, self._hops(batch), strict=True)):
            nodes, edges = hops
            x = layer((x if place == 0 else x.relu())[:nodes], batch.edge_index[:, :edges])
        return x[: batch.batch_size]

    def work(self, batch: Data) -> tuple[int, int]:
        """Edges drawn, and edges summed over in all layers."""
        return batch.num_edges, sum(edges for _, edges in self._hops(batch))

    def _hops(self, batch: Data) -> list[tuple[int, int]]:
        """The first nodes and edges of the batch that each layer needs, or all of them."""
        if not self.trim:
            return [(batch.num_nodes, batch.num_edges)] * LAYERS
        sources, targets = batch.edge_index  # targets ascend, as hops do
        found, reached = [], batch.batch_size
        for _ in range(LAYERS):
            edges = int(torch.searchsorted(targets.contiguous(), reached))
            reached = max(reached, int(sources[:edges].max()) + 1 if edges else 0)
            found.insert(0, (reached, edges))
        return found


class OurNet(SampledGCN):
    """The network of the topology samplers on a batch of `NodeSetLoader`."""

    def __init__(self) -> None:
        super().__init__(FEATURES, WIDTH, CLASSES)

    def forward(self, batch: Data) -> Tensor:  # type: ignore[override]
        """Compute the logits of the seeds."""
        return super().forward(batch.x, batch.neighborhoods)

    def work(self, batch: Data) -> tuple[int, int]:
        """Edges drawn, and edges summed over in all layers."""
        edges = sum(layer.num_edges for layer in batch.neighborhoods)
        return edges, edges


class OurAttention(nn.Module):
    """Layers of attention with distance encoding on a batch of `NodeSetLoader`."""

    def __init__(self) -> None:
        super().__init__()
        widths, layer = [FEATURES, *[WIDTH] * (LAYERS - 1), CLASSES], attention(SPDTransformerConv)
        self.layers = nn.ModuleList(layer(a, b) for a, b in pairwise(widths))

    def forward(self, batch: Data) -> Tensor:
        """Compute the logits of the seeds."""
        x = batch.x
        for place, (layer, drawn) in enumerate(zip(self.layers, batch.neighborhoods, strict=True)):
            x = x if place == 0 else x.relu()
            x = layer((x, x[: drawn.num_dst]), drawn)
        return x

    work = OurNet.work


class SeedAttention(nn.Module):
    """One layer from the seeds to what is near, with a bias for each hop, relation and time."""

    def __init__(self, *, dense: bool) -> None:
        super().__init__()
        self.buckets, width = HOPS * RELATIONS * TIMES, WIDTH // HEADS
        self.layer = SPDTransformerConv(
            FEATURES, width, HEADS, num_buckets=self.buckets, root_weight=False
        )
        self.leave, self.dense = nn.Linear(WIDTH, CLASSES), dense

    def forward(self, batch: Data) -> Tensor:
        """Logits of the seeds."""
        x, near = batch.x, self.near(batch)
        if not self.dense:
            return self.leave(self.layer((x, x[: near.num_dst]), near).relu())
        bucket = torch.full((near.num_dst, near.num_src), self.buckets)
        bucket[near.targets(), near.indices] = near.distance.long()
        bias = pad(self.layer.bucket_bias.table, (0, 0, 0, 1), value=-torch.inf)[bucket]
        maps = (self.layer.lin_query, x[: near.num_dst]), (self.layer.lin_key, x), (
            self.layer.lin_value, x,
        )  # fmt: skip
        q, k, v = (of(rows).view(len(rows), HEADS, -1).transpose(0, 1) for of, rows in maps)
        out = scaled_dot_product_attention(q, k, v, bias.permute(2, 0, 1))
        return self.leave(out.transpose(0, 1).flatten(1).relu())

    def near(self, batch: Data) -> Neighborhood:
        """The rows of the seeds, with the bucket of each pair in place of its hops."""
        if "neighborhood" in batch:
            near = batch.neighborhood
        else:
            graph = Neighborhood.from_edge_index(batch.edge_index, batch.num_nodes)
            near = on_rows(Compose(KHop(2), AddSelf()), graph, torch.arange(batch.batch_size))
        of_source = batch.relation * TIMES + batch.time
        bucket = near.distance * (RELATIONS * TIMES) + of_source[near.indices].byte()
        return near.replace(distance=bucket)

    def work(self, batch: Data) -> tuple[int, int]:
        """Edges drawn, and pairs of a seed and what it attends to."""
        pairs = self.near(batch).num_edges
        return batch.num_edges if "edge_index" in batch else pairs, pairs


Net = PyGNet | OurNet | OurAttention | SeedAttention


def way(name: str, data: Data, seeds: int, batch_size: int) -> tuple[Batches, Net]:
    """Batches of an epoch and the network of one way to train."""
    nodes = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(2))[:seeds]
    torch.manual_seed(0)
    if name in (*THEIRS, FUSED, DENSE):
        layer, trim, _ = THEIRS.get(name, (None, False, None))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation")
            theirs = NeighborLoader(
                data,
                [SOURCES] * (LAYERS if layer else 2),
                input_nodes=nodes,
                batch_size=batch_size,
                shuffle=True,
            )
        if layer:
            return lambda: iter(theirs), PyGNet(layer, trim=trim)
        one = next(iter(theirs))  # the same for both
        return lambda: iter([one]), SeedAttention(dense=name == DENSE)
    if name in (DRAWN, WHOLE):
        near = Compose(KHop(2) if name == DRAWN else WholeBalls(2), Sample(30), AddSelf())
        sets = AttentionSetLoader(
            data, near, input_nodes=nodes, batch_size=batch_size, shuffle=True
        )
        return lambda: iter(sets), SeedAttention(dense=False)
    sampler = ours(batch_size)[name]
    fixed = (AddSelf(),) if name == GT else (AddSelf(), SymmetricNormalize())
    pattern = Compose(*fixed, sampler)
    loader = NodeSetLoader(
        data, pattern, LAYERS, input_nodes=nodes, batch_size=batch_size, shuffle=True
    )
    return lambda: iter(loader), OurAttention() if name == GT else OurNet()


def trainer(batches: Batches, model: Net) -> Callable[[], None]:
    """What trains for an epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> None:
        for batch in batches():
            optimizer.zero_grad()
            cross_entropy(model(batch), batch.y[: batch.batch_size]).backward()
            optimizer.step()

    return epoch


def extra_peak(name: str, graph: Graph, seeds: int, batch_size: int) -> int:
    """Bytes that an epoch needs on top of the graph and the model."""
    trainer(*way(name, data_of("small"), 100, 50))()
    epoch = trainer(*way(name, data_of(graph), seeds, batch_size))
    return peak_of(epoch)


def work_rows(name: str, batches: Batches, model: Net, **about: Any) -> list[Row]:
    """Nodes and edges of the batches."""
    drawn = list(batches())
    edges, summed = zip(*map(model.work, drawn), strict=True)
    counts = {
        "nodes of a batch": [b.num_nodes for b in drawn],
        "edges drawn for a batch": edges,
        "edges summed over for a batch": summed,
    }
    return [Row.of(f"{what}, {name}", of, "1", **about) for what, of in counts.items()]


def time_rows(ways: dict[str, tuple[Batches, Net]], repeats: int, **about: Any) -> list[Row]:
    """Time of an epoch of each way, of its loading alone, and ours as a part of the others'."""
    works: dict[str, Callable[[], object]] = {}
    for name, (batches, model) in ways.items():
        if name in (FUSED, DENSE):
            works[f"a step, {name}"] = trainer(batches, model)
            continue
        works[f"an epoch, {name}"] = trainer(batches, model)
        works[f"loading an epoch, {name}"] = lambda batches=batches: sum(1 for _ in batches())
    times = seconds(works, repeats, warmup=1, clock=clock_of(about["threads"]))
    rows = [Row.of(f"time of {name}", of, "s", **about) for name, of in times.items()]
    beside = {name: mine for name, (_, _, mine) in THEIRS.items()}
    beside |= {DENSE: FUSED, WHOLE: DRAWN}
    for kind in ("a step", "an epoch", "loading an epoch"):
        for name in [n for n in ways if n in beside and f"{kind}, {n}" in times]:
            mine = beside[name]
            found = ratios(times[f"{kind}, {name}"], times[f"{kind}, {mine}"])
            what = f"times faster than {name}: {kind}, {mine}"
            rows.append(Row.of(what, found, "1", **about))
    return rows


def growth_rows(
    ways: dict[Graph, dict[str, tuple[Batches, Net]]], repeats: int, **about: Any
) -> list[Row]:
    """What each way costs on 10^6 nodes over 10^5, of rounds in which the graphs take turns.

    Batches of the same seeds share fewer nodes in the larger graph, so there are rows of what a
    node of a batch costs more as well.
    """
    works: dict[str, Callable[[], object]] = {}
    nodes = dict[str, int]()
    for graph, own in ways.items():
        for name, (batches, model) in own.items():
            nodes[f"{name} {graph}"] = sum(batch.num_nodes for batch in batches())
            works[f"an epoch, {name} {graph}"] = trainer(batches, model)
            works[f"loading an epoch, {name} {graph}"] = lambda b=batches: sum(1 for _ in b())
    times = seconds(works, repeats, warmup=1, clock=clock_of(about["threads"]))
    both = [what.removesuffix(" 1e5") for what in times if what.endswith(" 1e5")]
    more = {what: ratios(times[f"{what} 1e6"], times[f"{what} 1e5"]) for what in both}
    for what, found in list(more.items()):
        name = what.split(", ", 1)[1]
        share = nodes[f"{name} 1e6"] / nodes[f"{name} 1e5"]
        more[f"{what}, a node of its batches"] = [one / share for one in found]
        more[f"nodes of its batches, {name}"] = [share]
    return [Row.of(f"10^6 over 10^5 nodes: {what}", of, "1", **about) for what, of in more.items()]


def assert_equal(ways: dict[str, tuple[Batches, Net]]) -> None:
    """Raise unless both forms of the attention of the seeds compute the same from one batch."""
    found = []
    for batches, model in (ways[FUSED], ways[DENSE]):
        (batch,) = batches()
        loss = cross_entropy(out := model(batch), batch.y[: batch.batch_size])
        found.append([batch.n_id, out, *torch.autograd.grad(loss, [*model.parameters()])])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def memory_rows(names: list[str], processes: int, **about: Any) -> list[Row]:
    """Extra peak memory of an epoch of each way."""
    sizes = {key: about[key] for key in ("seeds", "batch_size", "threads")}
    rows = []
    for name in names:
        peaks = [
            in_a_fresh_process(__file__, name, about["graph"], **sizes) for _ in range(processes)
        ]
        here = [peak / MIB for peak in peaks]
        what = "a step" if name in (FUSED, DENSE) else "an epoch"
        rows.append(Row.of(f"extra peak memory of {what}, {name}", here, "MiB", **about))
    return rows


def main(
    graphs: tuple[Graph, ...] = ("facebook", "arxiv"),
    seeds: int = 4096,
    batch_size: int = 1024,
    threads: int = 2,
    repeats: int = 7,
    quick: bool = False,
    only: tuple[Only, ...] = (),
    out: Path | None = None,
    measure: tuple[str, Graph] | None = None,
) -> None:
    """Time and memory of an epoch of mini-batches beside PyG's NeighborLoader.

    Args:
        graphs: Where to train; facebook needs GRAPHTHEORY_DATA.
        seeds: Nodes that an epoch goes through.
        batch_size: Of them in a batch.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round trains an epoch in each way.
        quick: A small random graph and one round.
        only: Measure these alone: attention of the seeds, attention sets, GraphSAGE's batches.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Measure only the memory of this way and graph, in this process, and print bytes.
    """
    torch.set_num_threads(threads)
    if measure is not None:
        print(extra_peak(*measure, seeds, batch_size))
        return
    if quick:
        graphs, seeds, batch_size, repeats = ("small",), 100, 50, 1
    if "facebook" in graphs and "GRAPHTHEORY_DATA" not in os.environ:
        print("facebook: not measured, GRAPHTHEORY_DATA names no folder with its files")
        graphs = tuple(graph for graph in graphs if graph != "facebook")
    names = [] if only else [*ours(batch_size), *(THEIRS if can_draw() else ())]
    names += [SAGE, *([SAGE_THERE] if can_draw() else ())] if "sage" in only else []
    names += [FUSED, DENSE] if can_draw() and (not only or "seeds" in only) else []
    names += [DRAWN, WHOLE] if not only or "sets" in only else []
    rows, kept = list[Row](), dict[Graph, dict[str, tuple[Batches, Net]]]()
    for graph in graphs:
        data = data_of(graph)
        ways = {name: way(name, data, seeds, batch_size) for name in names}
        about = {
            "graph": graph, "nodes": data.num_nodes, "edges": data.num_edges, "seeds": seeds,
            "batch_size": batch_size, "width": WIDTH, "layers": LAYERS, "threads": threads,
        }  # fmt: skip
        for name, (batches, model) in ways.items():
            rows += work_rows(name, batches, model, **about)
        if FUSED in ways:
            assert_equal(ways)
        rows += time_rows(ways, repeats, **about)
        if graph in ("1e5", "1e6"):
            kept[graph] = ways
        else:
            rows += memory_rows(names, 1 if quick else PROCESSES, **about)
    if len(kept) == 2:
        rows += growth_rows(kept, repeats, seeds=seeds, batch_size=batch_size, threads=threads)
    show(rows)
    if not can_draw():
        print(MISSING)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
