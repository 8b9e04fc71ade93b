"""The data sets by name: where their raw files lie, which splits they have, how they are scored."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Family = Literal[
    "embedded",
    "planetoid",
    "actor",
    "webkb",
    "heterophilous",
    "linkx",
    "musae",
    "tudataset",
    "ogbn",
    "idx",
    "cifar-pickles",
    "cifar-jpeg",
    "cifar-pixels",
]


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
        metric: "accuracy", or "rocauc" for two unbalanced classes.
        task: "node", "graph" or "image": what carries a label.
        source: Where the raw files come from.
        citation: Who published it.
        counts: Numbers that hold after loading, such as ("nodes", 2708); "edges" counts stored
            directions. A mismatch means a damaged file or another release.
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


def _counts(nodes: int, edges: int, features: int, classes: int) -> tuple[tuple[str, int], ...]:
    return (("nodes", nodes), ("edges", edges), ("features", features), ("classes", classes))


def _embedded(name: str, citation: str, *counts: int) -> DatasetInfo:
    return DatasetInfo(name, "embedded", citation=citation, counts=_counts(*counts))


def _planetoid(name: str, *counts: int) -> DatasetInfo:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return DatasetInfo(
        name,
        "planetoid",
        folder=f"Planetoid/{name}/raw",
        files=tuple(f"ind.{name.lower()}.{part}" for part in parts),
        splits=("public", "random-20", "random-60-20-20"),
        source="https://github.com/kimiyoung/planetoid, data/",
        citation="Yang, Cohen and Salakhutdinov, ICML 2016",
        counts=_counts(*counts),
    )


def _geom_gcn(name: str, prefix: str, folder: str, *counts: int) -> DatasetInfo:
    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    return DatasetInfo(
        name,
        "actor" if prefix == "film" else "webkb",
        folder=folder,
        files=files + tuple(f"{prefix}_split_0.6_0.2_{i}.npz" for i in range(10)),
        splits=("published", "random-60-20-20"),
        source=f"https://github.com/graphdml-uiuc-jlu/geom-gcn, new_data/{prefix}/ and splits/",
        citation="Pei, Wei, Chang, Lei and Yang, ICLR 2020",
        counts=_counts(*counts),
    )


def _heterophilous(name: str, metric: str, *counts: int) -> DatasetInfo:
    stem = name.replace("-", "_")
    return DatasetInfo(
        name,
        "heterophilous",
        folder=f"HeterophilousGraphDataset/{stem}/raw",
        files=(f"{stem}.npz",),
        splits=("published", "random-60-20-20"),
        metric=metric,
        source="https://github.com/yandex-research/heterophilous-graphs, data/",
        citation="Platonov, Kuznedelev, Diskin, Babenko and Prokhorenkova, ICLR 2023",
        counts=_counts(*counts),
    )


def _linkx(name: str, *counts: int, metric: str = "accuracy") -> DatasetInfo:
    return DatasetInfo(
        name,
        "linkx",
        folder=f"LINKXDataset/{name}/raw",
        files=("data.mat",),
        splits=("random-50-25-25",),
        metric=metric,
        source="https://github.com/CUAI/Non-Homophily-Large-Scale, data/, renamed to data.mat",
        citation="Lim et al., NeurIPS 2021",
        counts=_counts(*counts) if counts else (),
    )


def _tudataset(name: str, graphs: int, *more: tuple[str, int]) -> DatasetInfo:
    optional = ("node_labels", "node_attributes", "edge_labels", "edge_attributes")
    return DatasetInfo(
        name,
        "tudataset",
        folder=f"TUDataset/{name}/raw",
        files=tuple(f"{name}_{part}.txt" for part in ("A", "graph_indicator", "graph_labels")),
        optional_files=tuple(f"{name}_{part}.txt" for part in optional),
        splits=("random-80-10-10",),
        task="graph",
        source="https://chrsmrrs.github.io/datasets, the unpacked archive",
        citation="Morris et al., TUDataset, 2020",
        counts=(("graphs", graphs), *more),
    )


_ARXIV = DatasetInfo(
    "ogbn-arxiv",
    "ogbn",
    folder="ogbn_arxiv",
    files=(
        "RELEASE_v1.txt",
        *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "node_year")),
        *(f"raw/num-{part}-list.csv.gz" for part in ("node", "edge")),
        *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
    ),
    splits=("published",),
    source="https://ogb.stanford.edu, arxiv.zip unpacked and its folder renamed",
    citation="Hu et al., NeurIPS 2020",
    counts=_counts(169_343, 1_166_243, 128, 40),
)

_ALL = (
    _embedded("digits", "scikit-learn; Alpaydin and Kaynak, 1998", 1797, 19_858, 64, 10),
    _embedded("karate", "Zachary, 1977", 34, 156, 34, 2),
    DatasetInfo("core-neighborhood", "embedded", citation="Li, thesis, 2024, section 3.5.1"),
    _embedded("power-law", "drawn; the sizes of ogbn-arxiv", 169_343, 2_332_486, 128, 40),
    _planetoid("Cora", 2708, 10_556, 1433, 7),
    _planetoid("CiteSeer", 3327, 9104, 3703, 6),
    _planetoid("PubMed", 19_717, 88_648, 500, 3),
    _geom_gcn("Actor", "film", "Actor/raw", 7600, 30_019, 932, 5),
    _geom_gcn("Cornell", "cornell", "WebKB/cornell/raw", 183, 298, 1703, 5),
    _geom_gcn("Texas", "texas", "WebKB/texas/raw", 183, 325, 1703, 5),
    _geom_gcn("Wisconsin", "wisconsin", "WebKB/wisconsin/raw", 251, 515, 1703, 5),
    _heterophilous("chameleon-filtered", "accuracy", 890, 17_708, 2325, 5),
    _heterophilous("squirrel-filtered", "accuracy", 2223, 93_996, 2089, 5),
    _heterophilous("roman-empire", "accuracy", 22_662, 65_854, 300, 18),
    _heterophilous("amazon-ratings", "accuracy", 24_492, 186_100, 300, 5),
    _heterophilous("minesweeper", "rocauc", 10_000, 78_804, 7, 2),
    _heterophilous("tolokers", "rocauc", 11_758, 1_038_000, 10, 2),
    _heterophilous("questions", "rocauc", 48_921, 307_080, 301, 2),
    _linkx("reed98", 962, 37_624, 745, 2),
    _linkx("amherst41", 2235, 181_908, 1193, 2),
    _linkx("johnshopkins55", 5180, 373_172, 2406, 2),
    _linkx("cornell5", 18_660, 1_581_554, 4735, 2),
    _linkx("penn94"),
    _linkx("genius", metric="rocauc"),
    DatasetInfo(
        "facebook",
        "musae",
        folder="MUSAE_Facebook",
        files=("facebook_pagepage.npz",),
        splits=("random-60-20-20", "random-20"),
        source="https://github.com/benedekrozemberczki/MUSAE, input/, repacked as one npz",
        citation="Rozemberczki, Allen and Sarkar, Journal of Complex Networks, 2021",
        counts=_counts(22_470, 341_825, 4714, 4),
    ),
    _tudataset("ENZYMES", 600, ("nodes", 19_580), ("edges", 74_564), ("classes", 6)),
    _tudataset("PROTEINS", 1113, ("classes", 2)),
    _tudataset("MUTAG", 188, ("classes", 2)),
    _tudataset("NCI1", 4110, ("classes", 2)),
    _tudataset("DD", 1178, ("classes", 2)),
    _ARXIV,
)


def key(name: str) -> str:
    """What names of one data set have in common: case and "_" against "-" make no difference."""
    return name.lower().replace("_", "-")


_BY_KEY = {key(info.name): info for info in _ALL}


def names(task: str | None = None) -> list[str]:
    """Names of all data sets, the embedded ones first.

    Args:
        task: "node" or "graph" for those whose labels belong to nodes or graphs; None for all.

    Example:
        >>> names()[:3]
        ['digits', 'karate', 'core-neighborhood']
    """
    return [info.name for info in _ALL if task in (None, info.task)]


def describe(name: str) -> DatasetInfo:
    """What is known about a data set, without touching its files.

    Args:
        name: One of `names()`; case and "_" against "-" make no difference.

    Raises:
        ValueError: Unknown name; the message holds the nearest match and the known names.

    Example:
        >>> describe("cora").default_split
        'public'
    """
    return lookup(name, _BY_KEY)


def lookup(name: str, known: Mapping[str, DatasetInfo]) -> DatasetInfo:
    """The entry of that name in a catalogue by `key`.

    Raises:
        ValueError: Unknown name; the message holds the nearest match and the known names.
    """
    if key(name) in known:
        return known[key(name)]
    near = difflib.get_close_matches(key(name), known, n=1)
    hint = f"did you mean {known[near[0]].name!r}? " if near else ""
    listed = ", ".join(info.name for info in known.values())
    raise ValueError(f"name: unknown data set {name!r}; {hint}known: {listed}")


def known_seed(seed: int) -> int:
    """The seed itself.

    Raises:
        ValueError: Not a whole number, or negative.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: got {seed!r}, expected a whole number, 0 or more, below 2^63")
    return seed
