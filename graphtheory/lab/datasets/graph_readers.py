"""Readers of sets of graphs, one a family: a folder of raw files in, packed tensors out.

ogb only reads here and reaches for no network. SMILES need the extra [molecules], which is rdkit.
"""

import csv
import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import MoleculeNet, TUDataset
from torch_geometric.utils import degree

from graphtheory.lab.datasets import safe_pickle
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.graph_sets import SLICES, Stored, packed, with_notes
from graphtheory.lab.datasets.splits import Split

_PARTS = ("train", "val", "test")
_MOST = 2**31  # values of one-hot labels
_STRUCT_TARGETS = (
    *(f"Inertia_{kind}_{axis}" for kind in ("mass", "valence") for axis in "abc"),
    "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip


def _tudataset(root: Path, info: DatasetInfo) -> Stored:
    """As PyG reads them; where the last graphs have no edges, PyG forgets their bounds."""
    _check_tables(root / info.folder, info.name)
    folder = str(root / "TUDataset")
    dataset = TUDataset(folder, info.name, use_node_attr=True, use_edge_attr=True)
    stored = {name: value for name, value in dataset._data if isinstance(value, Tensor)}
    bounds = dict(dataset.slices)
    if "x" not in stored:
        sizes = torch.tensor(dataset._data._num_nodes)
        bounds["x"] = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        edges = bounds["edge_index"].diff()
        targets = stored["edge_index"][1] + bounds["x"][: len(edges)].repeat_interleave(edges)
        stored["x"] = degree(targets, int(bounds["x"][-1])).log1p()[:, None]
    for name in {"edge_index", "edge_attr"} & bounds.keys():
        short = max(len(bounds["x"]) - len(bounds[name]), 0)
        bounds[name] = torch.cat([bounds[name], bounds[name][-1:].expand(short)])
    if "edge_attr" in stored:
        stored["edge_attr"] = stored["edge_attr"].float()
    if info.kind == "regression":
        stored["y"] = stored["y"].float().view(len(stored["y"]), -1)
    return stored | {SLICES + name: bound for name, bound in bounds.items()}


def _check_tables(folder: Path, name: str) -> None:
    """Raise ValueError, with file and row, unless the tables of a TUDataset fit together."""
    tables = {path.stem.removeprefix(f"{name}_"): _table(path) for path in folder.glob("*.txt")}
    nodes, edges = tables["graph_indicator"], tables["A"]
    if len(edges) < 2 or edges.shape[1] != 2 or edges.min() < 1 or edges.max() > len(nodes):
        found = f"{len(edges)} lines, {edges.shape[1]} columns, {edges.min()} to {edges.max()}"
        raise ValueError(f"{name}_A.txt: {found}, expected 2 or more pairs in 1..{len(nodes)}")
    wrong = np.flatnonzero((np.diff(nodes, axis=0, prepend=1) < 0).any(1) | (nodes.shape[1] > 1))
    if len(wrong):
        found = f"line {wrong[0] + 1} is {nodes[wrong[0]].tolist()}, expected its graph, from 1 on"
        raise ValueError(f"{name}_graph_indicator.txt: {found}; nodes of a graph side by side")
    sizes = {"node": len(nodes), "edge": len(edges), "graph": int(nodes[-1, 0])}
    for part in tables.keys() - {"A", "graph_indicator"}:
        if len(tables[part]) != (size := sizes[part.split("_")[0]]):
            found = f"{len(tables[part])} lines, expected {size}, one for each {part.split('_')[0]}"
            raise ValueError(f"{name}_{part}.txt: {found}")
        if part == "graph_labels" and tables[part].shape[1] != 1:
            found = f"{tables[part].shape[1]} columns, expected one class for each graph"
            raise ValueError(f"{name}_{part}.txt: {found}")
        elif part in ("node_labels", "edge_labels") and int(np.ptp(tables[part])) * size > _MOST:
            found = f"labels {tables[part].min()} to {tables[part].max()}, each of which would be"
            raise ValueError(f"{name}_{part}.txt: {found} a column; expected 0, 1, ...")


def _table(path: Path) -> np.ndarray:
    """The numbers of a file, whose last line gets the end without which PyG leaves it out."""
    kind = float if path.stem.endswith("attributes") else int
    lines = [line.strip() for line in path.read_text("utf-8-sig").rstrip().split("\n")]
    path.write_text("\n".join(lines) + "\n")
    with suppress(ValueError):
        if all(lines):  # numpy leaves out those that are empty
            return np.loadtxt(lines, kind, comments=None, delimiter=",", ndmin=2)
    rows = _of_rows(path, lines, lambda line: [kind(word) for word in line.split(",")], first=1)
    return np.array(rows)


def import_ogb(name: str) -> ModuleType:
    """A module of ogb, imported as if `outdated` was absent, which asks the network."""
    before = {"outdated": sys.modules["outdated"]} if "outdated" in sys.modules else {}
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        return import_module(name)
    finally:
        del sys.modules["outdated"]
        sys.modules.update(before)


def ogb_split(parts: Mapping[str, Any]) -> Split:
    """The positions that ogb gives by name."""
    return Split(*(torch.tensor(parts[part]).long() for part in ("train", "valid", "test")))


def _category_sizes() -> dict[str, list[int]]:
    """How many values each of ogb's atom features, in x, and bond features, in edge_attr, takes."""
    features = import_ogb("ogb.utils.features")
    return {"x": features.get_atom_feature_dims(), "edge_attr": features.get_bond_feature_dims()}


def _from_ogb(graph: Mapping[str, Any], y: Tensor | None = None) -> Data:
    index, x, edge_attr = (
        torch.from_numpy(graph[name]) for name in ("edge_index", "node_feat", "edge_feat")
    )
    return Data(x=x, edge_index=index, edge_attr=edge_attr, y=y)


def _ogbg(root: Path, info: DatasetInfo) -> Stored:
    """As ogb reads them; labels are float, NaN for a missing one."""
    folder = root / info.folder
    (folder / "processed").mkdir()  # empty, so that ogb reads csv and unpickles nothing
    ogbg = import_ogb("ogb.graphproppred")
    dataset = ogbg.GraphPropPredDataset(info.name, root=str(folder.parent))
    labels = torch.tensor(dataset.labels).float().view(len(dataset.labels), 1, -1)
    graphs = [_from_ogb(graph, y) for graph, y in zip(dataset.graphs, labels, strict=True)]
    split = {info.default_split: ogb_split(dataset.get_idx_split(info.default_split))}
    stored = packed(graphs, split=split, categories=_category_sizes())
    table = folder / "mapping/mol.csv.gz"
    if not table.is_file():
        return stored
    smiles = [row["smiles"].strip() for row in csv.DictReader(_lines(table))]
    if len(smiles) != len(graphs):
        raise ValueError(f"{table.name} has {len(smiles)} rows, the set {len(graphs)} graphs")
    return with_notes(stored, smiles=smiles)


def _lines(path: Path) -> list[str]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [line.rstrip() for line in text.decode("utf-8-sig").splitlines()]


def _of_rows(path: Path, rows: Sequence[Any], read: Any, first: int = 0) -> list[Any]:
    """What is read of each row, the first of that number; an error says in which it stands."""
    made: list[Any] = []
    for number, row in enumerate(rows, first):
        try:
            made.append(read(row))
            if isinstance(made[0], list) and len(made[0]) != len(made[-1]):
                raise ValueError(f"{len(made[-1])} values, expected {len(made[0])} as in the first")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            what = f"row {number}" + (f", {row[:80]!r}" if isinstance(row, str) else "")
            raise ValueError(f"{path.name}: {what}: {type(error).__name__}, {error}") from error
    return made


def _moleculenet(root: Path, info: DatasetInfo) -> Stored:
    """A table of SMILES and labels; which columns, says PyG's own list."""
    at, labels = MoleculeNet.names[info.folder.split("/")[1]][3:5]
    path = root / info.folder / info.files[0]
    rows = [row for row in csv.reader(_lines(path)) if row][1:]
    texts = _of_rows(path, rows, lambda row: row[at].strip())
    columns = labels if isinstance(labels, slice) else slice(labels, labels + 1)
    y = _of_rows(path, rows, lambda row: [float(cell or "nan") for cell in row[columns]])
    stored, kept = _from_smiles(texts, torch.tensor(y))
    return with_notes(stored, split={"scaffold": scaffold_split([texts[row] for row in kept])})


def _peptides(root: Path, info: DatasetInfo) -> Stored:
    """A table of SMILES and labels with the lists of row numbers of its split."""
    folder = root / info.folder
    rows = list(csv.DictReader(_lines(path := folder / info.files[0])))
    texts = _of_rows(path, rows, lambda row: row["smiles"].strip())
    if info.kind == "multilabel":
        y = torch.tensor(_of_rows(path, rows, lambda row: json.loads(row["labels"]))).float()
    else:
        y = torch.tensor(_of_rows(path, rows, lambda row: [float(row[t]) for t in _STRUCT_TARGETS]))
        y = ((y - y.mean(0)) / y.std(0)).float()
    stored, kept = _from_smiles(texts, y)
    at = {row: position for position, row in enumerate(kept)}
    parts = []
    for name in info.files[1:]:
        lines = [line for line in _lines(folder / name) if line]
        listed = _of_rows(folder / name, lines, lambda line: range(len(rows)).index(int(line)))
        parts.append([at[row] for row in listed if row in at])
    return with_notes(stored, split={"published": parts})


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
    stored = packed(graphs, categories=_category_sizes(), smiles=smiles, left_out=left_out)
    return stored, kept


def rdkit_version() -> str:
    """The installed release of rdkit, which decides what a SMILES is read as."""
    try:
        return version("rdkit")
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            "rdkit: reading SMILES needs it; pip install 'pyg-graphtheory[molecules]'", name="rdkit"
        ) from None


def molecule(smiles: str) -> Data | None:
    """The graph of a molecule with ogb's features; None for what rdkit finds no atoms in."""
    rdkit_version()
    chem, base = import_module("rdkit.Chem"), import_module("rdkit.rdBase")
    with base.BlockLogs():  # rdkit reports what it cannot parse on stderr
        try:
            graph = import_ogb("ogb.utils.mol").smiles2graph(smiles)
        except AttributeError:  # of the None that rdkit parses it to
            if chem.MolFromSmiles(smiles) is not None:
                raise
            return None
    return _from_ogb(graph) if graph["num_nodes"] else None


def scaffold_split(smiles: Sequence[str]) -> Split:
    """Molecules by their Bemis-Murcko scaffold, as in DeepChem's ScaffoldSplitter and in ogb."""
    rdkit_version()
    murcko = import_module("rdkit.Chem.Scaffolds.MurckoScaffold")
    groups: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(smiles):
        try:
            scaffold = murcko.MurckoScaffoldSmiles(smiles=text, includeChirality=True)
        except ValueError:
            raise ValueError(f"smiles: row {position}, {text!r}, is not a SMILES") from None
        groups[scaffold].append(position)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    until_val, until_test = 0.8 * len(smiles), 0.9 * len(smiles)
    for group in sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True):
        fits_train = len(parts[0]) + len(group) <= until_val
        fits_val = len(parts[0]) + len(parts[1]) + len(group) <= until_test
        parts[0 if fits_train else 1 if fits_val else 2].extend(group)
    return Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in parts))


def graphsat(path: Path) -> list[Data]:
    """All graphs of EXP or CEXP with their class: whether the formula behind it can be satisfied.

    Behind their count come of each its size and class, then a line a node: type, degree, neighbors.
    """
    lines = path.read_text().rstrip().split("\n")
    rows = _of_rows(path, lines, lambda line: tuple(map(int, line.split())), first=1)
    graphs, at = [], 1
    for _ in range(sum(rows[0][:1])):
        size, label = rows[at] if at < len(rows) and len(rows[at]) == 2 else (0, 0)
        nodes = rows[at + 1 : at + 1 + size]
        fits = (len(row) > 1 and len(row) == 2 + row[1] for row in nodes)
        if not 0 < size == len(nodes) or not all(fits):
            what = f"a graph of {size} nodes does not fit the lines below"
            raise ValueError(f"{path.name}: line {at + 1}: {what}")
        pairs = [(near, node) for node, row in enumerate(nodes) for near in row[2:]]
        index = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous()
        x = torch.tensor([row[:1] for row in nodes])
        graphs.append(Data(x=x, edge_index=index, y=torch.tensor([label])))
        at += 1 + size
    if at != len(rows) or not graphs:
        what = f"{len(rows) - at} lines behind the last of {len(graphs)} graphs"
        raise ValueError(f"{path.name}: {what}")
    return graphs


def _zinc(root: Path, info: DatasetInfo) -> Stored:
    """The molecules whose numbers stand in the index files: 12,000 of the published subset."""
    parts = []
    for part in _PARTS:
        file = root / info.folder / f"{part}.pickle"
        molecules = safe_pickle.read(file, safe_pickle.TENSORS)
        index = root / info.folder / f"{part}.index"
        chosen = index.read_text().strip().split(",")
        parts.append(_of_rows(index, chosen, partial(_molecule_of, molecules)))
    return with_notes(_joined(parts), categories={"x": [28], "edge_attr": [4]})  # bond 0 is none


def _molecule_of(molecules: Sequence[Mapping[str, Tensor]], number: str) -> Data:
    """A molecule of ZINC, of a matrix of its bonds."""
    found = molecules[range(len(molecules)).index(int(number))]
    bonds, y = found["bond_type"].long(), found["logP_SA_cycle_normalized"].float()
    index, x = bonds.nonzero().t().contiguous(), found["atom_type"].long().view(-1, 1)
    return Data(x, index, bonds[index[0], index[1]].view(-1, 1), y.view(1, 1))


def superpixels(path: Path) -> list[Data]:
    """Graphs of superpixels with a class each, from tuples of x, edge_attr, edge_index and y."""

    def read(parts: Sequence[Any]) -> Data:
        x, attr, index, y = map(torch.as_tensor, parts)
        return Data(x.float(), index.long(), attr.float(), y.long().view(-1))

    return _of_rows(path, safe_pickle.read(path, safe_pickle.TENSORS), read)


def _joined(parts: list[list[Data]]) -> Stored:
    graphs = [graph for part in parts for graph in part]
    for position, graph in enumerate(graphs):
        if graph.edge_attr.size(0) != graph.edge_index.size(1):
            raise ValueError(f"graph {position}: edge_attr and edge_index of different lengths")
    positions = torch.arange(len(graphs)).split([len(part) for part in parts])
    return packed(graphs, split={"published": positions})


READERS: dict[str, Callable[[Path, DatasetInfo], Stored]] = {
    "tudataset": _tudataset,
    "ogbg": _ogbg,
    "moleculenet": _moleculenet,
    "peptides": _peptides,
    "graphsat": lambda root, info: packed(
        graphsat(root / info.folder / info.files[0]), categories={"x": [2]}
    ),
    "zinc": _zinc,
    "superpixels": lambda root, info: _joined(
        [superpixels(root / info.folder / f"{part}.pickle") for part in _PARTS]
    ),
}
