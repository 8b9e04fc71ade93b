"""One network with one set of options, trained on one split of one graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.sampling import Sampling
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.train import (
    AdamOptions,
    FitResult,
    FullGraph,
    NodeTask,
    SampledGraph,
    SampledLayers,
    fit,
)
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.patterns import Compose

_SPARSE_BELOW = 0.1
_EDGES_AT_ONCE, _BATCH = 10_000_000, 1024


@dataclass(frozen=True)
class NodeTrial:
    """Everything that is chosen on validation.

    Attributes:
        model: One of `zoo.NAMES`.
        network: Options of the network.
        optimizer: Options of Adam.
        degree: Give every node the logarithm of its degree as one feature more.
        row_scale: Scale rows of non-negative features that sum to more than 1 down to that.
        sampling: What a training step sees of the graph, of networks that learn on samples.
        undirected: Give the graph both directions of each edge; None does so where it is the custom
            for a set whose edges are directed as published (ogbn-arxiv).
    """

    model: str
    network: zoo.NetworkConfig = field(default_factory=zoo.NetworkConfig)
    optimizer: AdamOptions = field(default_factory=AdamOptions)
    degree: bool = False
    row_scale: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    undirected: bool | None = None

    @property
    def inputs(self) -> dict[str, bool]:
        """What `load` does to features and edges."""
        found = {"degree": self.degree, "row_scale": self.row_scale}
        return found if self.undirected is None else found | {"undirected": self.undirected}

    def fitting(self, edges: int) -> NodeTrial:
        """Itself, in batches of labeled nodes for a graph of more edges than a step should hold."""
        if edges <= _EDGES_AT_ONCE or self.sampling.batch_size is not None:
            return self
        return replace(self, sampling=replace(self.sampling, batch_size=_BATCH))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a log."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NodeTrial:
        """The inverse of `as_dict`."""
        return cls(
            values["model"],
            zoo.NetworkConfig(**values["network"]),
            AdamOptions(**values["optimizer"]),
            values["degree"],
            values.get("row_scale", True),
            Sampling(**values.get("sampling", {})),
            values.get("undirected"),
        )


@dataclass(frozen=True)
class Outcome:
    """What a trained trial gives.

    Attributes:
        fit: How well it did.
        model: The trained network.
        batches: Its data.
        parameters: Its trainable numbers.
        constant: Test score of the best constant prediction, chosen on the training labels; None
            where there are no test labels.
    """

    fit: FitResult
    model: Any
    batches: Any
    parameters: int
    constant: float | None = None


def prepare(
    data: Data, *, degree: bool = False, row_scale: bool = True, undirected: bool = False
) -> Data:
    """Features as a network gets them: sparse where mostly zero, and with `row_scale` rows scaled.

    Rows that sum to more than 1 then sum to 1; rows that sum to less, and features with negative
    entries, stay as they are. With `degree` one column more, log(1 + in-degree), standardized. With
    `undirected` both directions of each edge.
    """
    data = graphs.both_ways(data) if undirected else data.clone()
    x = data.x.to_dense() if data.x.layout == torch.sparse_csr else data.x
    if row_scale and bool((x >= 0).all()):
        x = x / x.sum(1, keepdim=True).clamp(min=1)
    if degree:
        count = Neighborhood.from_edge_index(data.edge_index, x.size(0)).degree()
        log = count.float().log1p()
        x = torch.cat([x, ((log - log.mean()) / log.std().clamp(min=1e-6))[:, None]], 1)
    few = x.size(1) >= 256 and int(x.count_nonzero()) < _SPARSE_BELOW * x.numel()
    data.x = _as_csr(x) if few else x
    return data


def _as_csr(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def load(
    dataset: str, root: str | PathLike[str] | None, split: str | None, seed: int, **inputs: bool
) -> Data:
    """A data set's split, prepared; `inputs` are the options of `prepare`."""
    inputs = {"undirected": graphs.describe(dataset).both_ways} | inputs
    return prepare(graphs.load(dataset, root, split=split, seed=seed), **inputs)


def task_of(trial: NodeTrial, data: Data, seed: int) -> tuple[NodeTask, FullGraph]:
    """The task of a trial and its batches; weights and draws follow from `seed`."""
    classes = int(data.num_classes)
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = zoo.build(
            trial.model, trial.network, num_features=data.x.size(1), num_classes=classes
        )
    batches = _batches(trial, data, seed)
    task = NodeTask(
        model, num_classes=classes, metric=data.metric, optimizer=trial.optimizer,
        kind=_kind(data), evaluator=data.get("evaluator"),
    )  # fmt: skip
    return task, batches


def _kind(data: Data) -> str:
    return "multilabel" if data.y.dim() == 2 else "multiclass"


def _batches(trial: NodeTrial, data: Data, seed: int) -> FullGraph:
    """All nodes in every step, or what `trial.sampling` says; evaluation is on all nodes."""
    whole, sampling = zoo.pattern_of(trial.model, trial.network), trial.sampling
    if trial.model not in zoo.SAMPLED:
        if sampling.batch_size is None:
            return FullGraph(data, whole, seed=seed)
        return SampledGraph(
            data, whole, num_neighbors=[sampling.fanout] * trial.network.layers,
            batch_size=sampling.batch_size, seed=seed,
        )  # fmt: skip
    sampler = sampling.pattern(data.edge_index[1].bincount(minlength=data.x.size(0)))
    return SampledLayers(
        data, Compose(whole, sampler), trial.network.layers,
        evaluation=whole, batch_size=sampling.batch_size, seed=seed,
    )  # fmt: skip


def run_trial(trial: NodeTrial, data: Data, *, seed: int, epochs: int, patience: int) -> Outcome:
    """Train once; everything random follows from `seed`."""
    task, batches = task_of(trial, data, seed)
    result = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    constant = constant_of_nodes(data, task)
    return Outcome(result, task.evaluated, batches, trainable(task.model), constant)


def trainable(model: torch.nn.Module) -> int:
    """How many numbers of a model learn."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def constant_of_nodes(data: Data, task: NodeTask) -> float | None:
    """Test score of the best constant prediction for nodes; None where there is no test."""
    test = data.get("test_mask")
    if test is None:
        return None
    train, y = data.y[data.train_mask], data.y[test]
    return constant_score(task.score, task.kind, train, y, task.num_classes)


def constant_score(
    score: Callable[[Tensor, Tensor], float], kind: str, train: Tensor, test: Tensor, outputs: int
) -> float | None:
    """Score of the best constant prediction: the commonest class, or the mean or median of a value.

    None where the scored labels have no such score, as the ROC AUC of one class.

    Args:
        score: (predictions, y) -> score.
        kind: "multiclass", "multilabel" or "regression".
        train: Labels that choose the constant.
        test: Labels that are scored; a class of -1 is none and is left out.
        outputs: Classes, labels or values.
    """
    if kind == "multiclass":
        test, constant = test[test >= 0], torch.zeros(outputs)
        constant[train[train >= 0].bincount(minlength=outputs).argmax()] = 1.0
    elif kind == "multilabel":
        constant = torch.zeros(outputs)
    else:  # the mean is best by squares, the median by absolute errors
        found = (train.nanmean(0), train.nanmedian(0).values)
        return min(score(constant.expand(len(test), -1), test) for constant in found)
    try:
        return score(constant.expand(len(test), -1), test)
    except ValueError:
        return None
