"""A GCN on a real graph, trained on all neighbors or on samples of them, and an MLP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graphtheory.bench.trial import Trial, load, run_trial
from graphtheory.bench.tuned import tuned_trial
from graphtheory.graph import Neighborhood
from graphtheory.models import zoo
from graphtheory.papers.grid import Measured
from graphtheory.papers.topology.budget import SAMPLERS, NeighborUse, fitted, neighbor_use
from graphtheory.patterns import Compose, Effective
from graphtheory.train import FitResult, NodeTask, SampledLayers, fit

FULL, MLP = "full batch", "MLP"
NAMES = (FULL, MLP, *SAMPLERS)
_MEASURED = 10  # draws that the shares of neighbors and edges are means of
Options = dict[str, float]


@dataclass(frozen=True)
class Candidate:
    """A sampler with options of the GCN that is trained on its samples.

    Attributes:
        sampler: One of `NAMES`.
        trial: Network and optimizer.
        variant: One of the sampler's in `SAMPLERS`, or "".
        tried: Place in the list of options that are tried.
        budget: Share of the neighbors of the rows in use.
    """

    sampler: str
    trial: Trial
    variant: str = ""
    tried: int = 0
    budget: float = 1.0

    @property
    def name(self) -> str:
        """In progress."""
        return f"{self.sampler} {self.variant}".strip()


def candidates(
    dataset: str, tried: tuple[Options, ...], budget: float, samplers: tuple[str, ...] = NAMES
) -> tuple[Candidate, ...]:
    """What is chosen from, sampler by sampler.

    Args:
        dataset: Name of a graph.
        tried: Changes of the options that a search chose for the GCN on all neighbors.
        budget: Of the samplers.
        samplers: Some of `NAMES`.
    """
    mlp, gcn = (tuned_trial(dataset, name)[0] for name in ("mlp", "gcn"))
    changed = [_changed(gcn, options) for options in tried]
    return tuple(
        Candidate(name, trial, variant, place, budget if name in SAMPLERS else 1.0)
        for name in samplers
        for variant in SAMPLERS.get(name, ("",))
        for place, trial in enumerate([mlp] if name == MLP else changed)
    )


def _changed(trial: Trial, options: Options) -> Trial:
    changes: dict[str, Any] = dict(options)
    dropout = changes.pop("dropout", trial.network.dropout)
    # Without skip connections the layers can have neighborhoods of different nodes.
    network = replace(trial.network, dropout=dropout, residual=False)
    return replace(trial, network=network, optimizer=replace(trial.optimizer, **changes))


def train_candidate(
    one: Candidate, dataset: str, root: Path | None, *, seed: int, epochs: int, patience: int
) -> Measured:
    """Validation score, test score with A ("test") and A* ("star"), and what the samples used."""
    data = load(dataset, root, None, seed, **one.trial.inputs)
    star, use = None, NeighborUse(1.0, 1.0)
    if one.sampler in SAMPLERS:
        found, star, use = _on_samples(one, data, seed, epochs, patience)
    else:
        found = run_trial(one.trial, data, seed=seed, epochs=epochs, patience=patience).fit
    assert found.test is not None
    return {
        "sampler": one.sampler, "variant": one.variant, "tried": one.tried, "budget": one.budget,
        "seed": seed, "val": found.val, "test": found.test, "star": star, "heard": use.neighbors,
        "edges": use.edges, "epochs": found.epochs,
    }  # fmt: skip


def _on_samples(
    one: Candidate, data: Any, seed: int, epochs: int, patience: int
) -> tuple[FitResult, float | None, NeighborUse]:
    """The fit, the test score with A*, and what the samples used.

    Every epoch is one step on all labeled nodes, with a sample for each layer.
    """
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
