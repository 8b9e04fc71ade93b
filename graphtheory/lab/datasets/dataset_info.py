"""What is known about a data set before any of its files is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Family = Literal[
    "embedded",
    "planetoid",
    "actor",
    "webkb",
    "heterophilous",
    "linkx",
    "amazon",
    "coauthor",
    "musae",
    "ogbn",
    "tudataset",
    "ogbg",
    "moleculenet",
    "peptides",
    "graphsat",
    "graph6",
    "zinc",
    "superpixels",
    "idx",
    "cifar-pickles",
    "cifar-jpeg",
    "cifar-pixels",
    "folder",
]
Kind = Literal["multiclass", "multilabel", "regression"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before any of its files is opened.

    Args:
        name: The name to load it by.
        family: The reader it needs; "embedded" needs no file.
        folder: Folder of the raw files below `root`.
        files: Raw files that must lie in `folder`.
        optional_files: Raw files that are read where present.
        splits: Names of its splits; the first is the default.
        metric: "accuracy", or "rocauc" for two unbalanced classes; of sets of graphs also "ap",
            "mae", "rmse" and "f1", the mean over the classes.
        task: "node", "graph", "pairs" or "image": one graph, a set of graphs, pairs of graphs to
            tell apart (`expressiveness.expressiveness_pairs`), or images.
        source: Where the raw files come from.
        citation: Who published it.
        counts: Numbers that hold after loading, such as ("nodes", 2708); "edges" counts stored
            directions. A mismatch means a damaged file or another release.
        kind: "multiclass" for one class each, "multilabel" for labels that are true, false or
            missing; of sets of graphs also "regression" for real values that may be missing.
        level: Of sets of graphs: "graph" or "node", what carries a label.
        evaluator: Name for ogb's `Evaluator` of graphs or nodes, None where ogb has none.
        both_ways: Whether networks are by custom trained on both directions of its edges, which
            are directed as published.
        features: Of sets of graphs: what `x` and `edge_attr` are.
        aliases: Other names of it.
    """

    name: str
    family: Family
    folder: str = ""
    files: tuple[str, ...] = ()
    optional_files: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("random-60-20-20",)
    metric: str = "accuracy"
    task: str = "node"
    source: str = ""
    citation: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    kind: Kind = "multiclass"
    level: Literal["graph", "node"] = "graph"
    evaluator: str | None = None
    both_ways: bool = False
    features: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def embedded(self) -> bool:
        """Whether it comes with the installed packages."""
        return self.family == "embedded"

    @property
    def default_split(self) -> str:
        """The split taken when none is asked for."""
        return self.splits[0]

    def known_split(self, split: str | None) -> str:
        """The split of that name, the default for None.

        Raises:
            ValueError: The set has no such split; the message lists those it has.
        """
        if split is None:
            return self.default_split
        if split not in self.splits:
            raise ValueError(f"split: {self.name} has {', '.join(self.splits)}; got {split!r}")
        return split
