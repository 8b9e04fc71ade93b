"""Sets of graphs as tasks of a benchmark: by name, or the user's own list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from graphtheory.graph.tokens import TOKEN
from graphtheory.lab.bench import fingerprints
from graphtheory.lab.bench.config import RunConfig, RunResult
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.graph_config import (
    GraphRunConfig,
    constant_of_graphs,
    graph_task_of,
    network_of,
    train_graphs,
)
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.options import Options
from graphtheory.lab.bench.spaces import GRAPH_AXES, Space, graph_space
from graphtheory.lab.bench.task import BenchTask, OwnData, Root
from graphtheory.lab.bench.tuned import kept_options
from graphtheory.lab.datasets.graph_sets import GraphSet, precomputed
from graphtheory.lab.datasets.graphs import Data, load_graphs
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import Source, Task
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.nn import SPDTransformerConv, attention_maps

_SETS_KEPT = 3  # encodings of a set that are kept at the same time


class GraphBenchTask(BenchTask):
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
        """The set of graphs with the split of that seed."""
        if seed not in self._sets:
            self._sets = {seed: self.load(seed)}
        return self._sets[seed]

    def load(self, seed: int) -> GraphSet:
        """Read the set with the split of that seed."""
        return load_graphs(self.name, self.root, split=self.split, seed=seed)

    @property
    def measure(self) -> Measure:
        return measure_of(self.graphs(0).metric)

    def space(self, model: str) -> Space:
        found = self.graphs(0)
        train = found.train_index
        sizes = found.slices["x"].diff()[train]
        shared = graph_space(len(train), int(sizes.sum()))
        return fingerprints.space(shared) if model == fingerprints.NAME else shared

    def checked_options(self, configs: Sequence[Any], given: Mapping[str, Any]) -> Options:
        found = super().checked_options(configs, given)
        read = found.get("readout", "token")
        if self.graphs(0).level == "node" and read != "token":
            raise ValueError(
                f"readout: got {read!r}, expected none or 'token', as {self.name} has a label for "
                "each node"
            )
        return found

    def check_buildable(self, config: Any) -> None:
        if isinstance(config, GraphRunConfig):
            with torch.random.fork_rng(devices=[]):
                network_of(config, self.graphs(0))

    @property
    def num_nodes(self) -> int:
        return int(max(GRAPH_AXES["nodes_per_batch"]))

    def known_model(self, model: str) -> str:
        """The name itself, if a network of that name fits.

        Raises:
            ValueError: If none does, or fingerprints are asked for of graphs
                that are no molecules, or without rdkit.
        """
        if super().known_model(model) == fingerprints.NAME:
            fingerprints.check(self.graphs(0))
        return model

    def config(self, model: str, epochs: int | None = None) -> tuple[RunConfig, int, int]:
        self.known_model(model)
        kind: type[RunConfig] = fingerprints.TreesRunConfig
        kind = kind if model == fingerprints.NAME else GraphRunConfig
        kept = kept_options(self.key, model) if self.kept else None
        if kept is None:
            space = self.space(model)
            config, longest, patience = kind(model), space.epochs, space.patience
        else:
            values, longest, patience = kept
            config = kind.from_dict(values)
        return config, longest if epochs is None else epochs, patience

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

    def prepare(self, config: Any, seed: int) -> tuple[Task, Source]:
        """The task of a configuration and its batches.

        Raises:
            ValueError: Fingerprints, which `train.fit` does not train.
        """
        if not isinstance(config, GraphRunConfig):
            raise ValueError(f"model: {config.model} is not trained by gradients; `bench` runs it")
        found = self.graphs(seed)
        return graph_task_of(config, found, self.encoded(found, config.precomputed), seed)

    def constant(self, task: Any, batches: Any) -> float | None:
        return constant_of_graphs(task, batches)

    def run(
        self, config: Any, *, seed: int, epochs: int, patience: int, out_dir: Path | None = None
    ) -> RunResult:
        found = self.graphs(seed)
        if not isinstance(config, GraphRunConfig):
            return fingerprints.run(config, found, seed=seed)
        given = self.encoded(found, config.precomputed)
        return train_graphs(config, found, given, seed=seed, epochs=epochs, patience=patience)

    def analysis(self, result: RunResult) -> dict[str, Any]:
        """Attention of a graph transformer by distance over the validation graphs, and its bias.

        Pairs without a path, and pairs with a graph token, are left out of the rows.
        """
        out = super().analysis(result)
        model = result.model
        layers = [m for m in model.modules() if isinstance(m, SPDTransformerConv)] if model else []
        if not layers:
            return out
        out["attention_mass"] = _mass(model, result.batches.evaluation_batch().val)
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


class OwnGraphs(OwnData, GraphBenchTask):
    """A list of the user's graphs with labels, as `datasets.own_graphs.graph_set` takes it.

    Args:
        graphs: PyG `Data`, all with the same columns.
        name: In reports.
        kind: "multiclass", "multilabel" or "regression"; None takes it from y.
        metric: Of that kind; None takes its first.
        split: Fractions of training, validation and test, drawn by seed; or three lists of
            positions, the same for every seed.

    Raises:
        TypeError, ValueError: As `graph_set`.
    """

    def __init__(
        self,
        graphs: Sequence[Data],
        name: str = "graphs",
        kind: Any = None,
        metric: str | None = None,
        split: Sequence[Any] = (0.8, 0.1, 0.1),
    ) -> None:
        self.own, self.kind, self.asked, self.parts = list(graphs), kind, metric, split
        super().__init__(name)
        found = self.graphs(0)
        if found.level == "node":
            for position, graph in enumerate(self.own):
                if int(graph.y.max()) < 0:
                    raise ValueError(
                        f"graph {position}: y is -1 for all nodes, so that no label is left; take "
                        "the graph out"
                    )
        self.split = found.split
        self.sign(self.own)

    def settings(self) -> Settings:
        return super().settings() | {"kind": self.graphs(0).kind}

    def load(self, seed: int) -> GraphSet:
        return graph_set(
            self.own, name=self.name, kind=self.kind, metric=self.asked, split=self.parts, seed=seed
        )
