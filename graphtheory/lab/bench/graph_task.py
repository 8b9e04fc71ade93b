"""Sets of graphs as tasks of a benchmark, by name or the user's own list.

Of molecules, boosted trees on counts of substructures are compared with the networks.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from graphtheory.graph.build import TOKEN
from graphtheory.lab.bench.config import AXES, Axes, RunConfig, axes_of, checked_value, readers_of
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.own_model import OwnModel
from graphtheory.lab.bench.rows import Measure, measure_of
from graphtheory.lab.bench.task import BenchTask, Root, RunResult, constant_score
from graphtheory.lab.datasets.graph_sets import GraphSet, precomputed
from graphtheory.lab.datasets.graphs import Data, load_graphs
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import AdamOptions, FitResult, GraphSets, GraphTask, Source, Task
from graphtheory.lab.train.contract import digest
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo.graph_recipes import STACKS
from graphtheory.nn import attention_maps

TREES = "ecfp"
_FINGERPRINTS = ("morgan", "torsion", "paths")
_OF_TREES = ("n_estimators", "learning_rate", "num_leaves", "min_child_samples", "reg_lambda")
_FULL_LENGTH = 30_000  # training nodes of a set that is trained for all epochs
_MOST_EPOCHS, _LEAST_EPOCHS = 100, 30
_SETS_KEPT = 3  # encodings of a set that are kept at the same time


@dataclass(frozen=True)
class GraphRunConfig(RunConfig):
    """A network for graphs with its options."""

    network: graph_zoo.GraphConfig = field(default_factory=graph_zoo.GraphConfig)
    optimizer: AdamOptions = field(default_factory=lambda: AdamOptions(1e-3, 0.0))
    nodes_per_batch: int = 1024  # about
    readers: ClassVar[Mapping[str, Sequence[str]]] = readers_of("graph")


@dataclass(frozen=True)
class TreesRunConfig(RunConfig):
    """Options of LightGBM's boosted trees, in its names, and of the fingerprints that they read."""

    model: str = TREES
    n_estimators: int = 500  # trees of a label
    learning_rate: float = 0.1
    num_leaves: int = 31
    min_child_samples: int = 20
    reg_lambda: float = 0.0
    #: Counts of substructures: "morgan" (ECFP), "torsion", "paths" (RDKit's), or several with "+".
    fingerprint: str = "morgan"
    radius: int = 2  # bonds around an atom that a substructure of "morgan" reaches
    bits: int = 2048  # columns of a fingerprint

    def __post_init__(self) -> None:
        if unknown := set(self.fingerprint.split("+")) - set(_FINGERPRINTS):
            expected = f"some of {', '.join(_FINGERPRINTS)}, joined by +"
            raise ValueError(f"fingerprint: got {min(unknown)!r}, expected {expected}")


def network_of(config: Any, facts: GraphSet, own: OwnModel | None = None) -> nn.Module:
    """Build the untrained network of a configuration, or the user's own, for a set of graphs."""
    if own is not None:
        return own.network(facts[0].x.size(1), facts.num_outputs)
    first, of_nodes, of_edges = facts[0], facts.x_categories, facts.edge_categories
    if of_edges is None and (edges := first.get("edge_attr")) is not None:
        of_edges = edges.size(1)
    return graph_zoo.build(
        config.model, config.network, node_in=first.x.size(1) if of_nodes is None else of_nodes,
        edge_in=of_edges, num_outputs=facts.num_outputs, level=facts.level,
    )  # fmt: skip


class GraphBenchTask(BenchTask):
    """A set of graphs, with a label for each graph or for each of their nodes."""

    models = (*graph_zoo.NAMES, TREES)
    compared = graph_zoo.COMPARED
    reads = "sets of graphs"
    num_nodes: int = max(AXES["graph"]["nodes_per_batch"])

    def __init__(self, name: str, split: str | None = None, root: Root = None) -> None:
        super().__init__(name, split, root)
        self._sets: dict[int, GraphSet] = {}
        self._encoded: dict[str, list[Any]] = {}

    def graphs(self, seed: int) -> GraphSet:
        """The set of graphs with the split of that seed."""
        seed = self.split_of(seed)
        if seed not in self._sets:
            self._sets = {seed: self.load(seed)}
        return self._sets[seed]

    def load(self, seed: int) -> GraphSet:
        """Read the set with the split of that seed."""
        return load_graphs(self.name, self.root, split=self.split, seed=seed)

    @cached_property
    def measure(self) -> Measure:
        return measure_of(self.graphs(0).metric)

    def config_kind(self, model: str) -> type[RunConfig]:
        return TreesRunConfig if model == TREES else GraphRunConfig

    def default_of(self, model: str) -> tuple[Any, int, int]:
        """Default options, and fewer epochs for a set of more training nodes."""
        found = self.graphs(0)
        nodes = int(found.slices["x"].diff()[found.train_index].sum())
        longest = _MOST_EPOCHS * math.sqrt(_FULL_LENGTH / nodes)
        epochs = round(min(_MOST_EPOCHS, max(_LEAST_EPOCHS, longest)))
        config: Any = self.config_kind(model)(model)
        if model in STACKS:
            config = replace(config, network=replace(config.network, stack=STACKS[model][0]))
        return config, epochs, max(10, epochs // 3)

    def axes(self, config: Any) -> Axes:
        return axes_of("fingerprints" if config.model == TREES else "graph", config)

    def checked_options(self, configs: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        ends = self.graphs(0).slices["x"]
        if (size := given.get("batch_size")) is not None:  # in graphs, of their mean size
            nodes = checked_value("batch_size", size, int) * int(ends[-1]) / (len(ends) - 1)
            given = {**given, "nodes_per_batch": max(1, round(nodes))}
            del given["batch_size"]
        found = super().checked_options(configs, given)
        read = found.get("readout", "token")
        if self.graphs(0).level == "node" and read != "token":
            each = f"as {self.name} has a label for each node"
            raise ValueError(f"readout: got {read!r}, expected none or 'token', {each}")
        return found

    def check_buildable(self, config: Any) -> None:
        if isinstance(config, GraphRunConfig):
            with torch.random.fork_rng(devices=[]):
                network_of(config, self.graphs(0))

    def known_model(self, model: str) -> str:
        """The name itself, if a network of that name fits; fingerprints only of molecules."""
        if super().known_model(model) == TREES:
            check_molecules(self.graphs(0))
        return model

    def encoded(self, found: GraphSet, needs: dict[str, int]) -> list[Any]:
        """The graphs with what `needs` names; sets that differ in the split alone share them."""
        tensors = (value for value in found._data.to_dict().values() if isinstance(value, Tensor))
        name = f"{needs} {digest(tensors)}"
        known = self._encoded.pop(name, None) or list(precomputed(found, **needs))
        self._encoded[name] = known
        while len(self._encoded) > _SETS_KEPT:
            self._encoded.pop(next(iter(self._encoded)))
        return known

    def prepare(self, config: Any, seed: int) -> tuple[Task, Source]:
        if config.model == TREES:
            raise ValueError(f"model: {config.model} is not trained by gradients; `bench` runs it")
        facts, own = self.graphs(seed), self.own_models.get(config.model)
        needs = {} if own else graph_zoo.precomputed(config.model, config.network)
        batches = GraphSets(
            self.encoded(facts, needs),
            facts.train_index, facts.val_index, facts.test_index,
            nodes_per_batch=config.nodes_per_batch, name=facts.name, seed=seed,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):  # the caller's state comes back
            torch.manual_seed(seed)
            model = network_of(config, facts, own)
        task = GraphTask(
            model, kind=facts.kind, num_outputs=facts.num_outputs, metric=facts.metric,
            optimizer=config.optimizer,
            statistics=batches.statistics() if facts.kind == "regression" else None,
        )  # fmt: skip
        return task, batches

    def run(self, config: Any, *, seed: int, **how: Any) -> RunResult:
        if config.model == TREES:
            return run_trees(config, self.graphs(seed), seed=seed)
        return super().run(config, seed=seed, **how)

    def attention_mass(self, result: RunResult) -> list[dict[str, float | int]]:
        """The mean over the nodes of validation; pairs without a path or with a token left out."""
        nodes, sums = 0, dict[tuple[int, int], list[float]]()
        for batch in result.batches.evaluation_batch().val:
            maps = attention_maps(result.model, batch)
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


class OwnGraphs(GraphBenchTask):
    """A list of the user's graphs with labels, as `datasets.own_graphs.graph_set` takes it."""

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
        self.split = self.graphs(0).split
        for position, graph in enumerate(self.own if self.graphs(0).level == "node" else ()):
            if int(graph.y.max()) < 0:
                raise ValueError(
                    f"graph {position}: y is -1 for all nodes, so that no label is left; take the "
                    "graph out"
                )
        self.sign(self.own)

    def settings(self) -> Settings:
        return super().settings() | {"kind": self.graphs(0).kind}

    def load(self, seed: int) -> GraphSet:
        return graph_set(
            self.own, name=self.name, kind=self.kind, metric=self.asked, split=self.parts, seed=seed
        )


def check_molecules(graphs: GraphSet) -> list[str]:
    """The molecules' SMILES, all of which rdkit, if installed, has to read."""
    if graphs.smiles is None:
        raise ValueError(f"model: {TREES} reads molecules, and {graphs.name} has no SMILES")
    for package in ("rdkit", "lightgbm"):
        if find_spec(package) is None:
            hint = "pip install 'pyg-graphtheory[molecules]'"
            raise ValueError(f"model: {TREES} needs {package}: {hint}")
    if (wrong := _unread(tuple(graphs.smiles))) is not None:
        raise ValueError(
            f"model: {TREES} cannot read the SMILES of graph {wrong}, {graphs.smiles[wrong]!r}; "
            "take the graph out"
        )
    return graphs.smiles


@lru_cache(maxsize=2)
def _unread(smiles: tuple[str, ...]) -> int | None:
    from rdkit import Chem
    from rdkit.rdBase import BlockLogs

    with BlockLogs():  # its own lines on the error stream
        return next((i for i, s in enumerate(smiles) if Chem.MolFromSmiles(s) is None), None)


def run_trees(config: TreesRunConfig, graphs: GraphSet, *, seed: int) -> RunResult:
    """Train all trees of each label once; they need no epochs, so that validation chooses none."""
    import lightgbm

    kind = lightgbm.LGBMRegressor if graphs.kind == "regression" else lightgbm.LGBMClassifier
    which = (config.fingerprint, config.radius, config.bits)
    counts, y = _counts(tuple(check_molecules(graphs)), *which), torch.as_tensor(graphs._data.y)
    parts = [graphs.train_index, graphs.val_index, graphs.test_index]
    options = {name: getattr(config, name) for name in _OF_TREES}
    options |= {"is_unbalance": True} if graphs.kind == "multilabel" else {}
    began, found, leaves = time.perf_counter(), list[list[Tensor]](), 0
    for label in [y] if graphs.kind == "multiclass" else y.unbind(1):
        train = parts[0][~label[parts[0]].isnan()] if label.is_floating_point() else parts[0]
        given = label[train].numpy()
        if len(np.unique(given)) < 2:  # nothing to tell apart: every molecule is predicted alike
            flat = float(given[0]) if len(given) else 0.0
            found.append([torch.full((len(part), 1), flat) for part in parts[1:]])
            continue
        threads = torch.get_num_threads()
        model = kind(**options, random_state=seed, n_jobs=threads, deterministic=True, verbose=-1)
        model.fit(counts[train.numpy()], given)
        leaves += sum(tree["num_leaves"] for tree in model.booster_.dump_model()["tree_info"])
        outputs = (np.asarray(model.predict(counts[p.numpy()], raw_score=True)) for p in parts[1:])
        found.append([_columns(output, graphs.kind) for output in outputs])
    seconds = (time.perf_counter() - began) / config.n_estimators
    score = SCORES[graphs.metric]
    (train_y, *held) = (y[part] for part in parts)
    val, test = (
        score(torch.cat(columns, 1), true)
        for columns, true in zip(zip(*found, strict=True), held, strict=True)
    )
    trees = config.n_estimators
    fit = FitResult(test, val, trees, trees, seconds, float("nan"), [])
    constant = constant_score(score, graphs.kind, train_y, held[1], graphs.num_outputs)
    return RunResult(fit, None, None, leaves, constant)


@lru_cache(maxsize=2)
def _counts(smiles: tuple[str, ...], names: str, radius: int, bits: int) -> np.ndarray:
    """Count the substructures of each molecule, float32 [G, bits of each fingerprint]."""
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator as makers

    generators = {
        "morgan": makers.GetMorganGenerator(radius=radius, fpSize=bits),
        "torsion": makers.GetTopologicalTorsionGenerator(fpSize=bits),
        "paths": makers.GetRDKitFPGenerator(fpSize=bits),
    }
    chosen = [generators[name] for name in names.split("+")]
    molecules = map(Chem.MolFromSmiles, smiles)
    rows = [[g.GetCountFingerprintAsNumPy(molecule) for g in chosen] for molecule in molecules]
    return np.stack([np.concatenate(row) for row in rows]).astype(np.float32)


def _columns(found: np.ndarray, kind: str) -> Tensor:
    values = torch.from_numpy(found).float().reshape(len(found), -1)
    one = kind == "multiclass" and values.size(1) == 1  # two classes have one decision value
    return pad(values, (1, 0)) if one else values
