"""Readers of ogb's graphs through ogb's own classes, and molecules from SMILES with its features.

ogb only reads here and reaches for no network. SMILES need the extra [molecules], which is rdkit.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
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
    """The graphs as ogb reads them and their split; labels are float, NaN for a missing one."""
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
    """The Evaluator that ogb has for a node data set, for scores as on its leaderboard."""
    return import_ogb("ogb.nodeproppred").Evaluator(name)


def rdkit_version() -> str:
    """The installed release of rdkit, which decides what a SMILES is read as.

    Raises:
        ModuleNotFoundError: It is not installed; the message says how to install it.
    """
    try:
        return version("rdkit")
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            "rdkit: reading SMILES needs it; pip install 'graphtheory[molecules]'", name="rdkit"
        ) from None


def category_sizes() -> dict[str, list[int]]:
    """How many values each of ogb's atom features, in x, and bond features, in edge_attr, takes."""
    features = import_ogb("ogb.utils.features")
    return {"x": features.get_atom_feature_dims(), "edge_attr": features.get_bond_feature_dims()}


def molecule(smiles: str) -> Data | None:
    """The graph of a molecule with ogb's atom and bond features; None for what is no molecule.

    That is a SMILES that rdkit does not parse, or one without atoms.

    Shapes:
        x [n, 9] int64; edge_index [2, E] int64, both directions; edge_attr [E, 3] int64.

    Raises:
        ModuleNotFoundError: rdkit is not installed.
    """
    rdkit_version()
    chem, base = import_module("rdkit.Chem"), import_module("rdkit.rdBase")
    with base.BlockLogs():  # rdkit reports what it cannot parse on stderr
        try:
            graph = import_ogb("ogb.utils.mol").smiles2graph(smiles)
        except AttributeError:  # of the None that rdkit parses it to
            if chem.MolFromSmiles(smiles) is not None:
                raise
            return None
    if graph["num_nodes"] == 0:
        return None
    return Data(
        x=torch.from_numpy(graph["node_feat"]),
        edge_index=torch.from_numpy(graph["edge_index"]),
        edge_attr=torch.from_numpy(graph["edge_feat"]),
    )


def scaffold_split(smiles: Sequence[str], *, val: float = 0.1, test: float = 0.1) -> Split:
    """Molecules by their Bemis-Murcko scaffold, so that the test has scaffolds never trained on.

    Molecules of one scaffold stay together. Scaffolds are taken in the order of their size, the
    largest first and of equally large ones the one that comes up later in the data; each goes to
    training as long as training has room for all its molecules, else to validation by the same
    rule, else to the test.

    Args:
        smiles: Molecules that rdkit parses.
        val: Fraction for validation.
        test: Fraction for the test.

    Shapes:
        Positions int64, sorted.

    Raises:
        ModuleNotFoundError: rdkit is not installed.
        ValueError: A SMILES that does not parse; the message has its position.

    Source:
        Bemis and Murcko, J. Med. Chem. 39, 1996; the order is that of DeepChem's ScaffoldSplitter
        and of ogb's molecules.
    """
    rdkit_version()
    groups: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(smiles):
        groups[_scaffold(text, position)].append(position)
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)
    until_val, until_test = (1 - val - test) * len(smiles), (1 - test) * len(smiles)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for group in ordered:
        if len(parts[0]) + len(group) <= until_val:
            parts[0].extend(group)
        elif len(parts[0]) + len(parts[1]) + len(group) <= until_test:
            parts[1].extend(group)
        else:
            parts[2].extend(group)
    return Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in parts))


def _scaffold(smiles: str, position: int) -> str:
    murcko = import_module("rdkit.Chem.Scaffolds.MurckoScaffold")
    try:
        return murcko.MurckoScaffoldSmiles(smiles=smiles, includeChirality=True)
    except ValueError:
        raise ValueError(f"smiles: row {position}, {smiles!r}, is not a SMILES") from None
