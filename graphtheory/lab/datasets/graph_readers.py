"""Readers of sets of graphs, one a family: a folder of raw files in, packed tensors out."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import MoleculeNet, TUDataset

from graphtheory.lab.datasets.dataset_info import DatasetInfo
from graphtheory.lab.datasets.expressiveness import read_graphsat
from graphtheory.lab.datasets.graph_store import (
    SLICES,
    packed,
    with_categories,
    with_split,
    with_text,
)
from graphtheory.lab.datasets.molecules import category_sizes, molecule, scaffold_split
from graphtheory.lab.datasets.ogb_import import import_ogb, quiet
from graphtheory.lab.datasets.pickled_sets import read_superpixels, read_zinc
from graphtheory.lab.datasets.silent import silent
from graphtheory.lab.datasets.splits import Split

Stored = dict[str, Tensor]
_STRUCT_TARGETS = (
    *(f"Inertia_{kind}_{axis}" for kind in ("mass", "valence") for axis in "abc"),
    "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip


def read_tudataset(root: Path, info: DatasetInfo) -> Stored:
    """As PyG reads them; where the last graphs have no edges, PyG forgets their bounds."""
    folder = str(root / "TUDataset")
    dataset = silent(TUDataset)(folder, info.name, use_node_attr=True, use_edge_attr=True)
    stored = {name: value for name, value in dataset._data if isinstance(value, Tensor)}
    bounds = dict(dataset.slices)
    if "x" not in stored:
        sizes = torch.tensor(dataset._data._num_nodes)
        bounds["x"] = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        stored["x"] = _log_degree(stored["edge_index"], bounds)
    for name in ("edge_index", "edge_attr"):
        if name in bounds and (short := len(bounds["x"]) - len(bounds[name])) > 0:
            bounds[name] = torch.cat([bounds[name], bounds[name][-1:].expand(short)])
    if "edge_attr" in stored:
        stored["edge_attr"] = stored["edge_attr"].float()
    for name, bound in bounds.items():
        length = stored[name].size(1 if name == "edge_index" else 0)
        if int(bound[-1]) != length:
            raise ValueError(f"{name} has {length} entries, the graphs need {int(bound[-1])}")
    if info.kind == "regression":
        stored["y"] = stored["y"].float().view(len(stored["y"]), -1)
    return stored | {SLICES + name: bound for name, bound in bounds.items()}


def _log_degree(edge_index: Tensor, bounds: dict[str, Tensor]) -> Tensor:
    edges = bounds["edge_index"].diff()
    first = bounds["x"][: len(edges)].repeat_interleave(edges)
    degree = torch.bincount(edge_index[1] + first, minlength=int(bounds["x"][-1]))
    return degree.float().log1p()[:, None]


def read_ogbg(root: Path, info: DatasetInfo) -> Stored:
    """As ogb reads them; every label float, so that a missing one can be NaN."""
    folder = root / info.folder
    (folder / "processed").mkdir()
    with quiet():
        dataset = import_ogb("ogb.graphproppred").GraphPropPredDataset(
            info.name, root=str(folder.parent)
        )
    graphs = []
    for graph, label in zip(dataset.graphs, dataset.labels, strict=True):
        graphs.append(
            Data(
                x=_tensor(graph["node_feat"]),
                edge_index=_tensor(graph["edge_index"]),
                edge_attr=_tensor(graph["edge_feat"]),
                y=_tensor(label).float().view(1, -1),
            )
        )
    parts = dataset.get_idx_split(info.default_split)
    split = Split(*(_tensor(parts[part]).long() for part in ("train", "valid", "test")))
    smiles = folder / "mapping" / "mol.csv.gz"
    return (
        packed(graphs)
        | with_split(info.default_split, split, len(graphs))
        | with_categories(*category_sizes())
        | (with_text("smiles", _column(smiles, "smiles", len(graphs))) if smiles.is_file() else {})
    )


def _column(path: Path, name: str, length: int) -> list[str]:
    column = [row[name].strip() for row in csv.DictReader(_lines(path))]
    if len(column) != length:
        raise ValueError(f"{path.name} has {len(column)} rows, the set {length} graphs")
    return column


def _lines(path: Path) -> list[str]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return text.decode("utf-8-sig").splitlines()


def read_moleculenet(root: Path, info: DatasetInfo) -> Stored:
    """A table of SMILES and labels; which columns, says PyG's own list."""
    key = info.folder.split("/")[1]
    at, labels = MoleculeNet.names[key][3:5]
    rows = [row for row in csv.reader(_lines(root / info.folder / info.files[0])) if row][1:]
    texts = [row[at].strip() for row in rows]
    targets = [row[labels] if isinstance(labels, slice) else [row[labels]] for row in rows]
    y = np.array([[float(cell or "nan") for cell in row] for row in targets], np.float32)
    stored, kept = _from_smiles(texts, torch.from_numpy(y))
    scaffolds = scaffold_split([texts[row] for row in kept])
    return stored | with_split("scaffold", scaffolds, len(kept))


def read_peptides(root: Path, info: DatasetInfo) -> Stored:
    """A table of SMILES and labels with the lists of row numbers of its split."""
    folder = root / info.folder
    rows = list(csv.DictReader(_lines(folder / info.files[0])))
    if info.kind == "multilabel":
        y = torch.tensor([json.loads(row["labels"]) for row in rows]).float()
    else:
        y = torch.tensor([[float(row[name]) for name in _STRUCT_TARGETS] for row in rows])
        y = ((y - y.mean(0)) / y.std(0)).float()
    stored, kept = _from_smiles([row["smiles"].strip() for row in rows], y)
    position = torch.full((len(rows),), -1)
    position[kept] = torch.arange(len(kept))
    parts = []
    for name in info.files[1:]:
        listed = position[torch.tensor([int(line) for line in _lines(folder / name)])]
        parts.append(listed[listed >= 0])
    return stored | with_split("published", Split(*parts), len(kept))


def _from_smiles(texts: Sequence[str], y: Tensor) -> tuple[Stored, list[int]]:
    """The molecules that can be read and have a label, and the rows that they stand in."""
    graphs, kept, left_out = [], [], []
    for row, text in enumerate(texts):
        graph = molecule(text)
        if graph is None:
            left_out.append(f"row {row}: {text!r} is not a SMILES of a molecule")
        elif bool(y[row].isnan().all()):
            left_out.append(f"row {row}: {text!r} has no label")
        else:
            graph.y = y[row : row + 1]
            graphs.append(graph)
            kept.append(row)
    if not graphs:
        raise ValueError(f"none of {len(texts)} rows is a molecule with a label")
    smiles = [texts[row] for row in kept]
    stored = packed(graphs) | with_categories(*category_sizes())
    return stored | with_text("smiles", smiles) | with_text("left out", left_out), kept


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))  # pandas hands out arrays that must not be written


READERS: dict[str, Callable[[Path, DatasetInfo], Stored]] = {
    "tudataset": read_tudataset,
    "ogbg": read_ogbg,
    "moleculenet": read_moleculenet,
    "peptides": read_peptides,
    "graphsat": read_graphsat,
    "zinc": read_zinc,
    "superpixels": read_superpixels,
}
