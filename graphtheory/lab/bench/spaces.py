"""What the search on validation may choose from, and the options that searches have chosen.

The space follows from what is known of a graph. Chosen options are shipped with the package; those
that `graphtheory tune --keep` writes into the cache folder take their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from graphtheory.disk import replace_file
from graphtheory.lab.bench.config import AXES, RunConfig
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.files import cache_folder
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.zoo.node_models import ATTENDING, ENCODED, NAMES

FILE = Path(__file__).with_name("tuned.json")
Axes = dict[str, tuple[Any, ...]]
"""Options -> values to choose from; a value may be several options at once."""


@dataclass(frozen=True)
class Space:
    """The options that a search draws from, and for how long it and the winner train."""

    epochs: int  # upper bound
    patience: int  # epochs without a better validation score
    search_seeds: int  # splits that a candidate is judged on, by mean validation score
    shared: Axes  # of every network
    extra: dict[str, Axes] = field(default_factory=dict)  # that one network has besides
    first: Mapping[str, Any] | None = None  # options of the first candidate of every network
    first_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # besides or instead
    search_epochs: int | None = None  # of a candidate; None is `epochs`
    search_patience: int | None = None  # of a candidate; None is `patience`
    config: type[RunConfig] = NodeRunConfig  # that a draw becomes

    def default(self, model: str) -> Any:
        """The configuration of a model for which no search has chosen options."""
        return self.config.of(model, **{**(self.first or {}), **self.first_of.get(model, {})})

    def candidates(self, model: str, budget: int) -> list[Any]:
        """Draw `budget` different configurations, of which the first one is the default, if any.

        The others take every value as often: an axis of n values takes each of them once in every
        n draws, in random order. Candidate i of one network shares candidate i's options with every
        other network, as far as both have them: gt and gt-plain differ in the encoding alone.
        """
        axes = self.shared | self.extra.get(model, {})
        found = [] if self.first is None else [self.default(model)]
        for i in range(50 * budget):
            if len(found) == budget:
                break
            draw: dict[str, Any] = {}
            for name, values in axes.items():
                value = values[_turn(name, len(values), i)]
                draw |= value if isinstance(value, Mapping) else {name: value}
            if (config := self.config.of(model, **draw)) not in found:
                found.append(config)
        return found


def _turn(name: str, count: int, draw: int) -> int:
    """Which of its `count` values an axis takes in a draw."""
    turn, place = divmod(draw, count)
    generator = torch.Generator().manual_seed(crc32(f"{name} {turn}".encode()))
    return int(torch.randperm(count, generator=generator)[place])


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
    def two_hops(self) -> float:
        """Estimate how many pairs of nodes are within two hops."""
        return self.edges * self.edges / max(1, self.nodes)

    @classmethod
    def of(cls, data: Data) -> GraphFacts:
        """The statistics of a graph with `train_mask` and `num_classes`."""
        labels, nodes = int(data.train_mask.sum()), int(data.num_nodes)
        shares = labels / int(data.num_classes), labels / nodes
        return cls(nodes, int(data.num_edges), *shares, int(data.x.size(1)))


_EDGES = (30_000, 300_000)  # of a small and of a middle graph, at most
_PAIRS = 500_000  # of nodes within two hops, about


def _first(facts: GraphFacts, deepest: int) -> dict[str, Any]:
    """The default options, the same for every network.

    With few labels two classic layers under strong dropout, as is the custom on citation graphs,
    and attention without a term of the node's own, as GCN and GAT are without one; with more of
    them residual blocks. That edges join nodes of a class changes nothing: benchmarks/recipes.py
    has what searches say.
    """
    kept = AXES["node defaults"]
    if facts.few_labels:
        return kept["few labels"]
    found = kept["many labels"] | (kept["few of a class"] if facts.few_of_a_class else {})
    fewer = kept["few features"] | {"layers": min(4, deepest)}
    return found | fewer if facts.has_few_features else found


def node_space(facts: GraphFacts, row_scale: bool = False, batch_size: int | None = None) -> Space:
    """The space of a graph by what is known of it: its size, its labels and columns of features.

    The axes are those of tuned classic networks (Luo et al., 2024: norm, residual connection,
    depth, width, dropout), for every network; sampled-gcn, whose own stack has no residual
    connections, takes less dropout. Wide and deep candidates are left out of graphs on which each
    would train for many minutes on a processor. `row_scale` is that of the default options.
    """
    kept = AXES["node"]
    small, middle = (facts.edges <= edges for edges in _EDGES)
    shared = kept["every"] | kept["small" if small else "middle" if middle else "large"]
    first = _first(facts, deepest=max(shared["layers"])) | {"row_scale": row_scale}
    if batch_size is not None:
        shared, first = shared | {"batch_size": (batch_size,)}, first | {"batch_size": batch_size}
    hops = ("1", "2") if facts.two_hops <= _PAIRS else ("1",)
    plain = kept["attention"] | kept["root"] | {"neighbors": hops}
    extra = dict.fromkeys(ENCODED, plain | kept["encoded"]) | {"gt-plain": plain}
    extra |= dict.fromkeys(("gat", "gat-res"), kept["attention"])
    return Space(
        epochs=200 if middle else 150, patience=50,
        search_seeds=3 if facts.nodes <= 3000 else 1, shared=shared,
        extra=extra | {"sampled-gcn": kept["sampled-gcn"]}, first=first,
        first_of={model: {"root_weight": not facts.few_labels} for model in ATTENDING},
        search_epochs=80 if middle else 60, search_patience=50 if middle else 30,
    )  # fmt: skip


DEFAULT = node_space(
    GraphFacts(nodes=10_000, edges=100_000, labels_per_class=1000, labeled=0.6, features=1000)
)
"""That of a graph of which nothing is known."""


def user_file() -> Path:
    """The file of the user's own options, whose entries take the place of the shipped ones."""
    return cache_folder() / "tuned.json"


def tuned_config(dataset: str, model: str) -> tuple[NodeRunConfig, int, int]:
    """The configuration of a network for nodes on a data set, with its epochs and patience.

    A pair that was never searched gets the first candidate of the space of any graph with many
    labels: the same stack, width, dropout and step size for every model, so that only the layer
    differs.
    """
    if model not in NAMES:
        raise ValueError(f"model: got {model!r}, expected one of {', '.join(NAMES)}")
    if (kept := kept_options(dataset, model)) is not None:
        return NodeRunConfig.from_dict(kept[0]), *kept[1:]
    return DEFAULT.candidates(model, 1)[0], DEFAULT.epochs, DEFAULT.patience


def kept_options(dataset: str, model: str) -> tuple[dict[str, Any], int, int] | None:
    """What a search has chosen, as plain values, with epochs and patience; None where none has."""
    name = key(dataset)
    for file in (user_file(), FILE):
        if (kept := _read(file).get(name, {}).get(model)) is not None:
            return kept["trial"], kept["epochs"], kept["patience"]
    return None


def keep(chosen: dict[str, Any], spaces: Mapping[str, Space], file: Path) -> None:
    """Write the best candidate of each model into `file` and leave its other entries."""
    kept = _read(file)
    for model, found in chosen.items():
        kept.setdefault(found.dataset, {})[model] = {
            "val": found.val, "parameters": found.parameters, "epochs": spaces[model].epochs,
            "patience": spaces[model].patience, "trial": found.config.as_dict(),
        }  # fmt: skip
    ordered = {d: dict(sorted(kept[d].items())) for d in sorted(kept)}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(ordered, indent=1) + "\n").encode())


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{file} is not a file of tuned options ({error}); delete it") from error
