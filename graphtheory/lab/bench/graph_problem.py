"""Sets of graphs as problems, and the problem of any name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphtheory.graph.tokens import TOKEN
from graphtheory.lab.bench import fingerprints
from graphtheory.lab.bench.graph_spaces import SHARED, graph_space
from graphtheory.lab.bench.graph_trial import (
    GraphTrial,
    constant_of_graphs,
    graph_task_of,
    network_of,
    run_graph_trial,
)
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.options import Options
from graphtheory.lab.bench.problem import NodeProblem, Problem, Root
from graphtheory.lab.bench.spaces import Space
from graphtheory.lab.bench.trial import Outcome
from graphtheory.lab.bench.tuned import kept_trial
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graph_sets import GraphSet, load_graphs
from graphtheory.lab.datasets.precomputed import precomputed
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import Source, Task
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.nn import SPDTransformerConv, attention_maps

_SETS_KEPT = 3  # encodings of a set that are kept at the same time


class GraphProblem(Problem):
    """A set of graphs, with a label for each graph or for each of their nodes.

    Args:
        name: Of the set; of `datasets.graphs.names("graph")` where it is loaded by name.
        split: Kind of split; None is the set's own.
        root: Folder with the raw files.
    """

    models = (*graph_zoo.NAMES, fingerprints.NAME)
    compared = graph_zoo.COMPARED
    reads = "sets of graphs"

    def __init__(self, name: str, split: str | None = None, root: Root = None) -> None:
        super().__init__(name, split, root)
        self._sets: dict[int, GraphSet] = {}
        self._encoded: dict[str, tuple[GraphSet, list[Any]]] = {}

    def graphs(self, seed: int) -> GraphSet:
        """The set with the split of that seed."""
        if seed not in self._sets:
            self._sets = {seed: self.load(seed)}
        return self._sets[seed]

    def load(self, seed: int) -> GraphSet:
        """Read it."""
        return load_graphs(self.name, self.root, split=self.split, seed=seed)

    @property
    def measure(self) -> Measure:
        """How its scores are read."""
        return measure_of(self.graphs(0).metric)

    def space(self, model: str) -> Space:
        """What the search may choose from for a model; fingerprints have axes of their own."""
        found = self.graphs(0)
        train = found.train_index
        sizes = found.slices["x"].diff()[train]
        shared = graph_space(len(train), int(sizes.sum()))
        return fingerprints.space(shared) if model == fingerprints.NAME else shared

    def checked_options(self, trials: Sequence[Any], given: Mapping[str, Any]) -> Options:
        """Options set by hand; of a set with labels of nodes none that says what is read out."""
        found = super().checked_options(trials, given)
        read = found.get("readout", "token")
        if self.graphs(0).level == "node" and read != "token":
            raise ValueError(
                f"readout: got {read!r}, expected none or 'token', as {self.name} has a label for "
                "each node"
            )
        return found

    def buildable(self, trial: Any) -> Any:
        """The trial itself, after a look that its network can be built for these graphs."""
        if isinstance(trial, GraphTrial):
            with torch.random.fork_rng(devices=[]):
                network_of(trial, self.graphs(0))
        return trial

    @property
    def num_nodes(self) -> int:
        """Those of a batch."""
        return int(max(SHARED["nodes_per_batch"]))

    def known_model(self, model: str) -> str:
        """The name itself.

        Raises:
            ValueError: If no network of that name fits, or fingerprints are asked for of graphs
                that are no molecules, or without rdkit.
        """
        if super().known_model(model) == fingerprints.NAME:
            fingerprints.check(self.graphs(0))
        return model

    def trial(self, model: str) -> tuple[Any, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience."""
        self.known_model(model)
        trees = model == fingerprints.NAME
        kept = kept_trial(self.key, model) if self.kept else None
        if kept is None:
            space = self.space(model)
            default: Any = fingerprints.DEFAULT if trees else GraphTrial(model)
            return default, space.epochs, space.patience
        values, epochs, patience = kept
        trial: Any = fingerprints.make(**values) if trees else GraphTrial.from_dict(values)
        return trial, epochs, patience

    def encoded(self, found: GraphSet, needs: dict[str, int]) -> list[Any]:
        """The graphs with what `needs` names; sets that differ in the split alone share them."""
        name = repr(needs)
        known = self._encoded.pop(name, None)
        if known is None or not _same(known[0], found):
            known = found, list(precomputed(found, **needs))
        self._encoded[name] = known
        while len(self._encoded) > _SETS_KEPT:
            self._encoded.pop(next(iter(self._encoded)))
        return known[1]

    def task(self, trial: Any, seed: int) -> tuple[Task, Source]:
        """The task of a trial and its batches.

        Raises:
            ValueError: Fingerprints, which `train.fit` does not train.
        """
        if not isinstance(trial, GraphTrial):
            raise ValueError(f"model: {trial.model} is not trained by gradients; `bench` runs it")
        found = self.graphs(seed)
        return graph_task_of(trial, found, self.encoded(found, trial.precomputed), seed)

    def constant(self, task: Any, batches: Any) -> float | None:
        """Test score of the best constant prediction."""
        return constant_of_graphs(task, batches)

    def run(self, trial: Any, *, seed: int, epochs: int, patience: int) -> Outcome:
        """Train once; split and everything random follow from `seed`."""
        found = self.graphs(seed)
        if not isinstance(trial, GraphTrial):
            return fingerprints.run(trial, found, seed=seed)
        given = self.encoded(found, trial.precomputed)
        return run_graph_trial(trial, found, given, seed=seed, epochs=epochs, patience=patience)

    def findings(self, outcome: Outcome) -> dict[str, Any]:
        """Attention of a graph transformer by distance over the validation graphs, and its bias.

        Pairs without a path, and pairs with a graph token, are left out of the rows.
        """
        out = super().findings(outcome)
        model = outcome.model
        layers = [m for m in model.modules() if isinstance(m, SPDTransformerConv)] if model else []
        if not layers:
            return out
        out["attention_mass"] = _mass(model, outcome.batches.evaluation_batch().val)
        tables = [c.bucket_bias for c in layers if c.bucket_bias is not None]
        if tables:
            out["bias"] = [t.table.detach()[: t.num_buckets].tolist() for t in tables]
        return out


def _mass(model: torch.nn.Module, batches: Sequence[Any]) -> list[dict[str, float | int]]:
    """Attention mass by layer and distance, the mean over the nodes of all batches."""
    nodes, sums = 0, dict[tuple[int, int], list[float]]()
    for batch in batches:
        maps = attention_maps(model, batch)
        graph = maps[0].neighborhood
        for row in mass_by_distance([found.weights for found in maps], graph):
            if row["distance"] < TOKEN:
                both = sums.setdefault((int(row["layer"]), int(row["distance"])), [0.0, 0.0])
                both[0] += row["mass"] * graph.num_dst
                both[1] += row["uniform"] * graph.num_dst
        nodes += graph.num_dst
    return [
        {"layer": layer, "distance": hops, "mass": mass / nodes, "uniform": uniform / nodes}
        for (layer, hops), (mass, uniform) in sorted(sums.items())
    ]


def _same(one: GraphSet, other: GraphSet) -> bool:
    """Whether two sets have the same graphs in the same order, whatever their splits."""
    if one is other:
        return True
    mine, yours = one._data.to_dict(), other._data.to_dict()
    return mine.keys() == yours.keys() and all(
        value.shape == yours[name].shape
        and torch.equal(value.nan_to_num(), yours[name].nan_to_num())
        for name, value in mine.items()
        if isinstance(value, torch.Tensor)
    )


def named_problem(name: str, split: str | None = None, root: Root = None) -> Problem:
    """The problem of a data set by its own name and with its own kind of split.

    Raises:
        ValueError: Unknown name or split; the message lists the known ones.
    """
    info = describe(name, root)
    return problem_of(info.name, info.known_split(split), root)


def problem_of(data: str | Problem, split: str | None = None, root: Root = None) -> Problem:
    """The problem of a data set's name; a problem itself.

    Raises:
        ValueError: Unknown name; the message lists the known ones.
    """
    if isinstance(data, Problem):
        return data
    info = describe(data, root)
    return (GraphProblem if info.task == "graph" else NodeProblem)(data, split, root)
