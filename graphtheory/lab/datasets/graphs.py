"""Graphs and sets of graphs by name, from the package or from raw files that already lie there.

Nothing is downloaded but by `download`. Raw files are checked against their SHA-256 where it is
known, read by PyG's or ogb's own class in a private copy of their folder, and kept as plain arrays
in a cache, $GRAPHTHEORY_CACHE or ~/.cache/graphtheory, so that their own folder may be read-only.
"""

import contextlib
import io
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data as Data
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets import embedded, files, graph_readers, node_readers, splits
from graphtheory.lab.datasets import graph_sets as store
from graphtheory.lab.datasets.catalogue import DatasetInfo, Root, describe, known_seed, names
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graph_sets import GraphSet, SetFacts
from graphtheory.lab.datasets.own_graphs import outputs_of
from graphtheory.lab.datasets.splits import Split

__all__ = [
    "DatasetInfo", "GraphSet", "both_ways", "describe", "download", "load", "load_graphs",
    "load_known", "load_topology", "names",
]  # fmt: skip

_SPARSE_BELOW = 0.25  # density under which the cache keeps features sparse
_SPARSE = ("musae", "coauthor")  # families whose features would fill much memory
_FROM_SMILES = ("moleculenet", "peptides")
_LISTED = 3  # rows that a warning names


def download(name: str, root: Root) -> None:
    """Download the raw files of a set that are not below `root`, by PyG's or ogb's own class.

    Files that are damaged or differ from their pinned hash are deleted, and so is what an
    interruption leaves; `describe(name).how` has size and license.

    Args:
        name: A graph or a set of graphs.
        root: Folder to put them into, made where it is missing.

    Raises:
        ValueError: No class of PyG or ogb downloads this set.
        DamagedFileError: What came is not what was published.
        OSError: No network, or a folder that cannot be written to.
    """
    info = describe(name, root)
    if info.embedded or files.folder_of(info, root) is not None:
        return
    if not info.fetched_by:
        raise ValueError(f"download: no class fetches {info.name}; get the files {info.how}")
    if root is None:
        raise ValueError(f"root: got None, expected the folder to download {info.name} into")
    Path(root).mkdir(parents=True, exist_ok=True)
    prefix = f".download-{info.name}-"
    for left in Path(root).glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=root) as private:
        place = Path(private) / "root"
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stdout):
                made = _by_class(info, Path(private) / "made")
        except Exception as error:  # urllib, aiohttp, zipfile and ogb each have their own
            told = f"could not be downloaded ({type(error).__name__}: {error}), nothing is kept"
            raise OSError(f"{info.name}: {told}; try again, or get the files {info.how}") from error
        (place / info.folder).parent.mkdir(parents=True)
        made.rename(place / info.folder)
        try:
            if files.folder_of(info, place) is None:
                raise DamagedFileError(f"the download has not all of {', '.join(info.files)}")
            found = files.locate(info, place)
            (load if info.task == "node" else load_graphs)(info.name, place)
        except ValueError as error:
            raise DamagedFileError(f"{info.name}: {error}; what came was deleted") from error
        for name, path in found.items():
            (Path(root) / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(Path(root) / name)


class _FetchedError(Exception):
    """Ends the constructor of a data set whose files are there."""


def _by_class(info: DatasetInfo, place: Path) -> Path:
    """Let the class of a set download into `place`, without what it makes of the files."""
    package, _, name = info.fetched_by.rpartition(".")
    kind = getattr(graph_readers.import_ogb(package), name)

    def stop(self: Any) -> None:
        raise _FetchedError(self.raw_dir)

    named = {"name": info.name} if "name" in signature(kind).parameters else {}
    # ogb would ask once more above 1 GB.
    asks = patch.object(sys.modules[kind.__module__], "decide_download", bool, create=True)
    try:
        with asks:
            type(name, (kind,), {"_process": stop})(root=str(place), **named)
    except _FetchedError as done:
        raw = Path(str(done))
        return raw if (raw / info.files[0]).is_file() else raw.parent
    raise AssertionError(f"{name} did not process its files")


def load(name: str, root: Root = None, *, split: str | None = None, seed: int = 0) -> Data:
    """One graph with node labels and the masks of one split.

    Edges are what PyG's or ogb's class gives: both directions for Planetoid, the heterophilous,
    LINKX and MUSAE sets; directed, as published, for Actor, WebKB, genius and ogbn-arxiv. Features
    are as published, without normalization; those of Photo, Computers, CS and Physics say which
    words occur, as in PyG. "facebook", CS and Physics have sparse features (22,470 x 4,714 would
    be 424 MB dense), which `torch.nn.Linear` takes as they are; every other set has dense ones.

    Splits: "public" is Planetoid's; "published" has ten (seed 10 is the first again) or, for
    ogbn-arxiv, one; "random-20" draws 20 training nodes of each class, 500 for validation, 1000
    for the test, "random-20-by-class" as the code of SGFormer draws them; "random-60-20-20"
    and "random-50-25-25" are shares in percent of the labeled nodes, with the ending "-by-numpy" as
    the code of Polynormer draws them. WikiCS validates on its masks "val" and "stopping". The LINKX
    sets come without splits here and with unlabeled nodes, y = -1, which are in no mask; nor are
    nodes of "core-distance" without a majority. In CiteSeer 15 isolated nodes without features have
    y = 0, as in PyG.

    Args:
        name: One of `names("node")`; case does not matter.
        root: Folder with the raw files in PyG's layout (`describe(name).folder`); may be
            read-only; not needed for embedded sets.
        split: One of `describe(name).splits`; None for the first of them.
        seed: Number of the split, 0 or more; "core-neighborhood", "core-distance" and "power-law"
            are drawn by it.

    Shapes:
        x [N, F] float32 (`torch.sparse_csr` for "facebook", CS and Physics); y [N] int64;
        edge_index [2, E] int64; train_mask, val_mask, test_mask [N] bool.

    Returns:
        Data with these and name, split, metric ("accuracy" or "rocauc"), num_classes and kind:
        "multiclass", or "multilabel" for ogbn-proteins, whose y is float [N, 112].

    Raises:
        ValueError: Unknown name or split; the message lists the known ones.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.
        DamagedFileError: A raw file is truncated or altered, or a pickled one is unknown.

    Example:
        >>> data = load("karate")
        >>> data.num_nodes, data.num_edges, data.num_classes, int(data.train_mask.sum())
        (34, 156, 2, 20)
    """
    info = describe(name)
    if info.task != "node":
        raise ValueError(f"name: {info.name} is a set of graphs; load_graphs({name!r}) has it")
    chosen = info.known_split(split)
    generator = Generator().manual_seed(known_seed(seed))
    data = embedded.GRAPHS[info.name](generator) if info.embedded else _published(info, root)
    data.update(masks_of(data, chosen, seed, generator))
    data.name, data.split, data.metric = info.name, chosen, info.metric
    data.kind, data.num_classes = info.kind, _classes(data.y)
    return data


def load_graphs(
    name: str, root: Root = None, *, split: str | None = None, seed: int = 0
) -> GraphSet:
    """A set of labeled graphs and one of its splits.

    TUDatasets, in the catalogue or not, have the published attributes followed by the one-hot
    labels as features, of nodes and of edges; without either, x is log(1 + degree). Molecules
    have ogb's categorical atom and bond features: those of ogb as ogb reads them, those of
    MoleculeNet and the peptides of LRGB from their SMILES. A row that is no molecule or has no
    label is left out, in a warning and in `left_out`. The raw files have no pinned hashes, since
    they are in circulation in several packings: what is checked is that they fit together and that
    the known counts come out.

    Splits: "scaffold" is ogb's own, and of MoleculeNet one by the same rule, which equals ogb's on
    the same molecules; "published" is the set's own; "random-80-10-10" keeps the share of each
    class; "folds-10" of seed s tests on fold s of ten, validates on the next and trains on the
    others, with the folds the same for every seed.

    Args:
        name: One of `names("graph")`, or a folder TUDataset/<name>/raw; case does not matter.
        root: Folder with the raw files in PyG's layout (`describe(name).folder`).
        split: One of `describe(name).splits`; None for the first of them.
        seed: Draws the split, or is its number, 0 or more.

    Returns:
        A PyG dataset with train_index, val_index, test_index (int64 positions), split, and the
        fields of `SetFacts` as attributes.

    Raises:
        ModuleNotFoundError: Molecules are to be read from SMILES and rdkit is not installed.
        ValueError, FileNotFoundError, DamagedFileError: As `load`.
    """
    info = describe(name, root)
    if info.task != "graph":
        where = "expressiveness_pairs" if info.task == "pairs" else "load"
        what = "pairs of graphs" if info.task == "pairs" else "one graph"
        raise ValueError(f"name: {info.name} is {what}; {where}({name!r}) has it")
    chosen, seed = info.known_split(split), known_seed(seed)

    def read(private: Path) -> dict[str, Tensor]:
        stored = graph_readers.READERS[info.family](private, info)
        store.check(stored)
        facts = _facts(info, stored)  # which refuses categories out of range
        found = {
            "graphs": len(store.bounds_of(stored)["x"]) - 1 + len(facts.left_out),
            "nodes": len(stored["x"]),
            "edges": stored["edge_index"].size(1),
            "classes": len(torch.unique(stored["y"])) if info.kind == "multiclass" else 0,
        }
        files.verify_counts(info, found)
        return stored

    if info.embedded:
        stored = embedded.SETS[info.name]()
    else:
        releases = ["sets of graphs, 3", f"ogb {version('ogb')}"]
        if info.family in _FROM_SMILES:
            releases.append(f"rdkit {graph_readers.rdkit_version()}")
        stored = files.processed(info, root, read, readers=releases)
    facts = _facts(info, stored)
    if facts.left_out:
        more = f" and {len(facts.left_out) - _LISTED} more" * (len(facts.left_out) > _LISTED)
        listed = "; ".join(facts.left_out[:_LISTED])
        warnings.warn(f"{info.name}: left out {listed}{more}", stacklevel=2)
    return GraphSet(stored, facts, _positions(stored, facts, chosen, seed), chosen)


def both_ways(data: Data) -> Data:
    """The graph, whose edges have no attributes, with both directions of each edge, each once."""
    data = data.clone()
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    return data


def load_topology(name: str, root: Root = None) -> Data:
    """A Planetoid graph without features: edges, labels and public split, for want of allx.

    PubMed's features are one 7.6 MB file that is often missing; distances, sampling and kernels do
    not need it. All else is as `load` gives it with the split "public".

    Args:
        name: "Cora", "CiteSeer" or "PubMed".
        root: Folder that holds Planetoid/<name>/raw or Planetoid_<name>_partial.

    Raises:
        ValueError: Not a Planetoid set.
        FileNotFoundError, DamagedFileError: As `load`.
    """
    info = describe(name)
    if info.family != "planetoid":
        raise ValueError(f"name: got {name!r}, expected 'Cora', 'CiteSeer' or 'PubMed'")
    with files.staged_topology(info, root) as folder:
        data = node_readers.topology(folder, info.name)
    data.num_nodes = len(data.y)
    data.name, data.split, data.metric = info.name, "public", info.metric
    data.num_classes = _classes(data.y)
    return data


def load_known(name: str, root: Root = None) -> Data:
    """Features and labels of the nodes whose features are at hand, without edges.

    These are all nodes of a graph; of a Planetoid set whose file allx is missing the training nodes
    and the test nodes of the public split, in this order: 1,060 of PubMed.

    Args:
        name: One of `names("node")`.
        root: Folder with the raw files, as `load` or `load_topology` takes it.
    """
    info = describe(name)
    try:
        data = load(name, root)
        return Data(x=data.x, y=data.y)
    except FileNotFoundError:
        if info.family == "planetoid":
            parts = files.staged_topology(info, root, ".x", ".tx")
            with contextlib.suppress(FileNotFoundError), parts as folder:
                return node_readers.known_nodes(folder, info.name)
        raise


def _classes(y: Tensor) -> int:
    """Classes, or labels where a node may have several."""
    return y.size(1) if y.dim() == 2 else int(y.max()) + 1


def _published(info: DatasetInfo, root: Root) -> Data:
    """The graph in its files, whose features the cache keeps in CSR where most of them are zero."""

    def read(private: Path) -> dict[str, Tensor]:
        data = node_readers.READERS[info.family](private, info)
        found = {"nodes": data.num_nodes, "edges": data.num_edges, "features": data.x.size(1)}
        files.verify_counts(info, found | {"classes": _classes(data.y)})
        out = {name: value for name, value in data if isinstance(value, Tensor)}
        x = out.pop("x")
        if x.layout != torch.sparse_csr:
            if int(x.count_nonzero()) >= _SPARSE_BELOW * x.numel():
                return out | {"x": x.float()}
            x = node_readers.as_sparse_rows(x)
        parts = {"indptr": x.crow_indices(), "indices": x.col_indices()}
        parts |= {"values": x.values().float(), "shape": torch.tensor(x.shape)}
        return out | {f"x_{part}": value for part, value in parts.items()}

    stored = files.processed(info, root, read)
    if "x" not in stored:
        parts = ("x_indptr", "x_indices", "x_values", "x_shape")
        indptr, indices, values, shape = map(stored.pop, parts)
        x = node_readers.sparse_rows(indptr, indices, values, tuple(shape.tolist()))
        stored["x"] = x if info.family in _SPARSE else x.to_dense()
    return Data(**stored)


def masks_of(data: Data, split: str, seed: int, generator: Generator) -> dict[str, Tensor]:
    """The masks of a split, drawn or, in "public", "published" and "given", those in the data."""
    if split in ("public", "published", "given"):
        known = {name: data[name].view(len(data.y), -1).bool() for name in node_readers.MASKS}
        return {name: mask[:, seed % mask.size(1)].contiguous() for name, mask in known.items()}
    if split == "random-20":
        masks = splits.per_class(data.y, generator=generator)
    elif split == "random-20-by-class":
        masks = splits.class_by_class(data.y, generator=generator)
    elif split == "random-60-20-20-by-numpy":
        masks = splits.by_permutation(data.y, train=0.6, val=0.2, seed=seed)
    else:
        share = {"random-60-20-20": 0.2, "random-50-25-25": 0.25}[split]
        masks = splits.by_fraction(data.y, val=share, test=share, generator=generator)
    return dict(zip(node_readers.MASKS, masks, strict=True))


def _positions(stored: Mapping[str, Tensor], facts: SetFacts, split: str, seed: int) -> Split:
    """A split of graphs: stored, random by class where a graph has one, or a fold."""
    known = store.notes_of(stored).get("split", {}).get(split)
    if known is not None:
        return Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in known))
    y, how, number = stored["y"], *split.split("-")[:2]
    if how == "folds":
        return splits.folds(y, number=int(number), fold=seed)
    if facts.kind != "multiclass" or facts.level == "node":
        y = torch.zeros(len(stored[store.SLICES + "x"]) - 1)
    return splits.stratified(y, val=0.1, test=0.1, generator=Generator().manual_seed(seed))


def _facts(info: DatasetInfo, stored: Mapping[str, Tensor]) -> SetFacts:
    y, notes = stored["y"], store.notes_of(stored)
    outputs = outputs_of(y, info.kind)
    nodes, edges = (store.categories_of(stored, part) for part in ("x", "edge_attr"))
    return SetFacts(
        info.name, info.kind, info.level, outputs, info.metric, nodes, edges,
        notes.get("smiles"), tuple(notes.get("left_out", ())),
    )  # fmt: skip
