"""ogbn-arxiv, -products and -proteins through ogb's own reader, which only reads here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import scatter

from graphtheory.lab.datasets.dataset_info import DatasetInfo
from graphtheory.lab.datasets.ogb_import import import_ogb, quiet


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
    nodeproppred = import_ogb("ogb.nodeproppred")
    (root / info.folder / "processed").mkdir()
    with quiet():
        dataset = nodeproppred.NodePropPredDataset(info.name, root=str(root))
    graph, labels = dataset[0]
    index, y = _tensor(graph["edge_index"]).long(), _tensor(labels)
    if graph["node_feat"] is not None:
        x = _tensor(graph["node_feat"]).float()
    else:
        x = scatter(_tensor(graph["edge_feat"]).float(), index[1], 0, len(y), reduce="mean")
    y = y.float() if info.kind == "multilabel" else y.view(-1).long()
    data = Data(x=x, edge_index=index, y=y)
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
