"""What training on samples costs a GCN on a real graph, at a tenth of the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from graphtheory.bench.trial import Trial, load, run_trial
from graphtheory.bench.tuned import tuned_trial
from graphtheory.data.catalogue import key
from graphtheory.graph import Neighborhood
from graphtheory.models import zoo
from graphtheory.papers.study import Progress, Row, Step, Study
from graphtheory.papers.topology.budget import SAMPLERS, Use, fitted, neighbors_heard
from graphtheory.patterns import Compose, Effective
from graphtheory.train import FitResult, NodeTask, SampledLayers, fit

FULL, MLP = "full batch", "MLP"
NAMES = (FULL, MLP, *SAMPLERS)
_MEASURED = 10  # draws that the columns of neighbours are means of
Options = dict[str, float]


@dataclass(frozen=True)
class Plan:
    """How long to train on a graph, and what each row but the MLP's chooses from.

    Attributes:
        epochs: Upper bound.
        patience: Epochs without a better validation score: long, for scores are noisy.
        search_epochs: Upper bound for a candidate.
        seeds: Splits.
        search_seeds: Splits that a candidate is judged on.
        first: The first split.
        tried: Changes of the options that the search chose for the GCN on all neighbours.
    """

    epochs: int = 400
    patience: int = 100
    search_epochs: int = 200
    seeds: int = 5
    search_seeds: int = 2
    first: int = 5
    tried: tuple[Options, ...] = (
        {},
        {"dropout": 0.5, "weight_decay": 5e-4},
        {"average": 0.98},
        {"dropout": 0.5, "weight_decay": 5e-4, "average": 0.98},
    )


_FACEBOOK: tuple[Options, ...] = (
    {"dropout": 0.2},
    {"dropout": 0.2, "average": 0.98, "lr": 0.02},
    {"dropout": 0.0, "average": 0.98, "lr": 0.02},
)
PLANS = {"facebook": Plan(600, 100, 600, 3, 1, 3, _FACEBOOK)}


def plan_of(dataset: str) -> Plan:
    """The plan of a graph, by its name in any case."""
    return PLANS.get(key(dataset), Plan())


@dataclass(frozen=True)
class Candidate:
    """A sampler with options.

    Attributes:
        sampler: One of `NAMES`.
        variant: One of the sampler's in `SAMPLERS`, or "".
        tried: Place in the plan's `tried`.
        budget: Share of the neighbours of the rows in use.
    """

    sampler: str
    variant: str = ""
    tried: int = 0
    budget: float = 1.0

    def trial(self, dataset: str) -> Trial:
        """Network and optimizer."""
        if self.sampler == MLP:
            return tuned_trial(dataset, "mlp")[0]
        trial = tuned_trial(dataset, "gcn")[0]
        network, optimizer = trial.network, trial.optimizer
        changes: dict[str, Any] = dict(plan_of(dataset).tried[self.tried])
        dropout = changes.pop("dropout", network.dropout)
        network = replace(network, dropout=dropout, residual=False)  # a neighborhood for each layer
        return replace(trial, network=network, optimizer=replace(optimizer, **changes))


@dataclass(frozen=True)
class SamplingStudy(Study):
    """The same GCN trained on all neighbours and on samples of them, and an MLP.

    Every epoch is one step on all labelled nodes, with draws of its own for each layer; prediction
    is with all neighbours. Variant and options of each row are chosen by mean validation score at
    the first budget and kept at the others.

    Attributes:
        dataset: Name of a graph.
        root: Folder with the raw files.
        samplers: Some of `NAMES`.
        budgets: Shares of the neighbours, see `neighbors_heard`.
        seeds: Splits; None is the plan's number.
        search_seeds: Splits that options are chosen on; None is the plan's number.
        epochs: Upper bound; None is the plan's.
    """

    dataset: str = "Cora"
    root: Path | None = None
    samplers: tuple[str, ...] = NAMES
    budgets: tuple[float, ...] = (0.1, 1 / 3)
    seeds: int | None = None
    search_seeds: int | None = None
    epochs: int | None = None

    def steps(self) -> list[Step]:
        """The candidates at the first budget on the first seeds, where there is a choice."""
        plan = plan_of(self.dataset)
        seeds = min(self.search_seeds or plan.search_seeds, self.count)
        found = self.candidates()
        names = [one.sampler for one in found]
        choices = [one for one in found if names.count(one.sampler) > 1]
        return self._of(choices, seeds, plan.search_epochs)

    @property
    def count(self) -> int:
        """Splits that results are of."""
        return self.seeds or plan_of(self.dataset).seeds

    def candidates(self) -> list[Candidate]:
        """What is chosen from, sampler by sampler."""
        found = []
        for name in self.samplers:
            budget = self.budgets[0] if name in SAMPLERS else 1.0
            tried = 1 if name == MLP else len(plan_of(self.dataset).tried)
            for variant in SAMPLERS.get(name, ("",)):
                found += [Candidate(name, variant, place, budget) for place in range(tried)]
        return found

    def run(self, progress: Progress = lambda *_: None, *, kept: Path | None = None) -> list[Row]:
        """Choose, then train what was chosen on all seeds and budgets.

        Rows: stage ("search" or "result"), sampler, variant, tried, budget, seed, val, test (with
        A), test of A* ("star"), heard, edges, epochs; see `neighbors_heard`.
        """
        judged = super().run(progress, kept=kept)
        chosen = choose(self.candidates(), judged)
        last = _Chosen(self, tuple(self._at_budgets(chosen))).run(progress, kept=kept)
        stages = (("search", judged), ("result", last))
        return [{"stage": stage} | row for stage, rows in stages for row in rows]

    def _at_budgets(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        return [
            replace(one, budget=budget if one.sampler in SAMPLERS else 1.0)
            for place, budget in enumerate(self.budgets)
            for one in chosen
            if one.sampler in SAMPLERS or place == 0
        ]

    def _of(self, candidates: Sequence[Candidate], seeds: int, epochs: int) -> list[Step]:
        first = plan_of(self.dataset).first
        splits = range(first, first + seeds)
        return [self._step(one, seed, epochs) for one in candidates for seed in splits]

    def _step(self, one: Candidate, seed: int, epochs: int) -> Step:
        epochs, patience = min(epochs, self.epochs or epochs), plan_of(self.dataset).patience
        settings = asdict(one) | {
            "dataset": key(self.dataset), "seed": seed, "epochs": epochs, "patience": patience,
            "trial": one.trial(self.dataset).as_dict(),
        }  # fmt: skip
        run = partial(_train, self, one, seed, epochs, patience)
        return Step(f"{one.sampler} {one.variant}".strip(), settings, run)


@dataclass(frozen=True)
class _Chosen(Study):
    study: SamplingStudy
    candidates: tuple[Candidate, ...]

    def steps(self) -> list[Step]:
        epochs = plan_of(self.study.dataset).epochs
        return self.study._of(self.candidates, self.study.count, epochs)


def choose(candidates: Sequence[Candidate], rows: Sequence[Row]) -> list[Candidate]:
    """The candidate of each sampler with the best mean validation score, the earlier on a tie."""
    scores: dict[Candidate, list[float]] = {one: [] for one in candidates}
    for row in rows:
        scores[Candidate(row["sampler"], row["variant"], row["tried"], row["budget"])] += [
            row["val"]
        ]
    best: dict[str, Candidate] = {}
    for one in candidates:
        if one.sampler not in best or mean(scores[one]) > mean(scores[best[one.sampler]]):
            best[one.sampler] = one
    return list(best.values())


def _train(
    study: SamplingStudy, one: Candidate, seed: int, epochs: int, patience: int
) -> list[Row]:
    trial = one.trial(study.dataset)
    data = load(study.dataset, study.root, None, seed, **trial.inputs)
    star, use = None, Use(1.0, 1.0)
    if one.sampler in SAMPLERS:
        found, star, use = _sampled(one, trial, data, seed, epochs, patience)
    else:
        found = run_trial(trial, data, seed=seed, epochs=epochs, patience=patience).fit
    assert found.test is not None
    row = asdict(one) | {
        "seed": seed, "val": found.val, "test": found.test, "star": star, "heard": use.heard,
        "edges": use.edges, "epochs": found.epochs,
    }  # fmt: skip
    return [row]


def _sampled(
    one: Candidate, trial: Trial, data: Any, seed: int, epochs: int, patience: int
) -> tuple[FitResult, float | None, Use]:  # fmt: skip
    """The fit, the test score with A*, and what the draws used."""
    whole, classes = zoo.pattern_of("gcn", trial.network), int(data.num_classes)
    adjacency = whole(Neighborhood.from_edge_index(data.edge_index, data.x.size(0)))
    labelled = data.train_mask.nonzero().flatten()
    layers = trial.network.layers
    sampler = fitted(one.sampler, one.variant, adjacency, labelled, layers, one.budget)
    pattern = Compose(whole, sampler)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = zoo.build("gcn", trial.network, num_features=data.x.size(1), num_classes=classes)
    batches = SampledLayers(data, pattern, layers, evaluation=whole, seed=seed)
    task = NodeTask(model, num_classes=classes, metric=data.metric, optimizer=trial.optimizer)
    found = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    star = None
    if pattern.effective(batches.graph) is not None:
        seen = replace(batches.evaluation_batch(), neighborhood=Effective(pattern)(batches.graph))
        star = task.evaluate(seen).test
    use = neighbors_heard(sampler, adjacency, labelled, layers, _MEASURED)
    return found, star, use


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each sampler and budget: means, and the difference to the full batch, paired, with s.e.

    `within` says whether that difference is above -1 point.
    """
    rows = [row for row in rows if row["stage"] == "result"]
    full = {row["seed"]: row["test"] for row in rows if row["sampler"] == FULL}
    out = []
    for name, budget in dict.fromkeys((row["sampler"], row["budget"]) for row in rows):
        mine = [r for r in rows if (r["sampler"], r["budget"]) == (name, budget)]
        line: dict[str, Any] = {
            "sampler": name, "variant": mine[0]["variant"], "tried": mine[0]["tried"],
            "budget": budget, "seeds": len(mine), "tests": [r["test"] for r in mine],
            "stars": [r["star"] for r in mine if r["star"] is not None],
            "heard": mean(r["heard"] for r in mine), "edges": mean(r["edges"] for r in mine),
        }  # fmt: skip
        gaps = torch.tensor([r["test"] - full[r["seed"]] for r in mine if r["seed"] in full])
        line["gap"], line["gaps"] = float(gaps.mean()), gaps.tolist()
        line["s.e."] = float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else 0.0
        line["within"] = line["gap"] >= -0.01
        out.append(line)
    return out
