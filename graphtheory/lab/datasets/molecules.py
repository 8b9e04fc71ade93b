"""Molecules from SMILES: ogb's features, and the split by Bemis-Murcko scaffolds.

Needs the extra [molecules], which is rdkit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import torch
from torch_geometric.data import Data

from graphtheory.lab.datasets.ogb_readers import import_ogb
from graphtheory.lab.datasets.splits import Split


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

    Args:
        smiles: One molecule.

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
