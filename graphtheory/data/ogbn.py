"""ogbn-arxiv through ogb's own reader, which neither asks, downloads nor unpickles here."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.data.catalogue import DatasetInfo


def import_nodeproppred() -> ModuleType:
    """ogb.nodeproppred, imported without its look for newer releases in the network.

    ogb starts that look in a thread unless the package `outdated` is absent, and `outdated` starts
    one of its own: while ogb is imported, it is.
    """
    before = {"outdated": sys.modules["outdated"]} if "outdated" in sys.modules else {}
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        import ogb.nodeproppred
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)
    return ogb.nodeproppred


def read_ogbn(root: Path, info: DatasetInfo) -> Data:
    """The graph with ogb's directed edges and its one split, from a folder of raw files only.

    In a folder without processed files ogb reads csv; it unpickles nothing, which is what fails
    on torch 2.6 and later.

    Args:
        root: Private folder with copies of the raw files; ogb writes to it.
        info: "ogbn-arxiv".
    """
    nodeproppred = import_nodeproppred()
    (root / info.folder / "processed").mkdir()
    with contextlib.redirect_stdout(io.StringIO()):  # ogb reports every step with print
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
    return import_nodeproppred().Evaluator(name)
