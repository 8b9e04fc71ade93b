"""A GCN on a real graph, trained on all neighbors or on samples of them, and an MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes
from graphtheory.lab.bench.tuned import tuned_config
from graphtheory.lab.train import FitResult, NodeTask, SampledLayers, fit
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.figure import Measurements
from graphtheory.papers.grid import Grid, Measured, Progress, axis, unrecorded
from graphtheory.papers.pivot import groups
from graphtheory.papers.topology.budget import SAMPLERS, NeighborUse, fitted, neighbor_use
from graphtheory.patterns import Compose, Effective

FULL, MLP = "full batch", "MLP"
NAMES = (FULL, MLP, *SAMPLERS)
_MEASURED = 10  # draws that the shares of neighbors and edges are means of
Options = dict[str, float]


@dataclass(frozen=True)
class Candidate:
    """A sampler with options of the GCN that is trained on its samples."""

    sampler: str  # one of `NAMES`
    trial: NodeRunConfig  # network and optimizer
    variant: str = ""  # one of the sampler's in `SAMPLERS`, or ""
    tried: int = 0  # place in the list of options that are tried
    budget: float = 1.0  # share of the neighbors of the rows in use

    @property
    def name(self) -> str:
        """In progress."""
        return f"{self.sampler} {self.variant}".strip()


_TRIED: tuple[Options, ...] = (
    {},
    {"dropout": 0.5, "weight_decay": 5e-4},
    {"average": 0.98},
    {"dropout": 0.5, "weight_decay": 5e-4, "average": 0.98},
)


@dataclass(frozen=True)
class Sampling(Grid):
    """The same GCN trained on all neighbors and on samples of them, and an MLP.

    Prediction is with all neighbors. Variant and options of each sampler are chosen by mean
    validation score at the first budget and kept at the others.
    """

    candidates: tuple[Candidate, ...] = axis("candidate", ())  # what is chosen from
    dataset: str = "Cora"
    root: Path | None = unrecorded(None)
    # shares of the neighbors, see `budget.neighbor_use`
    budgets: tuple[float, ...] = unrecorded((0.1, 1 / 3))
    # changes of the options that a search chose for the GCN on all neighbors
    tried: tuple[Options, ...] = unrecorded(_TRIED)
    epochs: int = 400  # upper bound
    patience: int = 100  # epochs without a better validation score: long, for scores are noisy
    search_epochs: int = unrecorded(200)  # upper bound for a candidate
    search_seeds: int = unrecorded(2)  # splits that a candidate is judged on
    seeds: int = axis("seed", 5)
    first: int = 5

    def measure(
        self,
        run: Callable[..., list[Measured]],
        progress: Progress = lambda *_: None,
        *,
        kept: Path | None = None,
    ) -> list[Measured]:
        """Choose candidates ("search"), then train them on all seeds and budgets ("result")."""
        names = [one.sampler for one in self.candidates]
        search = replace(
            self,
            candidates=tuple(one for one in self.candidates if names.count(one.sampler) > 1),
            seeds=min(self.search_seeds, self.seeds),
            epochs=self.search_epochs,
        )
        judged = Grid.measure(search, run, progress, kept=kept)
        chosen = choose(self.candidates, judged)
        result = replace(self, candidates=tuple(self._at_budgets(chosen)))
        last = Grid.measure(result, run, progress, kept=kept)
        stages = (("search", judged), ("result", last))
        return [{"stage": stage} | row for stage, rows in stages for row in rows]

    def _at_budgets(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        return [
            replace(one, budget=budget if one.sampler in SAMPLERS else 1.0)
            for place, budget in enumerate(self.budgets)
            for one in chosen
            if one.sampler in SAMPLERS or place == 0
        ]


def candidates(
    dataset: str, tried: tuple[Options, ...], budget: float, samplers: tuple[str, ...] = NAMES
) -> tuple[Candidate, ...]:
    """What is chosen from, sampler by sampler.

    Tried are changes of the options that a search chose for the GCN on all neighbors.
    """
    mlp, gcn = (tuned_config(dataset, name)[0] for name in ("mlp", "gcn"))
    changed = [_changed(gcn, options) for options in tried]
    return tuple(
        Candidate(name, trial, variant, place, budget if name in SAMPLERS else 1.0)
        for name in samplers
        for variant in SAMPLERS.get(name, ("",))
        for place, trial in enumerate([mlp] if name == MLP else changed)
    )


def _changed(trial: NodeRunConfig, options: Options) -> NodeRunConfig:
    changes: dict[str, Any] = dict(options)
    dropout = changes.pop("dropout", trial.network.dropout)
    # Without skip connections the layers can have neighborhoods of different nodes.
    network = replace(trial.network, dropout=dropout, residual=False)
    return replace(trial, network=network, optimizer=replace(trial.optimizer, **changes))


def choose(given: Sequence[Candidate], measured: Measurements) -> list[Candidate]:
    """The candidate of each sampler with the best mean validation score, the earlier on a tie."""
    judged = groups(measured, "sampler", "variant", "tried")

    def score(one: Candidate) -> float:
        return fmean(row["val"] for row in judged[one.sampler, one.variant, one.tried])

    best: dict[str, Candidate] = {}
    for one in given:
        if one.sampler not in best or score(one) > score(best[one.sampler]):
            best[one.sampler] = one
    return list(best.values())


def scores(grid: Sampling, candidate: Candidate, seed: int) -> list[Measured]:
    """Validation score, test score with A ("test") and A* ("star"), and what the samples used."""
    trial, how = candidate.trial, {"seed": seed, "epochs": grid.epochs, "patience": grid.patience}
    data = load(grid.dataset, grid.root, None, seed, **trial.inputs)
    star, use = None, NeighborUse(1.0, 1.0)
    if candidate.sampler in SAMPLERS:
        found, star, use = _on_samples(candidate, data, **how)
    else:
        found = train_nodes(trial, data, **how).fit
    row = {name: getattr(candidate, name) for name in ("sampler", "variant", "tried", "budget")}
    row |= {"seed": seed, "val": found.val, "test": found.test, "star": star}
    return [row | {"heard": use.neighbors, "edges": use.edges, "epochs": found.epochs}]


def _on_samples(
    one: Candidate, data: Any, *, seed: int, epochs: int, patience: int
) -> tuple[FitResult, float | None, NeighborUse]:
    """The fit, each epoch one step on new samples, the test score with A*, and what they used."""
    network, classes = one.trial.network, int(data.num_classes)
    whole = zoo.pattern_of("gcn", network)
    adjacency = whole(Neighborhood.from_edge_index(data.edge_index, data.x.size(0)))
    labeled = data.train_mask.nonzero().flatten()
    sampler = fitted(one.sampler, one.variant, adjacency, labeled, network.layers, one.budget)
    pattern = Compose(whole, sampler)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = zoo.build("gcn", network, num_features=data.x.size(1), num_classes=classes)
    batches = SampledLayers(data, pattern, network.layers, evaluation=whole, seed=seed)
    task = NodeTask(model, num_classes=classes, metric=data.metric, optimizer=one.trial.optimizer)
    found = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    star = None
    if pattern.effective(batches.graph) is not None:
        seen = replace(batches.evaluation_batch(), neighborhood=Effective(pattern)(batches.graph))
        star = task.evaluate(seen).test
    use = neighbor_use(sampler, adjacency, labeled, network.layers, _MEASURED)
    return found, star, use
