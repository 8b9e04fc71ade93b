"""ogbn-arxiv through ogb's own reader, which neither asks, downloads nor unpickles here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.data.dataset_info import DatasetInfo
from graphtheory.data.ogb_import import import_ogb, quiet


def read_ogbn(root: Path, info: DatasetInfo) -> Data:
    """The graph with ogb's directed edges and its one split, from a folder of raw files only.

    In a folder without processed files ogb reads csv; it unpickles nothing, which is what fails
    on torch 2.6 and later.

    Args:
        root: Private folder with copies of the raw files; ogb writes to it.
        info: "ogbn-arxiv".
    """
    nodeproppred = import_ogb("ogb.nodeproppred")
    (root / info.folder / "processed").mkdir()
    with quiet():
        dataset = nodeproppred.NodePropPredDataset(info.name, root=str(root))
    graph, labels = dataset[0]
    data = Data(
        x=_tensor(graph["node_feat"]).float(),
        edge_index=_tensor(graph["edge_index"]).long(),
        y=_tensor(labels).view(-1).long(),
    )
    parts = dataset.get_idx_split()
    for ours, theirs in (("train", "train"), ("val", "valid"), ("test", "test")):
        mask = torch.zeros(len(data.y), 1, dtype=torch.bool)
        mask[_tensor(parts[theirs])] = True
        data[f"{ours}_mask"] = mask
    return data


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))  # pandas hands out arrays that must not be written


def evaluator(name: str = "ogbn-arxiv") -> Any:
    """The Evaluator that ogb has for a node data set, for figures to set beside its leaderboard.

    Args:
        name: ogb's name.
    """
    return import_ogb("ogb.nodeproppred").Evaluator(name)
