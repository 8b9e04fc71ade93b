"""Readers of single graphs, one a family: a folder in, one PyG `Data` out, as PyG or ogb make it.

A reader gets a private root that it may write to. Masks come back as [N, number of splits].
Planetoid's files are pickles: each is checked against its pinned SHA-256 before it comes here, and
the unpickler knows the few names that the published files use and refuses every other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import (
    Actor,
    Amazon,
    Coauthor,
    HeterophilousGraphDataset,
    LINKXDataset,
    WebKB,
)
from torch_geometric.utils import coalesce, index_to_mask, remove_self_loops, to_undirected

from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.graph_readers import superpixels
from graphtheory.lab.datasets.ogb_readers import read_ogbn

_NUM_VAL = 500  # of Planetoid's public splits
_KNOWN = {**safe_pickle.ARRAYS, **safe_pickle.MATRICES}


class _Heterophilous(HeterophilousGraphDataset):
    """PyG's class for every file of that layout: PyG refuses the filtered sets by name."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name.replace("-", "_")
        InMemoryDataset.__init__(self, root)
        self.load(self.processed_paths[0])


class _LINKX(LINKXDataset):
    """PyG's class without penn94's published splits, which are a pickled array of objects."""

    splits: dict[str, str] = {}  # noqa: RUF012 - PyG's attribute, emptied


_CLASSES: dict[str, Any] = {
    "actor": lambda root, _: Actor(root),
    "webkb": WebKB,
    "heterophilous": _Heterophilous,
    "linkx": _LINKX,
    "amazon": Amazon,
    "coauthor": Coauthor,
}


def _as_pyg(root: Path, info: DatasetInfo) -> Data:
    """What PyG's class of the family reads; the raw folder begins with the name of that class."""
    return _CLASSES[info.family](str(root / info.folder.split("/")[0]), info.name)[0]


def read_pickled(path: Path) -> Any:
    """The array, sparse matrix or dictionary in one pickled file, whose hash was checked.

    Raises:
        pickle.UnpicklingError: The file names anything but the known classes and functions.
    """
    return safe_pickle.read(path, _KNOWN)


def _planetoid_part(folder: Path, name: str, part: str) -> Any:
    found = read_pickled(folder / f"ind.{name.lower()}.{part}")
    if part == "graph":
        return found
    return torch.from_numpy(found if isinstance(found, np.ndarray) else found.toarray())


def _test_index(folder: Path, name: str) -> Tensor:
    return torch.from_numpy(np.loadtxt(folder / f"ind.{name.lower()}.test.index", dtype=np.int64))


def _assembled(folder: Path, name: str, known: str, tested: str) -> Tensor:
    """Rows in node order: the known ones first, row i of `tested` at node test_index[i].

    Nodes that are in neither keep zeros: isolated ones in CiteSeer.
    """
    first, last = (_planetoid_part(folder, name, part) for part in (known, tested))
    test_index = _test_index(folder, name)
    rows = first.new_zeros(max(len(first), int(test_index.max()) + 1), first.size(1))
    rows[: len(first)] = first
    rows[test_index] = last
    return rows


def topology(folder: Path, name: str) -> Data:
    """Edges, labels and the public split, from the five files that hold them.

    They are ind.<name>.{y, ally, ty, graph, test.index}. Nodes without a label (15 isolated ones
    in CiteSeer) get class 0, as in PyG.
    """
    y = _assembled(folder, name, "ally", "ty").argmax(dim=1)
    links = _planetoid_part(folder, name, "graph")
    pairs = [(node, other) for node, others in links.items() for other in others]
    edge_index, _ = remove_self_loops(torch.tensor(pairs).t())
    num_train = len(_planetoid_part(folder, name, "y"))
    val_index = torch.arange(num_train, num_train + _NUM_VAL)
    return Data(
        edge_index=coalesce(edge_index, num_nodes=len(y), sort_by_row=False),
        y=y,
        train_mask=index_to_mask(torch.arange(num_train), size=len(y)),
        val_mask=index_to_mask(val_index, size=len(y)),
        test_mask=index_to_mask(_test_index(folder, name), size=len(y)),
    )


def known_nodes(folder: Path, name: str) -> Data:
    """Features and labels of the training nodes and the test nodes, without ind.<name>.allx."""
    train, test = (_planetoid_part(folder, name, part).float() for part in ("x", "tx"))
    nodes = torch.cat([torch.arange(len(train)), _test_index(folder, name)])
    return Data(x=torch.cat([train, test]), y=topology(folder, name).y[nodes])


def _planetoid(root: Path, info: DatasetInfo) -> Data:
    data = topology(root / info.folder, info.name)
    data.x = _assembled(root / info.folder, info.name, "allx", "tx").float()
    return data


def _musae(root: Path, info: DatasetInfo) -> Data:
    with np.load(root / info.folder / info.files[0], allow_pickle=False) as raw:
        y = torch.from_numpy(raw["y"]).long()
        edges = torch.from_numpy(raw["edges"]).long().t()
        indptr, indices = (torch.from_numpy(raw[f"feat_{part}"]) for part in ("indptr", "indices"))
        size = (len(y), int(raw["num_features"]))
    x = sparse_rows(indptr.long(), indices.long(), torch.ones(len(indices)), size)
    return Data(x=x, edge_index=to_undirected(edges, num_nodes=len(y)), y=y)


def sparse_rows(indptr: Tensor, indices: Tensor, values: Tensor, size: tuple[int, ...]) -> Tensor:
    """A checked CSR tensor, without torch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, indices, values, size, check_invariants=True)


def as_sparse_rows(x: Tensor) -> Tensor:
    """A dense matrix as a CSR tensor."""
    matrix = scipy.sparse.csr_array(x.numpy())
    parts = [torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)]
    return sparse_rows(parts[0].long(), parts[1].long(), parts[2], x.shape)


def _second_superpixels(root: Path, info: DatasetInfo) -> Data:
    """The second training graph with its own classes from 0 on; Li (2024), section B.1.3."""
    graph = superpixels(root / info.folder / info.files[0])[1]
    y = graph.y.unique(return_inverse=True)[1]
    return Data(x=graph.x, edge_index=graph.edge_index, y=y)


READERS: dict[str, Callable[[Path, DatasetInfo], Data]] = {
    **dict.fromkeys(_CLASSES, _as_pyg),
    "planetoid": _planetoid,
    "musae": _musae,
    "ogbn": read_ogbn,
    "superpixels": _second_superpixels,
}
