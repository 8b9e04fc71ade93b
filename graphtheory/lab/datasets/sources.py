"""Readers of single graphs, one a family: a folder in, one PyG `Data` out, as PyG or ogb make it.

A reader gets a private root that it may write to. Masks come back as [N, number of splits].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import (
    Actor,
    Amazon,
    Coauthor,
    HeterophilousGraphDataset,
    LINKXDataset,
    WebKB,
)
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.ogbn import read_ogbn
from graphtheory.lab.datasets.pickled_sets import read_second_superpixels
from graphtheory.lab.datasets.planetoid import PinnedPlanetoid
from graphtheory.lab.datasets.silent import Silent, silent


class _Heterophilous(HeterophilousGraphDataset):
    """PyG's class for every file of that layout: PyG refuses the filtered sets by name."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        InMemoryDataset.__init__(self, root, log=False)
        self.load(self.processed_paths[0])


class _LINKX(Silent, LINKXDataset):
    """PyG's class without penn94's published splits, which are a pickled array of objects."""

    splits: dict[str, str] = {}  # noqa: RUF012 - PyG's attribute, emptied


def _planetoid(root: Path, info: DatasetInfo) -> Data:
    return PinnedPlanetoid(str(root / "Planetoid"), info.name)[0]


def _actor(root: Path, info: DatasetInfo) -> Data:
    return silent(Actor)(str(root / "Actor"))[0]


def _webkb(root: Path, info: DatasetInfo) -> Data:
    return silent(WebKB)(str(root / "WebKB"), info.name)[0]


def _heterophilous(root: Path, info: DatasetInfo) -> Data:
    stem = info.name.replace("-", "_")
    return _Heterophilous(str(root / "HeterophilousGraphDataset"), stem)[0]


def _linkx(root: Path, info: DatasetInfo) -> Data:
    return _LINKX(str(root / "LINKXDataset"), info.name)[0]


def _amazon(root: Path, info: DatasetInfo) -> Data:
    return silent(Amazon)(str(root / "Amazon"), info.name)[0]


def _coauthor(root: Path, info: DatasetInfo) -> Data:
    return silent(Coauthor)(str(root / "Coauthor"), info.name)[0]


def _musae(root: Path, info: DatasetInfo) -> Data:
    with np.load(root / info.folder / info.files[0], allow_pickle=False) as raw:
        y = torch.from_numpy(raw["y"]).long()
        edges = torch.from_numpy(raw["edges"]).long().t()
        indptr, indices = (torch.from_numpy(raw[f"feat_{part}"]) for part in ("indptr", "indices"))
        size = (len(y), int(raw["num_features"]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        x = torch.sparse_csr_tensor(
            indptr.long(), indices.long(), torch.ones(len(indices)), size, check_invariants=True
        )
    return Data(x=x, edge_index=to_undirected(edges, num_nodes=len(y)), y=y)


READERS: dict[str, Callable[[Path, DatasetInfo], Data]] = {
    "planetoid": _planetoid,
    "actor": _actor,
    "webkb": _webkb,
    "heterophilous": _heterophilous,
    "linkx": _linkx,
    "amazon": _amazon,
    "coauthor": _coauthor,
    "musae": _musae,
    "ogbn": read_ogbn,
    "superpixels": read_second_superpixels,
}
