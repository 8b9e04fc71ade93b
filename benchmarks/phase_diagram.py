"""Time of a cell of a phase diagram: many trials at once beside one trial after the other.

    python benchmarks/phase_diagram.py --out benchmarks/results/cpu-phase-diagram.csv

Both sides train the network of Li (2024), eq. (3.1), by its algorithm 4 on graphs of their own: 20
trials of figure 3.3, each step with fresh batches of labeled nodes and 60 fresh sources for each.
The loop is plain PyTorch as one would write it: it draws with `torch.multinomial` from a table of
who is near whom, gathers the sources' features, multiplies, and takes a step of `torch.optim.SGD`.
Before anything is timed, both get the same batches and sources and must end with the same weights.
Graphs are drawn outside the clock. Times are for a step of one trial. Several cells are trained as
a study does it: two of them in one computation on each thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import tyro
from _rows import ratios, save, seconds, show
from torch import Generator, Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets.embedded import CoreNeighborhoodGraph
from graphtheory.papers.core_neighborhood import training as core
from graphtheory.papers.core_neighborhood.training import Graph, Learner
from graphtheory.papers.grid import map_on_threads
from graphtheory.papers.shallow import ShallowAttention

SOURCES = 60
Draw = Callable[[int], tuple[Tensor, Tensor]]
"""Step -> nodes [B] and their sources [B, S]."""


class Plain(nn.Module):
    """The network of one trial, without this library."""

    def __init__(self, start: ShallowAttention) -> None:
        super().__init__()
        for name, value in start.named_parameters():
            setattr(self, name, nn.Parameter(value[0].detach().clone()))
        self.register_buffer("a", start.a[0, 0].clone())

    def forward(self, x: Tensor, nodes: Tensor, sources: Tensor, hops: Tensor) -> Tensor:
        """Outputs [B] of nodes that hear sources [B, S] at that many hops."""
        heard = x[sources]  # [B, S, d]
        query = x[nodes] @ self.W_Q.T
        logits = ((heard @ self.W_K.T) * query[:, None]).sum(2) + self.b[hops]
        value = (logits.softmax(1)[..., None] * (heard @ self.W_V.T)).sum(1)
        return torch.relu(value @ self.W_O.T) @ self.a


def dense(graph: Graph) -> Tensor:
    """Hops between all pairs within two hops, int64 [N, N]; 9 beyond."""
    hops = torch.full((len(graph.y), len(graph.y)), 9)
    sources, targets = graph.ball.edge_index()
    assert graph.ball.distance is not None
    hops[targets, sources] = graph.ball.distance.long()
    return hops


def fresh(graph: Graph, hops: Tensor, batch_size: int, generator: Generator) -> Draw:
    """Batches and sources as plain PyTorch draws them."""
    near = ((hops == 1) | (hops == 2)).float()

    def draw(step: int) -> tuple[Tensor, Tensor]:
        order = torch.randperm(len(graph.labeled), generator=generator)
        nodes = graph.labeled[order[:batch_size]]
        sources = torch.multinomial(near[nodes], SOURCES, generator=generator)
        return nodes, torch.cat([nodes[:, None], sources], 1)

    return draw


def loop(
    learner: Learner, start: ShallowAttention, graph: Graph, hops: Tensor, draw: Draw
) -> Plain:
    """Train one trial, step by step."""
    model = Plain(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=learner.step_size)
    for step in range(learner.steps):
        nodes, sources = draw(step)
        out = model(graph.x, nodes, sources, hops[nodes[:, None], sources])
        loss = torch.relu(1 - graph.y[nodes] * out).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def assert_same(learner: Learner, graphs: list[Graph], tables: list[Tensor]) -> None:
    """Both sides end with the same parameters from the same start, batches and sources."""
    trials, nodes = len(graphs), len(graphs[0].y)
    seen: list[tuple[Tensor, Neighborhood]] = []
    starts: list[ShallowAttention] = []

    def watch(step: int, model: ShallowAttention) -> bool:
        if step == 0:
            starts.extend(model.trial(t) for t in range(trials))
            plain = model.forward

            def listening(x: Tensor, rows: Neighborhood, ids: Tensor) -> Tensor:
                seen.append((ids.view(trials, -1), rows))
                return plain(x, rows, ids)

            model.forward = listening  # type: ignore[method-assign, assignment]
        return False

    together, _ = core.run(learner, graphs, 0, watch)
    for t, (graph, hops) in enumerate(zip(graphs, tables, strict=True)):

        def draw(step: int, t: int = t) -> tuple[Tensor, Tensor]:
            ids, rows = seen[step]
            sources = rows.indices.view(*ids.shape, -1)[t]
            return ids[t] - nodes * t, sources - nodes * t

        alone = loop(learner, starts[t], graph, hops, draw)
        for name, value in alone.named_parameters():
            wanted = together.get_parameter(name)[t]
            torch.testing.assert_close(value, wanted, rtol=1e-3, atol=1e-5)


def times(learner: Learner, trials: int, cells: int, labels: int, repeats: int) -> list[Row]:
    """Rows for one cell, and for several at once."""
    drawn = core.capped(CoreNeighborhoodGraph(degree=0))
    graphs = [core.draw(drawn, labels, seed) for seed in range(trials * cells)]
    tables = [dense(graph) for graph in graphs[:trials]]
    assert_same(replace(learner, steps=5), graphs[:2], tables[:2])

    def one_by_one() -> None:
        generator = Generator().manual_seed(0)
        for graph, hops in zip(graphs[:trials], tables, strict=True):
            start = learner.model(graph.mu[None], generator)
            loop(learner, start, graph, hops, fresh(graph, hops, learner.batch_size, generator))

    def several() -> None:
        pairs = [graphs[start : start + 2 * trials] for start in range(0, len(graphs), 2 * trials)]
        map_on_threads(lambda pair: core.run(learner, pair, 0), pairs)

    works = {
        f"loop, {trials} trials": one_by_one,
        f"together, {trials} trials": lambda: core.run(learner, graphs[:trials], 0),
        f"together, {cells} cells of {trials} trials": several,
    }
    of = [trials, trials, trials * cells]
    found = {
        name: [t / (learner.steps * count) for t in measured]
        for (name, measured), count in zip(seconds(works, repeats, 1).items(), of, strict=True)
    }
    about = {"labels": labels, "batch": learner.batch_size, "width": learner.width,
             "steps": learner.steps, "threads": torch.get_num_threads()}  # fmt: skip
    rows = [Row.of(f"step of a trial, {name}", each, "s", **about) for name, each in found.items()]
    slow, *fast = found.items()
    return rows + [
        Row.of(f"step of a trial, loop over {name}", ratios(slow[1], each), "1", **about)
        for name, each in fast
    ]


def main(
    trials: int = 20,
    cells: int = 4,
    labels: tuple[int, ...] = (10, 40),
    steps: int = 100,
    threads: int = 2,
    repeats: int = 9,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure the training of a cell of figure 3.3, trials together and one after the other.

    Args:
        trials: In a cell.
        cells: Of the second row of this library, two on each thread at a time.
        labels: Labeled nodes of each trial; the batch is all of them, at most 40.
        steps: Of SGD, of each trial.
        threads: Of torch.
        repeats: Rounds; every round runs everything once.
        quick: One round of few steps and trials, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        trials, cells, labels, steps, repeats = 4, 2, labels[:1], 5, 1
    rows = []
    for count in labels:
        learner = Learner(steps=steps, step_size=0.01)  # so small that no trial falls quiet
        found = times(learner, trials, cells, count, repeats)
        show(found)
        rows += found
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
