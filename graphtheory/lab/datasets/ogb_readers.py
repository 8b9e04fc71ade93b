"""Readers of ogb's graphs, through ogb's own classes, which only read and reach for no network."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.splits import Split

_PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


def import_ogb(name: str) -> ModuleType:
    """A module of ogb, imported without a look for newer releases in the network.

    ogb starts that look in a thread unless the package `outdated` is absent, and `outdated` starts
    one of its own: while ogb is imported, it is.

    Args:
        name: Such as "ogb.nodeproppred".
    """
    before = {"outdated": sys.modules["outdated"]} if "outdated" in sys.modules else {}
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        return import_module(name)
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)


def read_ogbn(root: Path, info: DatasetInfo) -> Data:
    """The graph with ogb's edges and its one split, from a folder of raw files only.

    Edges of arxiv are directed; those of products and proteins run both ways. Nodes of proteins
    come without features: x is the mean of the features of the edges at a node, zero without any.
    Its y [N, 112] is float, one column a label.

    In a folder without processed files ogb reads csv; it unpickles nothing, which is what fails
    on torch 2.6 and later.

    Args:
        root: Private folder with copies of the raw files; ogb writes to it.
        info: "ogbn-arxiv", "ogbn-products" or "ogbn-proteins".
    """
    (root / info.folder / "processed").mkdir()
    dataset = import_ogb("ogb.nodeproppred").NodePropPredDataset(info.name, root=str(root))
    graph, labels = dataset[0]
    index, y = torch.tensor(graph["edge_index"]).long(), torch.tensor(labels)
    if graph["node_feat"] is not None:
        x = torch.tensor(graph["node_feat"]).float()
    else:
        x = scatter(torch.tensor(graph["edge_feat"]).float(), index[1], 0, len(y), reduce="mean")
    y = y.float() if info.kind == "multilabel" else y.view(-1).long()
    data = Data(x=x, edge_index=index, y=y)
    parts = dataset.get_idx_split()
    for ours, theirs in _PARTS.items():
        data[ours] = torch.zeros(len(y), 1, dtype=torch.bool)
        data[ours][torch.tensor(parts[theirs])] = True
    return data


def read_ogbg(root: Path, info: DatasetInfo) -> tuple[list[Data], Split]:
    """The graphs as ogb reads them and their split; labels are float, NaN for a missing one.

    Args:
        root: Private folder with copies of the raw files; ogb writes to it.
        info: One of the sets "ogbg-mol...".
    """
    folder = root / info.folder
    (folder / "processed").mkdir()
    ogbg = import_ogb("ogb.graphproppred")
    dataset = ogbg.GraphPropPredDataset(info.name, root=str(folder.parent))
    graphs = [
        Data(
            x=torch.tensor(graph["node_feat"]),
            edge_index=torch.tensor(graph["edge_index"]),
            edge_attr=torch.tensor(graph["edge_feat"]),
            y=torch.tensor(label).float().view(1, -1),
        )
        for graph, label in zip(dataset.graphs, dataset.labels, strict=True)
    ]
    parts = dataset.get_idx_split(info.default_split)
    positions: list[Tensor] = [torch.tensor(parts[part]).long() for part in _PARTS.values()]
    return graphs, Split(*positions)


def evaluator(name: str = "ogbn-arxiv") -> Any:
    """The Evaluator that ogb has for a node data set, for figures to set beside its leaderboard.

    Args:
        name: ogb's name.
    """
    return import_ogb("ogb.nodeproppred").Evaluator(name)
