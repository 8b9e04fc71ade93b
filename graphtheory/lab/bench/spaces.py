"""What the search on validation may choose from, by what is known of a graph or a set of graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from zlib import crc32

import torch

from graphtheory.lab.bench.config import RunConfig
from graphtheory.lab.bench.graph_config import GraphRunConfig
from graphtheory.lab.bench.node_config import SAMPLERS, NodeRunConfig
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.zoo.node_models import ATTENDING, ENCODED


@dataclass(frozen=True)
class Space:
    """The options that a search draws from.

    Attributes:
        epochs: Upper bound.
        patience: Epochs without a better validation score.
        search_epochs: Upper bound for a candidate of the search; None is `epochs`.
        search_patience: Of a candidate of the search; None is `patience`.
        search_seeds: Splits (seeds) that a candidate is judged on, by mean validation score.
        shared: Axes of every network: option -> values. A value may be several options at once.
        extra: Axes that one network has besides; a network that is not listed has none.
        first: Options of the first candidate of every network, which no search has to find.
        first_of: Those that one network has besides or instead.
        config: Kind of configuration that a draw becomes.
    """

    epochs: int
    patience: int
    search_seeds: int
    shared: dict[str, tuple[Any, ...]]
    extra: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    first: Mapping[str, Any] | None = None
    first_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    search_epochs: int | None = None
    search_patience: int | None = None
    config: type[RunConfig] = NodeRunConfig

    def along(self, name: str, value: Any) -> Space:
        """The same with one option of every network set to a value."""
        return replace(self, shared=self.shared | {name: (value,)}).beginning_with(**{name: value})

    def beginning_with(self, **options: Any) -> Space:
        """The same with these options in the first candidate; itself where none is given."""
        return self if self.first is None else replace(self, first={**self.first, **options})

    def candidates(self, model: str, budget: int) -> list[Any]:
        """Draw `budget` different configurations, of which the first one is given.

        The others take every value as often: an axis of n values takes each of them once in every
        n draws, in random order. Candidate i of one network shares candidate i's options with every
        other network, as far as both have them: gt and gt-plain differ in the encoding alone.
        """
        axes = self.shared | self.extra.get(model, {})
        draws: Iterable[dict[str, Any]] = (
            {name: values[_turn(name, len(values), i)] for name, values in axes.items()}
            for i in range(50 * budget)
        )
        found: dict[str, Any] = {}
        if self.first is not None:
            draws = chain([{**self.first, **self.first_of.get(model, {})}], draws)
        for draw in draws:
            if len(found) == budget:
                break
            config = self.config.of(model, **_flat(draw))
            found.setdefault(repr(config), config)
        return list(found.values())


def _turn(name: str, count: int, draw: int) -> int:
    """Which of its `count` values an axis takes in a draw."""
    turn, place = divmod(draw, count)
    generator = torch.Generator().manual_seed(crc32(f"{name} {turn}".encode()))
    return int(torch.randperm(count, generator=generator)[place])


def _flat(draw: Mapping[str, Any]) -> dict[str, Any]:
    """A draw with the options of a value that is several of them."""
    out: dict[str, Any] = {}
    for name, value in draw.items():
        out |= value if isinstance(value, Mapping) else {name: value}
    return out


_FEW_OF_A_CLASS, _FEW_OF_ALL = 50, 0.2
_FEW_FEATURES = 64


@dataclass(frozen=True)
class GraphFacts:
    """Graph statistics that default options depend on; no label of validation or test is read.

    Attributes:
        nodes: All of them.
        edges: Directed ones.
        labels_per_class: Labeled training nodes, a class on average.
        labeled: Share of the nodes that are labeled for training.
        features: Columns of features.
    """

    nodes: int
    edges: int
    labels_per_class: float
    labeled: float
    features: int

    @property
    def few_of_a_class(self) -> bool:
        """Whether there are few labels to learn a class from: small graphs, citation graphs."""
        return self.labels_per_class < _FEW_OF_A_CLASS

    @property
    def few_labels(self) -> bool:
        """Whether most nodes, and most of what is learned, are without labels: citation graphs."""
        return self.few_of_a_class and self.labeled < _FEW_OF_ALL

    @property
    def has_few_features(self) -> bool:
        """Whether every feature counts: numbers and attributes, in contrast to words."""
        return self.features < _FEW_FEATURES

    @property
    def two_hops(self) -> float:
        """Estimate how many pairs of nodes are within two hops."""
        return self.edges * self.edges / max(1, self.nodes)

    @classmethod
    def of(cls, data: Data) -> GraphFacts:
        """The statistics of a graph with `train_mask` and `num_classes`."""
        labels, nodes = int(data.train_mask.sum()), int(data.num_nodes)
        return cls(
            nodes, int(data.num_edges), labels / int(data.num_classes), labels / nodes,
            int(data.x.size(1)),
        )  # fmt: skip


_NORMED: dict[str, Any] = {"residual": False, "activation": "relu", "input_dropout": 0.0}
_STACKS: tuple[dict[str, Any], ...] = (
    {"residual": False, "batch_norm": False, "layer_norm": False},
    _NORMED | {"batch_norm": True},
    _NORMED | {"layer_norm": True},
    {"residual": True},
)
"""Classic without a norm, or with one, as tuned classic networks have it; residual blocks."""
_ATTENTION: dict[str, tuple[Any, ...]] = {"heads": (1, 4), "attention_dropout": (0.0, 0.3)}
_ON_SAMPLES: dict[str, tuple[Any, ...]] = {
    "stack": ({"residual": False},),
    "layers": (2, 3),
    "hidden": (64, 128),
    "dropout": (0.0, 0.2, 0.5),
    "sampler": SAMPLERS,
    "share": (0.1, 0.3),
}
"""Of sampled-gcn; its own stack has no residual connections, and takes less dropout."""
_EDGES = (30_000, 300_000)  # to which the widest and deepest are tried, and the next
_PAIRS = 500_000  # of nodes within two hops, about

# With few labels two classic layers under strong dropout, as is the custom on citation graphs, and
# attention without a term of the node's own, as GCN and GAT are without one; with more of them
# residual blocks. Whether rows of features are scaled is asked of the validation labels. That edges
# join nodes of a class changes nothing: benchmarks/recipes.py has what the searches say.
_FEW: dict[str, Any] = {
    "residual": False, "layers": 2, "hidden": 64, "heads": 4, "dropout": 0.8, "lr": 0.01,
    "weight_decay": 1e-3, "row_scale": False,
}  # fmt: skip
_MANY: dict[str, Any] = {
    "residual": True, "layers": 2, "hidden": 64, "heads": 4, "dropout": 0.5, "lr": 0.005,
    "weight_decay": 5e-4, "row_scale": False,
}  # fmt: skip
_SMALL: dict[str, Any] = {"weight_decay": 5e-3}
_FEW_COLUMNS: dict[str, Any] = {"dropout": 0.2, "input_dropout": 0.0}


def _first(facts: GraphFacts, deepest: int) -> dict[str, Any]:
    """The default options, the same for every network."""
    if facts.few_labels:
        return _FEW
    found = _MANY | (_SMALL if facts.few_of_a_class else {})
    return found | _FEW_COLUMNS | {"layers": min(4, deepest)} if facts.has_few_features else found


def node_space(facts: GraphFacts) -> Space:
    """The space of a graph by what is known of it: its size, its labels and columns of features.

    The axes are those of tuned classic networks (Luo et al., 2024: norm, residual connection,
    depth, width, dropout), for every network. Wide and deep candidates are left out of graphs on
    which each would train for many minutes on a processor.
    """
    small, middle = (facts.edges <= edges for edges in _EDGES)
    gt = _ATTENTION | {
        "root_weight": (True, False),
        "neighbors": ("1", "2") if facts.two_hops <= _PAIRS else ("1",),
    }
    shared: dict[str, tuple[Any, ...]] = {
        "stack": _STACKS,
        "layers": (2, 3, 4, 6, 10) if small else (2, 3, 4) if middle else (2, 3),
        "hidden": (64, 128, 256, 512) if small else (64, 128, 256) if middle else (64, 128),
        "dropout": (0.2, 0.5, 0.7),
        "lr": (0.001, 0.003, 0.01),
        "weight_decay": (0.0, 5e-5, 5e-4, 5e-3),
        "row_scale": (True, False),
        "degree": (False, True),
    }
    extra = {
        **dict.fromkeys(ENCODED, gt | {"bias_lr": (None, 0.05)}),
        "gt-plain": gt,
        "gat": _ATTENTION,
        "gat-res": _ATTENTION,
        "sampled-gcn": _ON_SAMPLES,
    }
    few = facts.few_labels
    first = _first(facts, deepest=max(shared["layers"]))
    return Space(
        epochs=200 if middle else 150,
        patience=50,
        search_seeds=3 if facts.nodes <= 3000 else 1,
        shared=shared,
        extra=extra,
        first=first,
        first_of={model: {"root_weight": not few} for model in ATTENDING},
        search_epochs=80 if middle else 60,
        search_patience=50 if middle else 30,
    )


DEFAULT = node_space(
    GraphFacts(nodes=10_000, edges=100_000, labels_per_class=1000, labeled=0.6, features=1000)
)
"""That of a graph of which nothing is known."""

_FULL_LENGTH = 30_000  # training nodes of a set that is trained for all epochs
_MOST_EPOCHS, _LEAST_EPOCHS = 100, 30
_FEW_GRAPHS = 2000  # training graphs of a set on which one seed decides too little

GRAPH_AXES: dict[str, tuple[Any, ...]] = {
    "hidden": (64, 128),
    "layers": (3, 4),
    "dropout": (0.1, 0.3, 0.5),
    "lr": (1e-3, 2e-3),
    "weight_decay": (0.0, 1e-2),
    "decoupled": (True,),
    "average": (0.98,),
    "norm": ("batch", "layer"),
    "readout": ("mean", "sum"),
    "virtual_node": (False, True),
    "walk": (0, 16),
    "nodes_per_batch": (1024, 2048),
}
_HEADS: dict[str, tuple[Any, ...]] = {"heads": (4, 8), "attention_dropout": (0.0, 0.2)}
_GT_PLAIN = _HEADS | {"neighbors": ("all", "3"), "local": ("gine", None)}
GRAPH_AXES_OF: dict[str, dict[str, tuple[Any, ...]]] = {
    "gt": _GT_PLAIN | {"num_buckets": (10, 20), "value_encoding": (False, True)},
    "gt-plain": _GT_PLAIN,
    "gatv2": _HEADS,
    "mlp": {"walk": (0,), "virtual_node": (False,)},
}


def graph_space(graphs: int, nodes: int) -> Space:
    """The space of a set by its training part; a larger set is passed over less often.

    Args:
        graphs: Training graphs.
        nodes: Their nodes.
    """
    longest = math.sqrt(_FULL_LENGTH / nodes)
    epochs = round(min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _MOST_EPOCHS * longest)))
    return Space(
        epochs, patience=max(10, epochs // 3), search_seeds=2 if graphs < _FEW_GRAPHS else 1,
        shared=GRAPH_AXES, extra=GRAPH_AXES_OF, first={},
        search_epochs=max(_LEAST_EPOCHS, epochs // 2), config=GraphRunConfig,
    )  # fmt: skip
