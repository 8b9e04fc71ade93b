"""One network for the nodes of a graph: its options, what it reads, and its training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphtheory import patterns
from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.config import AXES, RunConfig, readers_of, shown
from graphtheory.lab.bench.task import Root, RunResult, kept_options, train
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.node_readers import as_sparse_rows
from graphtheory.lab.train import AdamOptions, FullGraph, NodeTask, SampledGraph, SampledLayers
from graphtheory.lab.train.contract import check_at_least
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.patterns.degree_groups import group_by_degree

SAMPLERS = ("degree-groups", "fastgcn", "ladies", "graphsage", "uniform")
_GROUPS = 5
_SPARSE_BELOW = 0.1
_EDGES_AT_ONCE, _BATCH, _EVALUATED = 10_000_000, 1024, 4096  # of nodes, the last two
_PAIRS = 500_000  # of nodes within two hops, about, that attention can hold


@dataclass(frozen=True)
class Sampling:
    """The labeled nodes of a step, and how the nodes that they aggregate from are drawn.

    Networks of `zoo.SAMPLED` draw a `share` of all nodes, graphsage of the mean degree, by a
    sampler for each layer; others, with a `batch_size`, as PyG's NeighborLoader does.
    """

    sampler: str = "degree-groups"
    share: float = 0.1
    batch_size: int | None = None  # labeled nodes of a step; None is all of them
    fanout: int = 10

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ValueError(
                f"sampler: got {self.sampler!r}, expected one of {', '.join(SAMPLERS)}"
            )
        patterns.UniformNodes(share=self.share)  # which checks the share
        check_at_least(1, batch_size=self.batch_size, fanout=self.fanout)

    def pattern(self, degree: Tensor) -> patterns.Pattern:
        """The sampler for a graph whose nodes have these degrees, int64 [N]."""
        if self.sampler == "graphsage":
            return patterns.GraphSAGE(max(1, round(self.share * float(degree.double().mean()))))
        if self.sampler == "degree-groups":
            # Groups that no node falls into are left out.
            _, group = group_by_degree(degree, _GROUPS).unique(return_inverse=True)
            return patterns.DegreeGroups(share=self.share, assignment=group)
        if self.sampler == "uniform":
            return patterns.UniformNodes(share=self.share)
        kind = patterns.FastGCN if self.sampler == "fastgcn" else patterns.LADIES
        return kind(share=self.share, replace=False)


@dataclass(frozen=True)
class NodeRunConfig(RunConfig):
    """A network for the nodes of one graph with its options; `prepare` explains the inputs."""

    network: zoo.NetworkConfig = field(default_factory=zoo.NetworkConfig)
    optimizer: AdamOptions = field(default_factory=AdamOptions)
    degree: bool = False
    row_scale: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    undirected: bool | None = None  # None: as is the custom for the set, such as ogbn-arxiv
    readers: ClassVar[Mapping[str, Sequence[str]]] = readers_of("node")

    @property
    def inputs(self) -> dict[str, bool]:
        """What `load` does to features and edges."""
        found = {"degree": self.degree, "row_scale": self.row_scale}
        return found if self.undirected is None else found | {"undirected": self.undirected}

    def fitting(self, edges: int) -> NodeRunConfig:
        """The same, in batches of labeled nodes for a graph of more edges than a step can hold."""
        if edges <= _EDGES_AT_ONCE or self.sampling.batch_size is not None:
            return self
        return replace(self, sampling=replace(self.sampling, batch_size=_BATCH))

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if one of the given options has no effect beside the others."""
        for name, residual in (("ffn", True), ("project", False)):
            if given.get(name) and self.network.residual != residual:
                raise ValueError(
                    f"{name}: got true, expected residual={shown(residual)} beside it; the "
                    f"{self.model} here has residual={shown(not residual)}"
                )
        for name in ("linear_residual", "gate"):
            if given.get(name) and self.network.output != "linear":
                raise ValueError(f"{name}: got true, expected output=linear beside it")
        if "fanout" in given and self.sampling.batch_size is None:
            raise ValueError(f"fanout: got {given['fanout']}, expected a batch_size beside it")


@dataclass(frozen=True)
class GraphFacts:
    """Graph statistics that default options depend on; no label of validation or test is read."""

    nodes: int
    edges: int  # directed ones
    labels_per_class: float  # labeled training nodes, a class on average
    labeled: float  # share of the nodes that are labeled for training
    features: int  # columns of them

    @property
    def few_of_a_class(self) -> bool:
        """Whether there are few labels to learn a class from: small graphs, citation graphs."""
        return self.labels_per_class < 50

    @property
    def few_labels(self) -> bool:
        """Whether most nodes, and most of what is learned, are without labels: citation graphs."""
        return self.few_of_a_class and self.labeled < 0.2

    @property
    def has_few_features(self) -> bool:
        """Whether every feature counts: numbers and attributes, in contrast to words."""
        return self.features < 64

    @property
    def is_dense(self) -> bool:
        """Whether two hops reach more nodes than attention has memory for."""
        return self.edges**2 / max(1, self.nodes) > _PAIRS

    @classmethod
    def of(cls, data: Data) -> GraphFacts:
        """The statistics of a graph with `train_mask` and `num_classes`."""
        labels, nodes = int(data.train_mask.sum()), int(data.num_nodes)
        shares = labels / int(data.num_classes), labels / nodes
        return cls(nodes, int(data.num_edges), *shares, int(data.x.size(1)))


_MANY_EDGES = 300_000  # with which an epoch takes long
_TINY = 100  # nodes of a graph that is too small for deep networks


def node_default(
    facts: GraphFacts, model: str, row_scale: bool = False
) -> tuple[NodeRunConfig, int, int]:
    """The default options of a model on a graph by its labels and features; epochs, patience."""
    found = AXES["node defaults"]  # benchmarks/default_options.py has what searches say of them
    first = found["few labels" if facts.few_labels else "many labels"] | {"row_scale": row_scale}
    large = facts.edges > _MANY_EDGES
    if not facts.few_labels:
        first |= found["few of a class"] if facts.few_of_a_class else {}
        if facts.has_few_features:
            first |= found["few features"] | {"layers": 3 if large or facts.nodes <= _TINY else 4}
    if model in zoo.ATTENDING:
        first |= {"root_weight": not facts.few_labels}
    return NodeRunConfig.of(model, **first), 150 if large else 200, 50


_UNKNOWN = GraphFacts(
    nodes=10_000, edges=100_000, labels_per_class=1000, labeled=0.6, features=1000
)


def tuned_config(dataset: str, model: str) -> tuple[NodeRunConfig, int, int]:
    """A network's kept options on a data set, else defaults, with its epochs and patience."""
    if model not in zoo.NAMES:
        raise ValueError(f"model: got {model!r}, expected one of {', '.join(zoo.NAMES)}")
    if (kept := kept_options(dataset, model)) is not None:
        return NodeRunConfig.from_dict(kept[0]), *kept[1:]
    return node_default(_UNKNOWN, model)


def prepare(
    data: Data, *, degree: bool = False, row_scale: bool = True, undirected: bool = False
) -> Data:
    """Features as a network gets them: sparse where mostly zero, and with `row_scale` rows scaled.

    Rows that sum to more than 1 then sum to 1; features with negative entries stay as they are.
    With `degree` one column more, log(1 + in-degree), standardized; `undirected` adds edges back.
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
    data.x = as_sparse_rows(x) if few else x
    return data


def load(dataset: str, root: Root, split: str | None, seed: int, **inputs: bool) -> Data:
    """Load a data set's split, prepared; `inputs` are the options of `prepare`."""
    inputs = {"undirected": graphs.describe(dataset).both_ways} | inputs
    return prepare(graphs.load(dataset, root, split=split, seed=seed), **inputs)


def task_of(
    config: Any, data: Data, seed: int, own: Callable[[int, int, Data], nn.Module] | None = None
) -> tuple[NodeTask, FullGraph]:
    """The task of a configuration and its batches; weights and draws follow from `seed`."""
    features, classes = data.x.size(1), int(data.num_classes)
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = (
            own(features, classes, data)
            if own
            else zoo.build(config.model, config.network, num_features=features, num_classes=classes)
        )
    task = NodeTask(
        model, num_classes=classes, metric=data.metric, optimizer=config.optimizer,
        kind="multilabel" if data.y.dim() == 2 else "multiclass",
    )  # fmt: skip
    if own is not None:
        return task, FullGraph(data, seed=seed)
    network, sampling = config.network, config.sampling
    whole, size, layers = zoo.pattern_of(config.model, network), sampling.batch_size, network.layers
    # a layer at a time, but for sgformer, whose attention is over all nodes
    by_rows = data.edge_index.size(1) > _EDGES_AT_ONCE and config.model != "sgformer"
    how: dict[str, Any] = {"seed": seed, "evaluation_rows": _EVALUATED if by_rows else None}
    if config.model in zoo.SAMPLED:
        sampler = sampling.pattern(data.edge_index[1].bincount(minlength=data.x.size(0)))
        how |= {"evaluation": whole, "batch_size": size}
        return task, SampledLayers(data, patterns.Compose(whole, sampler), layers, **how)
    if size is None:
        return task, FullGraph(data, whole, seed=seed)
    drawn = [sampling.fanout] * layers
    return task, SampledGraph(data, whole, num_neighbors=drawn, batch_size=size, **how)


def train_nodes(
    config: NodeRunConfig, data: Data, *, seed: int, epochs: int, patience: int
) -> RunResult:
    """Train once on the nodes of a graph; everything random follows from `seed`."""
    return train(*task_of(config, data, seed), seed=seed, epochs=epochs, patience=patience)
