"""Graphs by name: embedded ones at once, published ones from raw files that already lie there.

Nothing is ever downloaded. Raw files are checked against their SHA-256 where it is known, read by
PyG's or ogb's own class in a private copy of their folder, and kept as plain arrays in a cache of
their own, so that the folder with the raw files may be read-only.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data as Data
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets import embedded, files
from graphtheory.lab.datasets.cache import processed
from graphtheory.lab.datasets.catalogue import DatasetInfo, describe, known_seed, names
from graphtheory.lab.datasets.graph_sets import GraphSet, load_graphs
from graphtheory.lab.datasets.node_readers import (
    READERS,
    as_sparse_rows,
    known_nodes,
    sparse_rows,
    topology,
)
from graphtheory.lab.datasets.splits import Split, by_fraction, per_class

__all__ = [
    "DatasetInfo",
    "GraphSet",
    "both_ways",
    "describe",
    "load",
    "load_graphs",
    "load_known",
    "load_topology",
    "names",
]

_SPARSE_BELOW = 0.25  # density under which the cache keeps features sparse
_SPARSE = ("musae", "coauthor")  # families whose features would fill much memory
_MASKS = ("train_mask", "val_mask", "test_mask")


def load(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    cache: str | PathLike[str] | None = None,
) -> Data:
    """One graph with node labels and the masks of one split.

    Edges are what PyG's or ogb's class gives: both directions for Planetoid, the heterophilous,
    LINKX and MUSAE sets; directed, as published, for Actor, WebKB, genius and ogbn-arxiv. Features
    are as published, without normalization; those of Photo, Computers, CS and Physics say which
    words occur, as in PyG. "facebook", CS and Physics have sparse features (22,470 x 4,714 would
    be 424 MB dense), which `torch.nn.Linear` takes as they are; every other set has dense ones.

    Splits: "public" is Planetoid's; "published" has ten (seed 10 is the first again) or, for
    ogbn-arxiv, one; "random-20" draws 20 training nodes of each class, 500 for validation, 1000
    for the test; "random-60-20-20" and "random-50-25-25" are shares in percent of the labeled
    nodes. The LINKX sets come without splits here and with unlabeled nodes, y = -1, which are in
    no mask; nor are nodes of "core-distance" without a majority. In CiteSeer 15 isolated nodes
    without features have y = 0, as in PyG.

    Args:
        name: One of `names("node")`; case does not matter.
        root: Folder with the raw files in PyG's layout (`describe(name).folder`); may be
            read-only; not needed for embedded sets.
        split: One of `describe(name).splits`; None for the first of them.
        seed: Number of the split, 0 or more; "core-neighborhood", "core-distance" and "power-law"
            are drawn by it.
        cache: Folder for processed arrays; None for $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.

    Shapes:
        x [N, F] float32 (`torch.sparse_csr` for "facebook", CS and Physics); y [N] int64;
        edge_index [2, E] int64; train_mask, val_mask, test_mask [N] bool.

    Returns:
        Data with these and name, split, metric ("accuracy" or "rocauc"), num_classes and kind:
        "multiclass", or "multilabel" for ogbn-proteins, whose y is float [N, 112]; for OGB's sets
        also evaluator, the name of ogb's `Evaluator`.

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
    data = embedded.GRAPHS[info.name](generator) if info.embedded else _published(info, root, cache)
    masks = _masks(data, chosen, seed, generator)
    data.update(dict(zip(_MASKS, masks, strict=True)))
    data.name, data.split, data.metric = info.name, chosen, info.metric
    data.kind, data.num_classes = info.kind, _classes(data.y)
    if info.evaluator is not None:
        data.evaluator = info.evaluator
    return data


def both_ways(data: Data) -> Data:
    """The graph with both directions of each edge, each once.

    Args:
        data: With edge_index and without attributes of edges.
    """
    data = data.clone()
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    return data


def load_topology(name: str, root: str | PathLike[str] | None = None) -> Data:
    """A Planetoid graph without features: edges, labels and public split, for want of allx.

    PubMed's features are one 7.6 MB file that is often missing; distances, sampling and kernels do
    not need it. The files may lie in Planetoid/<name>/raw or in Planetoid_<name>_partial.

    Args:
        name: "Cora", "CiteSeer" or "PubMed".
        root: Folder that holds one of the two folders.

    Returns:
        Data as `load` gives it with split "public", and x None.

    Raises:
        ValueError: Not a Planetoid set.
        FileNotFoundError: Raw files are missing.
        DamagedFileError: A raw file is not the published one.
    """
    info = describe(name)
    if info.family != "planetoid":
        raise ValueError(f"name: got {name!r}, expected 'Cora', 'CiteSeer' or 'PubMed'")
    found = files.locate_topology(info, root)
    with files.staged(found, files.digests(found, all_pinned=True)) as private:
        data = topology(private / info.folder, info.name)
    data.num_nodes = len(data.y)
    data.name, data.split, data.metric = info.name, "public", info.metric
    data.num_classes = int(data.y.max()) + 1
    return data


def load_known(name: str, root: str | PathLike[str] | None = None) -> Data:
    """Features and labels of the nodes whose features are at hand, without edges.

    These are all nodes of a graph; of a Planetoid set whose file allx is missing the training nodes
    and the test nodes of the public split, in this order: 1,060 of PubMed.

    Args:
        name: One of `names("node")`.
        root: Folder with the raw files, as `load` or `load_topology` takes it.

    Raises:
        ValueError: Unknown name.
        FileNotFoundError: Raw files are missing.
        DamagedFileError: A raw file is not the published one.
    """
    try:
        data = load(name, root)
        return Data(x=data.x, y=data.y)
    except FileNotFoundError as missing:
        info = describe(name)
        if info.family != "planetoid":
            raise
        try:
            found = files.locate_topology(info, root, ".x", ".tx")
        except FileNotFoundError:
            raise missing from None
    with files.staged(found, files.digests(found, all_pinned=True)) as private:
        return known_nodes(private / info.folder, info.name)


def _classes(y: Tensor) -> int:
    """Classes, or labels where a node may have several."""
    return y.size(1) if y.dim() == 2 else int(y.max()) + 1


def _published(
    info: DatasetInfo, root: str | PathLike[str] | None, cache: str | PathLike[str] | None
) -> Data:
    def read(private: Path) -> dict[str, Tensor]:
        data = READERS[info.family](private, info)
        found = {"nodes": data.num_nodes, "edges": data.num_edges, "features": data.x.size(1)}
        files.verify_counts(info, found | {"classes": _classes(data.y)})
        return _pack(data)

    return _unpack(processed(info, root, cache, read), sparse=info.family in _SPARSE)


def _pack(data: Data) -> dict[str, Tensor]:
    """Tensors by name; features in CSR parts when most of them are zero."""
    out = {name: value for name, value in data if name != "x" and isinstance(value, Tensor)}
    x = data.x
    if x.layout != torch.sparse_csr:
        if int(x.count_nonzero()) >= _SPARSE_BELOW * x.numel():
            return out | {"x": x.float()}
        x = as_sparse_rows(x)
    return out | {
        "x_indptr": x.crow_indices(),
        "x_indices": x.col_indices(),
        "x_values": x.values().float(),
        "x_shape": torch.tensor(x.shape),
    }


def _unpack(stored: dict[str, Tensor], *, sparse: bool) -> Data:
    if "x" in stored:
        return Data(**stored)
    indptr, indices, values, shape = (
        stored.pop(f"x_{part}") for part in ("indptr", "indices", "values", "shape")
    )
    x = sparse_rows(indptr, indices, values, tuple(shape.tolist()))
    return Data(x=x if sparse else x.to_dense(), **stored)


def _masks(data: Data, split: str, seed: int, generator: Generator) -> Split:
    if split in ("public", "published"):
        masks = (data[name].view(data.num_nodes, -1).bool() for name in _MASKS)
        return Split(*(mask[:, seed % mask.size(1)].contiguous() for mask in masks))
    if split == "random-20":
        return per_class(data.y, generator=generator)
    shares = {"random-60-20-20": (0.2, 0.2), "random-50-25-25": (0.25, 0.25)}
    val, test = shares[split]
    return by_fraction(data.y, val=val, test=test, generator=generator)
