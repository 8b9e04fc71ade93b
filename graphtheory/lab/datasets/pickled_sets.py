"""ZINC and the superpixels of LRGB in PyG's raw layout: pickled tensors, read safely."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.dataset_info import DatasetInfo
from graphtheory.lab.datasets.graph_store import packed, with_categories, with_split
from graphtheory.lab.datasets.splits import Split

_PARTS = ("train", "val", "test")
_KNOWN = {**safe_pickle.ARRAYS, **safe_pickle.TENSORS}
ZINC_ATOMS, ZINC_BONDS = 28, 4  # bond 0 is none


def read_zinc(root: Path, info: DatasetInfo) -> dict[str, Tensor]:
    """The molecules whose numbers stand in the index files: 12,000 of the published subset.

    Args:
        root: Private folder with copies of the raw files.
        info: "ZINC".
    """
    folder = root / info.folder
    parts = []
    for part in _PARTS:
        molecules = safe_pickle.read(folder / f"{part}.pickle", _KNOWN)
        chosen = (folder / f"{part}.index").read_text().strip().split(",")
        parts.append([_molecule(molecules[int(number)]) for number in chosen])
    return _joined(parts) | with_categories((ZINC_ATOMS,), (ZINC_BONDS,))


def _molecule(molecule: dict[str, Tensor]) -> Data:
    bonds = molecule["bond_type"].long()
    index = bonds.nonzero().t().contiguous()
    return Data(
        x=molecule["atom_type"].long().view(-1, 1),
        edge_index=index,
        edge_attr=bonds[index[0], index[1]].view(-1, 1),
        y=molecule["logP_SA_cycle_normalized"].float().view(1, 1),
    )


def read_superpixels(root: Path, info: DatasetInfo) -> dict[str, Tensor]:
    """Graphs of superpixels with a class each: tuples of x, edge_attr, edge_index and y.

    Args:
        root: Private folder with copies of the raw files.
        info: "PascalVOC-SP".
    """
    return _joined([_superpixels(root / info.folder / f"{part}.pickle") for part in _PARTS])


def read_second_superpixels(root: Path, info: DatasetInfo) -> Data:
    """The second training graph as one graph with labeled nodes, its own classes from 0 on.

    Args:
        root: Private folder with copies of the raw files.
        info: "PascalVOC-SP-1G".

    Source: Li (2024), section B.1.3.
    """
    graph = _superpixels(root / info.folder / info.files[0])[1]
    y = graph.y.unique(return_inverse=True)[1]
    return Data(x=graph.x, edge_index=graph.edge_index, y=y)


def _superpixels(path: Path) -> list[Data]:
    return [
        Data(
            x=torch.as_tensor(x).float(),
            edge_index=torch.as_tensor(edge_index).long(),
            edge_attr=torch.as_tensor(edge_attr).float(),
            y=torch.as_tensor(y).long().view(-1),
        )
        for x, edge_attr, edge_index, y in safe_pickle.read(path, _KNOWN)
    ]


def _joined(parts: list[list[Data]]) -> dict[str, Tensor]:
    graphs = [graph for part in parts for graph in part]
    positions = torch.arange(len(graphs)).split([len(part) for part in parts])
    for position, graph in enumerate(graphs):
        if graph.edge_attr.size(0) != graph.edge_index.size(1):
            raise ValueError(f"graph {position}: edge_attr and edge_index of different lengths")
    return packed(graphs) | with_split("published", Split(*positions), len(graphs))
