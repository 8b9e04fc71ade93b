"""A GCN on a real graph, trained on all neighbors or on samples of them, and an MLP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory import patterns
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes, tuned_config
from graphtheory.lab.train import FitResult, NodeTask, SampledLayers, fit
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.grid import Grid, Measured, Progress, axis, unrecorded
from graphtheory.papers.pivot import Measurements, groups
from graphtheory.papers.topology import adjacency as bounds
from graphtheory.patterns.base import layers_on_rows
from graphtheory.patterns.importance import column_norms

EVEN, LEAST = "even shares", "shares of least variance"
SAMPLERS: dict[str, tuple[str, ...]] = {
    "degree groups": (EVEN, LEAST),
    "degree groups, p*": (EVEN,),
    "FastGCN": ("",),
    "LADIES": ("", "normalized rows"),
    "GraphSAGE": ("",),
    "uniform nodes": ("",),
}
"""Samplers and their variants.

There are five degree groups, with p* = 1, so that A* = A. "shares of least variance": S_l / N_l is
proportional to sqrt(w_l / d_l), with w_l the group's mean squared column norm and d_l its mean
degree, which minimizes the sum over nodes of w_l (N_l / S_l - 1) at a given number of edges.
"degree groups, p*": p*_l is proportional to 1 / psi_l, the bound of Li (2024), eq. (5.8),
scaled so that A* has the same total weight as A. FastGCN and LADIES draw distinct nodes.
"""
_GROUPS, _ROUNDS, _DRAWS, _MOST = 5, 12, 3, 64


class NeighborUse(NamedTuple):
    """What batches use of a graph."""

    # share of the neighbors: edges of A^s in the rows that a batch computes, over those of A in the
    # same rows, summed over the layers. These rows are the labeled nodes in the last layer, and in
    # each layer below it all nodes of the layer above.
    neighbors: float
    edges: float  # these edges of A^s, over all edges of A in every layer


def neighbor_use(
    pattern: patterns.Pattern, adjacency: Neighborhood, seeds: Tensor, layers: int, draws: int
) -> NeighborUse:
    """Mean over batches of the labeled nodes `seeds`."""
    generator = torch.Generator().manual_seed(0)
    used = of = 0
    for _ in range(draws):
        nodes, drawn = layers_on_rows(pattern, adjacency, seeds, layers, generator=generator)
        used += sum(layer.num_edges for layer in drawn)
        of += sum(adjacency.rows(nodes[: layer.num_dst]).num_edges for layer in drawn)
    return NeighborUse(used / max(of, 1), used / (draws * layers * max(adjacency.num_edges, 1)))


def fitted(
    name: str, variant: str, adjacency: Neighborhood, seeds: Tensor, layers: int, budget: float
) -> patterns.Pattern:
    """The sampler whose layers use a share `budget` of the neighbors, as nearly as its size allows.

    The name is one of `SAMPLERS`, the variant one of its; `seeds` are the labeled nodes of a batch.
    """

    def used(pattern: patterns.Pattern) -> float:
        return neighbor_use(pattern, adjacency, seeds, layers, _DRAWS).neighbors

    if name == "GraphSAGE":
        found = [patterns.GraphSAGE(1)]
        while used(found[-1]) < budget and len(found) < _MOST:
            found.append(patterns.GraphSAGE(len(found) + 1))
        return min(found[-2:], key=lambda pattern: abs(used(pattern) - budget))
    make = _sized(name, variant, adjacency)
    low, high = 1e-4, 1.0
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if used(make(middle)) < budget else (low, middle)
    return make((low * high) ** 0.5)


def _sized(name: str, variant: str, adjacency: Neighborhood) -> Callable[[float], patterns.Pattern]:
    """Share of the nodes -> the sampler of that size."""
    if name == "FastGCN":
        return lambda size: patterns.FastGCN(share=size, replace=False)
    if name == "LADIES":
        return lambda size: patterns.LADIES(share=size, replace=False, normalize=variant != "")
    if name == "uniform nodes":
        return lambda size: patterns.UniformNodes(share=size)
    group, sizes, *_ = patterns.DegreeGroups(_GROUPS).groups_of(adjacency)
    degree = bounds.group_degrees(adjacency, group)
    relative = torch.ones_like(degree)
    if variant == LEAST:
        norm = relative.index_add(0, group, column_norms(adjacency)) - relative
        relative = (norm / (sizes * degree)).sqrt()
        relative /= relative.max()
    p_star = torch.ones_like(degree)
    if name.endswith("p*"):
        p_star = 1 / bounds.psi(degree, sizes)
        p_star /= p_star[group[adjacency.indices]].mean()
    return lambda size: patterns.DegreeGroups(
        _GROUPS, share=tuple((size * relative).tolist()), p_star=tuple(p_star.tolist())
    )


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

    def __str__(self) -> str:
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
    # shares of the neighbors, see `neighbor_use`
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
        self, run: Callable[..., list[Measured]], progress: Progress = lambda *_: None,
        *, kept: Path | None = None,
    ) -> list[Measured]:  # fmt: skip
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
        at_budgets = (
            replace(one, budget=budget if one.sampler in SAMPLERS else 1.0)
            for place, budget in enumerate(self.budgets)
            for one in chosen
            if one.sampler in SAMPLERS or place == 0
        )
        result = replace(self, candidates=tuple(at_budgets))
        last = Grid.measure(result, run, progress, kept=kept)
        stages = (("search", judged), ("result", last))
        return [{"stage": stage} | row for stage, rows in stages for row in rows]


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
    pattern = patterns.Compose(whole, sampler)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = zoo.build("gcn", network, num_features=data.x.size(1), num_classes=classes)
    batches = SampledLayers(data, pattern, network.layers, evaluation=whole, seed=seed)
    task = NodeTask(model, num_classes=classes, metric=data.metric, optimizer=one.trial.optimizer)
    found = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    star = None
    if pattern.effective(batches.graph) is not None:
        seen = replace(
            batches.evaluation_batch(), neighborhood=patterns.Effective(pattern)(batches.graph)
        )
        star = task.evaluate(seen).test
    use = neighbor_use(sampler, adjacency, labeled, network.layers, _MEASURED)
    return found, star, use
