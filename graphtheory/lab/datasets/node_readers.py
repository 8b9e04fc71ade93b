"""Readers of single graphs, one a family: a folder in, one PyG `Data` out, as PyG or ogb make it.

A reader gets a private root that it may write to. Masks come back as [N, number of splits].
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric import datasets as pyg
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.io.planetoid import edge_index_from_dict
from torch_geometric.utils import index_to_mask, scatter, to_undirected

from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.graph_readers import import_ogb, ogb_split, superpixels

_NUM_VAL = 500  # of Planetoid's public splits
MASKS = ("train_mask", "val_mask", "test_mask")


class _Heterophilous(pyg.HeterophilousGraphDataset):
    """PyG's class for every file of that layout: PyG refuses the filtered sets by name."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name.replace("-", "_")
        InMemoryDataset.__init__(self, root)
        self.load(self.processed_paths[0])


class _LINKX(pyg.LINKXDataset):
    """PyG's class without penn94's published splits, which are a pickled array of objects."""

    splits: dict[str, str] = {}  # noqa: RUF012 - PyG's attribute, emptied


def _as_pyg(kind: Any, root: Path, info: DatasetInfo) -> Data:
    """What PyG's class of the family reads; the raw folder begins with the name of that class."""
    return kind(str(root / info.folder.split("/")[0]), info.name)[0]


def _part(folder: Path, name: str, part: str) -> Any:
    """What is in ind.<name>.<part>, matrices as tensors."""
    path = folder / f"ind.{name.lower()}.{part}"
    if part == "test.index":
        return torch.from_numpy(np.loadtxt(path, dtype=np.int64))
    found = safe_pickle.read(path, safe_pickle.MATRICES)
    if isinstance(found, dict):
        return found
    return torch.from_numpy(found if isinstance(found, np.ndarray) else found.toarray())


def _assembled(folder: Path, name: str, known: str, tested: str) -> Tensor:
    """Rows in node order: the known ones first, row i of `tested` at node test_index[i]."""
    first, last, at = (_part(folder, name, part) for part in (known, tested, "test.index"))
    rows = first.new_zeros(max(len(first), int(at.max()) + 1), first.size(1))
    rows[: len(first)] = first
    rows[at] = last
    return rows


def topology(folder: Path, name: str) -> Data:
    """Edges, labels and the public split; nodes without a label get class 0, as in PyG."""
    y = _assembled(folder, name, "ally", "ty").argmax(dim=1)
    links, known, tested = (_part(folder, name, part) for part in ("graph", "y", "test.index"))
    edge_index = edge_index_from_dict(links, num_nodes=len(y))
    nodes = torch.arange(len(y))
    parts = (nodes[: len(known)], nodes[len(known) :][:_NUM_VAL], tested)
    masks = (index_to_mask(part, size=len(y)) for part in parts)
    return Data(edge_index=edge_index, y=y, **dict(zip(MASKS, masks, strict=True)))


def known_nodes(folder: Path, name: str) -> Data:
    """Features and labels of the training nodes and the test nodes, without ind.<name>.allx."""
    train, test, at = (_part(folder, name, part) for part in ("x", "tx", "test.index"))
    nodes = torch.cat([torch.arange(len(train)), at])
    return Data(x=torch.cat([train, test]).float(), y=topology(folder, name).y[nodes])


def _planetoid(root: Path, info: DatasetInfo) -> Data:
    data = topology(folder := root / info.folder, info.name)
    data.x = _assembled(folder, info.name, "allx", "tx").float()
    return data


def _musae(root: Path, info: DatasetInfo) -> Data:
    with np.load(root / info.folder / info.files[0], allow_pickle=False) as raw:
        parts = (raw[name] for name in ("y", "edges", "feat_indptr", "feat_indices"))
        y, edges, indptr, indices = (torch.from_numpy(part).long() for part in parts)
        size = (len(y), int(raw["num_features"]))
    x = sparse_rows(indptr, indices, torch.ones(len(indices)), size)
    return Data(x=x, edge_index=to_undirected(edges.t(), num_nodes=len(y)), y=y)


def sparse_rows(indptr: Tensor, indices: Tensor, values: Tensor, size: tuple[int, ...]) -> Tensor:
    """A checked CSR tensor, without torch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, indices, values, size, check_invariants=True)


def as_sparse_rows(x: Tensor) -> Tensor:
    """A matrix of any layout as a CSR tensor, without torch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


def _wikics(root: Path, info: DatasetInfo) -> Data:
    """The masks "val" and "stopping" choose the epoch, as in the code of Luo et al., 2024."""
    data = pyg.WikiCS(str(root / info.folder.split("/")[0]), is_undirected=True)[0]
    data.val_mask = data.val_mask | data.stopping_mask
    data.test_mask = data.test_mask[:, None].expand_as(data.val_mask)
    return Data(**{name: data[name] for name in ("x", "y", "edge_index", *MASKS)})


def _second_superpixels(root: Path, info: DatasetInfo) -> Data:
    """The second training graph with its own classes from 0 on; Li (2024), section B.1.3."""
    graph = superpixels(root / info.folder / info.files[0])[1]
    y = graph.y.unique(return_inverse=True)[1]
    return Data(x=graph.x, edge_index=graph.edge_index, y=y)


def read_ogbn(root: Path, info: DatasetInfo) -> Data:
    """As ogb reads it; where nodes have no features, x is the mean of those of edges at a node."""
    (root / info.folder / "processed").mkdir()  # empty, so that ogb reads csv and unpickles nothing
    dataset = import_ogb("ogb.nodeproppred").NodePropPredDataset(info.name, root=str(root))
    graph, labels = dataset[0]
    index, y = torch.tensor(graph["edge_index"]).long(), torch.tensor(labels)
    if graph["node_feat"] is not None:
        x = torch.tensor(graph["node_feat"]).float()
    else:
        x = scatter(torch.tensor(graph["edge_feat"]).float(), index[1], 0, len(y), reduce="mean")
    y = y.float() if info.kind == "multilabel" else y.view(-1).long()
    parts = ogb_split(dataset.get_idx_split())
    masks = (index_to_mask(part, size=len(y))[:, None] for part in parts)
    return Data(x=x, edge_index=index, y=y, **dict(zip(MASKS, masks, strict=True)))


READERS: dict[str, Callable[[Path, DatasetInfo], Data]] = {
    "actor": partial(_as_pyg, lambda root, _: pyg.Actor(root)),
    "webkb": partial(_as_pyg, pyg.WebKB),
    "heterophilous": partial(_as_pyg, _Heterophilous),
    "linkx": partial(_as_pyg, _LINKX),
    "amazon": partial(_as_pyg, pyg.Amazon),
    "coauthor": partial(_as_pyg, pyg.Coauthor),
    "planetoid": _planetoid,
    "musae": _musae,
    "wikics": _wikics,
    "ogbn": read_ogbn,
    "superpixels": _second_superpixels,
}
