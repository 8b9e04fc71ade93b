"""Writing the arrays of a graph into a folder, and what the folder says of itself."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphtheory.data.loaders.source import Named, NodeSource
from graphtheory.disk import replace_file
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import row_places, take_rows

_ROWS = 65_536  # nodes that are written at a time
INDPTR, INDICES, WEIGHT, TOLD = "edges.indptr", "edges.indices", "edges.weight", "graph.json"
PART, ORIGINAL, NAMES = "part", "original_id", "names.parquet"


def write_all(folder: Path, source: NodeSource, part: Tensor, order: Tensor, edge: Named) -> None:
    """Write a graph with its nodes in an order, and what the folder says of itself."""
    whole = _whole(source.of_nodes(order[:2]), len(order[:2]))
    few = torch.arange(min(2, source.graph.num_edges))
    _whole({name: take_rows(value, few) for name, value in edge.items()}, len(few))
    nodes, original = len(order), source.original_id
    np.save(folder / f"{PART}.npy", part[order].numpy())
    moved = order if original is None else original[order]
    np.save(folder / f"{ORIGINAL}.npy", moved.numpy())
    _write(folder, nodes, _rows_of(source, order, whole))
    _write(folder, source.graph.num_edges, _edges_of(source.graph, order, edge))
    degree = source.graph.degree()[order]
    indptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    np.save(folder / f"{INDPTR}.npy", indptr.numpy())
    names = sorted(set(source.of_nodes(order[:1])) - set(whole))
    more = {"weighted": source.graph.weight is not None, "edge_attributes": [*edge]}
    if source.names is not None:
        shutil.copy(source.names, folder / NAMES)
        more["named"] = True
    tell(folder, nodes, source.graph.num_edges, attributes=names, whole=whole, **more)


def tell(folder: Path, nodes: int, edges: int, **more: Any) -> None:
    """Write what the folder says of itself, with the SHA-256 of each file."""
    files = [*sorted(folder.glob("*.npy")), *folder.glob(NAMES)]
    digests = {path.name: digest(path) for path in files}
    told = {"nodes": nodes, "edges": edges, "sha256": digests} | more
    told = json.loads(json.dumps(told))  # as it comes back
    text = json.dumps(told | {"digest": _digest_of(told)})
    replace_file(folder / TOLD, text.encode())  # the last file: without it there is none


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while some := file.read(2**20):
            found.update(some)
    return found.hexdigest()


def _digest_of(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def check_file_name(name: object) -> None:
    """Raise unless a file of that name lies in its folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or re.search(r"[/\\\0]", name):
        raise ValueError(f"attributes: got the name {name!r}, expected one without / and \\")
    if len(name.encode()) > 240:  # with what stands around it, 255 in most file systems
        raise ValueError(f"attributes: got a name of {len(name)} letters, expected up to 240 bytes")


def check_attribute(name: str) -> None:
    """Raise for the name of an attribute that a folder cannot hold."""
    check_file_name(name)
    if name in (ORIGINAL, "edge_index"):
        raise ValueError(f"{name}: the folder says something else under this name; rename it")


def _whole(rows: dict[str, Any], nodes: int) -> dict[str, Any]:
    """What the attributes of some nodes say of the whole graph; raises for what has no rows."""
    for name, value in rows.items():
        check_attribute(name)
        if isinstance(value, Tensor) and (
            value.layout != torch.strided or value.shape[:1] != (nodes,)
        ):
            raise ValueError(
                f"{name}: {value.layout} of shape {tuple(value.shape)} for {nodes} rows, "
                "expected a dense row for each; name those that shall travel in `attributes`"
            )
        if isinstance(value, Tensor) and value.dtype is torch.bfloat16:
            raise TypeError(f"{name}: dtype {value.dtype}, expected one that numpy has, as float16")
    return {name: value for name, value in rows.items() if not isinstance(value, Tensor)}


def _rows_of(source: NodeSource, order: Tensor, whole: dict[str, Any]) -> Iterator[Named]:
    for some in order.split(_ROWS):
        row = source.of_nodes(some)
        yield {f"x.{name}": value for name, value in row.items() if name not in whole}


def _edges_of(graph: Neighborhood, order: Tensor, edge: Named) -> Iterator[Named]:
    new = torch.empty_like(order)
    new[order] = torch.arange(len(order))
    for some in order.split(_ROWS):
        edges = row_places(graph.indptr, some)[1]
        given = edges if graph.perm is None else graph.perm[edges]
        found = {f"e.{name}": take_rows(value, given) for name, value in edge.items()}
        found[INDICES] = new[graph.indices[edges].long()]
        yield found if graph.weight is None else found | {WEIGHT: graph.weight[edges]}


def _write(folder: Path, length: int, chunks: Iterator[Named]) -> None:
    """One .npy file a name, with the tensors of all chunks one after the other."""
    arrays, written = dict[str, np.ndarray](), 0
    for chunk in chunks:
        rows = 0
        for name, value in chunk.items():
            part, rows = value.detach().numpy(), len(value)
            if name not in arrays:
                path, shape = folder / f"{name}.npy", (length, *part.shape[1:])
                arrays[name] = np.lib.format.open_memmap(path, "w+", part.dtype, shape)
            arrays[name][written : written + rows] = part
        written += rows
