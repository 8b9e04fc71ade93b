"""Sets of labeled graphs by name, each a PyG dataset that knows its task and its split."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import version
from os import PathLike
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data, InMemoryDataset

from graphtheory.lab.datasets import embedded
from graphtheory.lab.datasets import graph_store as store
from graphtheory.lab.datasets.cache import processed
from graphtheory.lab.datasets.catalogue import DatasetInfo, Kind, describe, known_seed
from graphtheory.lab.datasets.files import verify_counts
from graphtheory.lab.datasets.graph_readers import READERS
from graphtheory.lab.datasets.ogb_readers import rdkit_version
from graphtheory.lab.datasets.splits import Split, folds, positions_by_fraction, stratified

_FROM_SMILES = ("moleculenet", "peptides")
_LISTED = 3  # rows that a warning names


@dataclass(frozen=True)
class SetFacts:
    """What a set of graphs is about.

    Args:
        name: Its name.
        kind: "multiclass", "multilabel" or "regression".
        level: "graph" or "node": what carries a label.
        num_outputs: Classes, labels or values.
        metric: "accuracy", "f1" (mean over the classes), "rocauc", "ap", "mae" or "rmse".
        evaluator: Name for `ogb.graphproppred.Evaluator`; None where ogb has none.
        x_categories: Of categorical features how many values each column of x takes, else None.
        edge_categories: The same of edge_attr; None also without edge features.
        smiles: Of molecules a SMILES each, else None.
        left_out: Rows of the raw file that are no labeled molecule, and why.
    """

    name: str
    kind: Kind
    level: str
    num_outputs: int
    metric: str
    evaluator: str | None = None
    x_categories: tuple[int, ...] | None = None
    edge_categories: tuple[int, ...] | None = None
    smiles: list[str] | None = None
    left_out: tuple[str, ...] = ()


class GraphSet(InMemoryDataset):
    """A PyG dataset of graphs that knows its task and its split.

    Index it with `train_index`, `val_index` or `test_index` for the three parts; every fact is an
    attribute of the same name. A graph has x, float [n, F] or categories int64 [n, C]; edge_index
    int64 [2, E]; perhaps edge_attr, float [E, D] or categories int64 [E, K]; and y: of classes
    int64 [1], of labels and values float [1, T] with NaN for a missing one, of classes of nodes
    int64 [n] with -1 for a node that has none.

    Args:
        stored: All graphs one after the other, and under "slices/" where each begins.
        facts: What the set is about.
        parts: Positions of the graphs of each part.
        split: Name of the split.
    """

    name: str
    kind: Kind
    level: str
    num_outputs: int
    metric: str
    evaluator: str | None
    x_categories: tuple[int, ...] | None
    edge_categories: tuple[int, ...] | None
    smiles: list[str] | None
    left_out: tuple[str, ...]

    def __init__(
        self, stored: Mapping[str, Tensor], facts: SetFacts, parts: Split, split: str
    ) -> None:
        super().__init__()
        self.slices = store.bounds_of(stored)
        self.data = Data(**{name: stored[name] for name in self.slices})
        self.facts, self.split = facts, split
        for field in fields(facts):
            setattr(self, field.name, getattr(facts, field.name))
        self.train_index, self.val_index, self.test_index = parts

    @property
    def num_classes(self) -> int:
        """Classes of a multi-class set, else labels or values."""
        return self.num_outputs


def load_graphs(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    cache: str | PathLike[str] | None = None,
) -> GraphSet:
    """A set of labeled graphs and one of its splits.

    TUDatasets, in the catalogue or not, have the published attributes followed by the one-hot
    labels as features, of nodes and of edges; without either, x is log(1 + degree). Molecules
    have ogb's categorical atom and bond features: those of ogb as ogb reads them, those of
    MoleculeNet and the peptides of LRGB from their SMILES. A row that is no molecule or has no
    label is left out, in a warning and in `left_out`. The raw files have no pinned hashes, since
    they are in circulation in several packings: what is checked is that they fit together and that
    the known counts come out.

    Splits: "scaffold" is ogb's own, and of MoleculeNet that of `scaffold_split`, which equals
    ogb's on the same molecules; "published" is the set's own; "random-80-10-10" keeps the share of
    each class; "folds-10" of seed s tests on fold s of ten, validates on the next and trains on
    the others, with the folds the same for every seed.

    Args:
        name: One of `names("graph")`, or a folder TUDataset/<name>/raw; case does not matter.
        root: Folder with the raw files in PyG's layout (`describe(name).folder`).
        split: One of `describe(name).splits`; None for the first of them.
        seed: Draws the split, or is its number, 0 or more.
        cache: Folder for processed arrays; None for $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.

    Returns:
        A PyG dataset with train_index, val_index, test_index (int64 positions), split, and the
        fields of `SetFacts` as attributes.

    Raises:
        ValueError: Unknown name or split; the message lists the known ones.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.
        DamagedFileError: The raw files do not fit together, or the counts are not the known ones.
        ModuleNotFoundError: Molecules are to be read from SMILES and rdkit is not installed.
    """
    info = describe(name, root)
    if info.task != "graph":
        where = "expressiveness_pairs" if info.task == "pairs" else "load"
        what = "pairs of graphs" if info.task == "pairs" else "one graph"
        raise ValueError(f"name: {info.name} is {what}; {where}({name!r}) has it")
    chosen, seed = info.known_split(split), known_seed(seed)

    def read(private: Path) -> dict[str, Tensor]:
        stored = READERS[info.family](private, info)
        store.check(stored)
        _verify(info, stored)
        return stored

    if info.embedded:
        stored = embedded.SETS[info.name]()
    else:
        releases = ["sets of graphs, 3", f"ogb {version('ogb')}"]
        releases += [f"rdkit {rdkit_version()}"] if info.family in _FROM_SMILES else []
        stored = processed(info, root, cache, read, readers=releases)
    facts = _facts(info, stored)
    if facts.left_out:
        more = f" and {len(facts.left_out) - _LISTED} more" * (len(facts.left_out) > _LISTED)
        listed = "; ".join(facts.left_out[:_LISTED])
        warnings.warn(f"{info.name}: left out {listed}{more}", stacklevel=2)
    parts = store.split_of(stored, chosen) or _drawn(stored, facts, chosen, seed)
    return GraphSet(stored, facts, parts, chosen)


def _drawn(stored: Mapping[str, Tensor], facts: SetFacts, split: str, seed: int) -> Split:
    """A random split "random-80-10-10", by class where a graph has one, or "folds-<number>"."""
    y, how, number = stored["y"], *split.split("-")[:2]
    if how == "folds":
        return folds(y, number=int(number), fold=seed)
    generator = Generator().manual_seed(seed)
    if facts.kind == "multiclass" and facts.level == "graph":
        return stratified(y, val=0.1, test=0.1, generator=generator)
    size = len(stored[store.SLICES + "x"]) - 1
    return positions_by_fraction(size, val=0.1, test=0.1, generator=generator)


def _facts(info: DatasetInfo, stored: Mapping[str, Tensor]) -> SetFacts:
    y, notes = stored["y"], store.notes_of(stored)
    return SetFacts(
        info.name,
        info.kind,
        info.level,
        int(y.max()) + 1 if info.kind == "multiclass" else y.size(1),
        info.metric,
        info.evaluator,
        store.categories_of(stored, "x"),
        store.categories_of(stored, "edge_attr"),
        notes.get("smiles"),
        tuple(notes.get("left_out", ())),
    )


def _verify(info: DatasetInfo, stored: Mapping[str, Tensor]) -> None:
    facts = _facts(info, stored)  # which refuses categories out of range
    found = {
        "graphs": len(store.bounds_of(stored)["x"]) - 1 + len(facts.left_out),
        "nodes": len(stored["x"]),
        "edges": stored["edge_index"].size(1),
        "classes": len(torch.unique(stored["y"])) if info.kind == "multiclass" else 0,
    }
    verify_counts(info, found)
