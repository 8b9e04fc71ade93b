"""The labeled nodes of one graph as a task, and what linear classifiers say of them before."""

import math
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Generator, Tensor

from graphtheory.lab.bench import node_config
from graphtheory.lab.bench.config import Axes, RunConfig, axes_of, with_options
from graphtheory.lab.bench.node_config import GraphFacts, NodeRunConfig, load, node_default, task_of
from graphtheory.lab.bench.rows import Difference, Measure, Row, joined, measure_of, reading
from graphtheory.lab.bench.task import BenchTask, RunResult, trainable
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graphs import Data, masks_of
from graphtheory.lab.datasets.node_readers import as_sparse_rows
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import FullGraph, Source, Task
from graphtheory.lab.train.nodes import MASKS, NodeTask, check_masks
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.nn import attention_maps


class NodeBenchTask(BenchTask):
    """The labeled nodes of one graph."""

    models = zoo.NAMES
    compared = zoo.COMPARED
    reads = "the nodes of one graph"

    def data(self, seed: int, **inputs: bool) -> Data:
        """The graph with the split of that seed, its features prepared."""
        return load(self.name, self.root, self.split, self.split_of(seed), **inputs)

    @cached_property
    def measure(self) -> Measure:
        return measure_of(describe(self.name).metric)

    def default_of(self, model: str) -> tuple[NodeRunConfig, int, int]:
        config, epochs, patience = node_default(self.facts, model, self.scales_rows)
        return config.fitting(self.num_edges), epochs, patience

    def axes(self, config: Any) -> Axes:
        """The same for every graph, but that two hops are left out where they reach too many."""
        found = axes_of("node", config)
        return {n: axis for n, axis in found.items() if n != "neighbors" or not self.facts.is_dense}

    def fits(self, config: Any) -> bool:
        """Whether a network has no more trainable parameters than its graph can teach.

        50,000, or where these are more, ten for each edge and each feature of a node. It keeps
        candidates small on a tiny graph, where wide and deep networks are as fast as others.
        """
        if config.model in self.own_models:
            return True
        facts, network = self.facts, config.network
        with torch.random.fork_rng(devices=[]):
            built = zoo.build(config.model, network, num_features=facts.features, num_classes=2)
        return trainable(built) <= max(50_000, 10 * (facts.edges + facts.nodes * facts.features))

    @cached_property
    def scales_rows(self) -> bool:
        """Whether default options scale rows: by validation labels, else where labels are few."""
        return scales_rows(self.data(0, row_scale=False), otherwise=self.facts.few_labels)

    @cached_property
    def facts(self) -> GraphFacts:
        """The statistics that its default options depend on, by the split of seed 0."""
        return GraphFacts.of(self.data(0, row_scale=False, undirected=False))

    @property
    def num_edges(self) -> int:
        """The number of edges, 0 where it is not known before the graph is read."""
        return dict(describe(self.name).counts).get("edges", 0)

    def check_buildable(self, config: NodeRunConfig) -> None:
        with torch.random.fork_rng(devices=[]):
            zoo.build(config.model, config.network, num_features=1, num_classes=2)
        zoo.pattern_of(config.model, config.network)

    @cached_property
    def num_nodes(self) -> int:
        return self.facts.nodes

    def config_kind(self, model: str) -> type[RunConfig]:
        return NodeRunConfig

    def config(self, model: str, epochs: int | None = None) -> tuple[NodeRunConfig, int, int]:
        config, longest, patience = super().config(model, epochs)
        if model in self.own_models:
            return config, longest, patience
        return config.fitting(self.num_edges), longest, patience

    def prepare(self, config: NodeRunConfig, seed: int) -> tuple[Task, Source]:
        own = self.own_models.get(config.model)
        inputs = {"row_scale": False} if own else config.inputs
        return task_of(config, self.data(seed, **inputs), seed, own.network if own else None)

    def attention_mass(self, result: RunResult) -> list[dict[str, float | int]]:
        batch = result.batches.evaluation_batch()
        maps = attention_maps(result.model, batch.x, batch.neighborhood)
        return mass_by_distance([found.weights for found in maps], batch.neighborhood)


_RANDOM, _GIVEN = "random-60-20-20", "given"


class OwnNodes(NodeBenchTask):
    """One graph of the user's with a class for each node, -1 for none.

    Seed s takes column s mod S of masks [N, S]; without masks it draws 60, 20 and 20 percent.
    """

    def __init__(self, data: Data, name: str = "graph", metric: str = "accuracy") -> None:
        for unread in ("edge_weight", "edge_attr"):
            if (values := data.get(unread)) is None:
                continue
            if len(values) != data.num_edges:
                got = f"got {len(values)} rows, expected {data.num_edges}, one for each edge"
                raise ValueError(f"data.{unread}: {got}")
            why = "the models for nodes here ignore it; your own network can read it"
            warnings.warn(f"data.{unread}: {why}", stacklevel=2)
        y, given = _checked_labels(data), _has_masks(data)
        super().__init__(name, _GIVEN if given else _RANDOM)
        classes, fitting = int(y.max()) + 1, NodeTask.metrics["multiclass"]
        if metric not in (fitting if classes == 2 else fitting[:1]):
            expected = " or ".join(fitting) if classes == 2 else fitting[0]
            raise ValueError(f"metric: got {metric!r}, expected {expected} for {classes} classes")
        self.measure, self.own = measure_of(metric), data.clone()
        x = data.x.detach()  # as the networks read features: dense, or sparse by rows
        if x.layout not in (torch.strided, torch.sparse_csr):
            x = as_sparse_rows(x)
        self.own.x, self.own.y = x.to(torch.float32), y.long()
        _warn_of_scales(self.own.x)
        try:
            FullGraph(self.data(0, row_scale=False))  # which checks it
        except IndexError as error:
            raise ValueError(str(error)) from error
        self.sign([self.own])

    def data(self, seed: int, **inputs: bool) -> Data:
        data = self.own.clone()
        data.update(masks_of(data, str(self.split), seed, Generator().manual_seed(seed)))
        data.name, data.split, data.metric = self.name, self.split, self.measure.name
        data.num_classes = int(data.y.max()) + 1
        return node_config.prepare(data, **inputs)

    @cached_property
    def sees_two_hops(self) -> bool:
        """Whether graph transformers begin with two hops: the second helps a linear classifier."""
        if self.facts.is_dense:
            return False
        return helpful_hops(hop_rows(self.data(0, row_scale=False), self.name)) > 1

    def default_of(self, model: str) -> tuple[node_config.NodeRunConfig, int, int]:
        config, epochs, patience = super().default_of(model)
        if model in zoo.ATTENDING and self.sees_two_hops:
            config = with_options(config, {"neighbors": "2"})
        return config, epochs, patience

    def remark(self, models: Sequence[str]) -> str:
        far = [model for model in models if model in zoo.ATTENDING]
        if not far or not self.sees_two_hops:
            return ""
        who = joined(far, "attends", "attend")
        why = "a linear classifier predicts better with features of the second hop"
        return f"{who} to two hops here, because {why}."

    @property
    def num_edges(self) -> int:
        return int(self.own.num_edges)


def _checked_labels(data: Data) -> Tensor:
    x, y = data.x, data.get("y")
    if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
        y = y[:, 0]
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dim() != 1:
        raise ValueError(f"data.y: got {_shape(y)}, expected whole numbers [N], a class for each")
    if not isinstance(x, Tensor) or not len(x) or len(y) != len(x):
        degrees = "; degrees (torch_geometric.transforms.OneHotDegree) do"
        rows, how = (f"{len(x)} rows", "") if isinstance(x, Tensor) else (repr(x), degrees)
        raise ValueError(f"data.x: got {rows} beside {len(y)} labels, expected one for each{how}")
    if x.dim() != 2 or x.is_complex():
        raise ValueError(f"data.x: got {_shape(x)}, expected real numbers [N, F]")
    largest, labeled = int(y.max()), int((y >= 0).sum())
    if not 1 <= largest < labeled:
        raise ValueError(
            f"data.y: the largest class is {largest} among {labeled} nodes with one, expected "
            "two classes or more, numbered from 0"
        )
    return y


def _warn_of_scales(x: Tensor) -> None:
    """Warn of columns that are far larger than others, and drown them."""
    sizes = x.abs().amax(0) if x.layout == torch.strided else torch.zeros(1)
    least = min(sizes[sizes > 0].tolist(), default=0.0)
    if large := (sizes > 100 * max(least, 1.0)).nonzero().flatten().tolist():
        warnings.warn(
            f"data.x: columns {large[:5]} of {x.size(1)} have values up to {sizes.max():,.4g}, "
            f"others up to {least:.4g}, which drown among them; standardize first: x = (x - "
            "x.mean(0)) / x.std(0).clamp(min=1e-6)", stacklevel=3,
        )  # fmt: skip


def _shape(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _has_masks(data: Data) -> bool:
    """Whether there are masks, every column of which has to be a split."""
    lacking, nodes = [name for name in MASKS if data.get(name) is None], len(data.x)
    if len(lacking) == len(MASKS):
        return False
    if lacking:
        missing = ", ".join(lacking)
        raise ValueError(f"data: {missing} is missing, expected all three masks or none")
    for name in MASKS:
        mask = data[name]
        fits = isinstance(mask, Tensor) and mask.dtype in (torch.bool, torch.uint8)
        if not fits or mask.dim() not in (1, 2) or len(mask) != nodes or not mask.numel():
            raise ValueError(
                f"data.{name}: got {_shape(mask)}, expected Bool [{nodes}] or [{nodes}, S]"
            )
    for seed in range(max(data[name].numel() // nodes for name in MASKS)):
        try:
            check_masks(masks_of(data, _GIVEN, seed, Generator()), nodes)
        except ValueError as error:
            raise ValueError(f"{error}, in the split of seed {seed}") from error
    return True


ACCURACY, GAIN = "linear accuracy", "linear gain"  # rows of `hop_rows`
_FOLDS, _LABELS, _HOPS = 5, 2000, 3
_TRAIN, _VAL = 2000, 4000  # nodes that tell whether rows are scaled, at most
_STRENGTHS = (1.0, 100.0)
_PAIRS = 20_000_000  # of labeled nodes and others at one distance, at most


def hop_rows(data: Data, dataset: str) -> list[Row]:
    """Cross-validated accuracy of a linear classifier on mean features at distance 0, 1, ..., z.

    It reads nodes of training and validation, and classes with five of them; there have to be two.
    """
    labels = data.y.numpy()
    rows = _nodes_of(data.train_mask | data.val_mask, _LABELS)
    rows = rows[np.bincount(labels[rows])[labels[rows]] >= _FOLDS]
    y, means, found, before = labels[rows], list[Any](), list[Row](), None
    if len(np.unique(y)) < 2:
        return []
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression(max_iter=100))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    for z, mean in enumerate(_means(data, rows)):
        means.append(mean)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # no last digit is needed
            right = cross_val_predict(model, sp.hstack(means).tocsr(), y, cv=folds) == y
        gains: list[float] = [] if before is None else (right.astype(float) - before).tolist()
        for name, values in ((ACCURACY, right.tolist()), (GAIN, gains)):
            found += [Row.of(name, values, "1", dataset=dataset, distance=z)] if values else []
        before = right
    return found


def _means(data: Data, rows: np.ndarray) -> Iterator[sp.csr_matrix]:
    """Mean features of the nodes at distance 0, 1, ... from each of these nodes."""
    (sources, targets), nodes = data.edge_index.numpy(), len(data.y)
    step = sp.csr_matrix((np.ones(len(sources), bool), (targets, sources)), (nodes, nodes))
    x, ring = _csr_of(data.x), sp.eye(nodes, dtype=bool, format="csr")[rows]
    seen = ring
    for _ in range(_HOPS + 1):
        yield sp.diags(1 / np.maximum(ring.getnnz(1), 1)) @ ring @ x
        if not 0 < (ring @ step.getnnz(1)).sum() <= _PAIRS:
            return
        ring = (ring @ step) > seen
        seen = seen + ring


def gains_of(rows: Sequence[Row]) -> dict[int, Difference]:
    """What each distance adds to the accuracy of `hop_rows`, paired by node."""
    return {
        row.parameters["distance"]: Difference(
            "", row.value, (row.std or 0.0) / math.sqrt(row.repeats), 0, row.repeats
        )
        for row in rows
        if row.name == GAIN
    }


def helpful_hops(rows: Sequence[Row]) -> int:
    """The largest distance whose nodes help a linear classifier; 0 where none does."""
    return max((z for z, gain in gains_of(rows).items() if reading(gain) == "ahead"), default=0)


def scales_rows(data: Data, otherwise: bool) -> bool:
    """Whether rows are scaled, by how many validation labels a linear classifier has right.

    Logistic regression reads a node's features beside the mean over its neighbors, with rows as
    they are and scaled as `prepare` does; one has to be ahead by a standard error of the better
    share. Where neither is, and with several labels a node, `otherwise` holds.
    """
    dense = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    if bool((dense < 0).any()):
        return False
    if data.y.dim() > 1:
        return otherwise
    plain, scaled = (
        _csr_of(node_config.prepare(data, row_scale=scale).x) for scale in (False, True)
    )
    if np.array_equal(plain.data, scaled.data):
        return False
    train, val = _nodes_of(data.train_mask, _TRAIN), _nodes_of(data.val_mask, _VAL)
    y = data.y.numpy()
    if len(val) == 0 or len(np.unique(y[train])) < 2:
        return otherwise
    (sources, targets), nodes = data.edge_index.numpy(), plain.shape[0]
    adjacency = sp.csr_matrix((np.ones(len(sources)), (targets, sources)), (nodes, nodes))
    mean = sp.diags(1 / np.maximum(adjacency.sum(1).A1, 1)) @ adjacency
    scores = []
    for x in (plain, scaled):
        seen, held = (sp.hstack([x[rows], mean[rows] @ x]).tocsr() for rows in (train, val))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a comparison needs no last digit
            fits = [LogisticRegression(C=c, max_iter=50).fit(seen, y[train]) for c in _STRENGTHS]
        scores.append(max(float(fit.score(held, y[val])) for fit in fits))
    best = max(scores)
    if abs(scores[1] - scores[0]) <= math.sqrt(best * (1 - best) / len(val)):
        return otherwise
    return scores[1] > scores[0]


def _csr_of(x: Tensor) -> sp.csr_matrix:
    """Features, dense or sparse by rows, as a matrix of scipy."""
    if x.layout != torch.sparse_csr:
        return sp.csr_matrix(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_matrix(parts, tuple(x.shape))


def _nodes_of(mask: Tensor, most: int) -> np.ndarray:
    """The nodes of a mask in order, at most that many, drawn with a fixed seed."""
    nodes = mask.nonzero().flatten()
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))
    return nodes[order[:most].sort().values].numpy()
