"""A graph in files that are read by pages, for edges and features larger than memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from graphtheory.data.loaders.parquet import Progress, SortedTables
from graphtheory.data.loaders.parts import check_part
from graphtheory.data.loaders.seeds import seeds_of
from graphtheory.data.loaders.source import NodeSource, check_names, source_of
from graphtheory.data.loaders.writing import (
    INDICES,
    INDPTR,
    NAMES,
    ORIGINAL,
    PART,
    TOLD,
    WEIGHT,
    _digest_of,
    check_file_name,
    digest,
    tell,
    write_all,
)
from graphtheory.disk import check_empty, whole_folder
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import within

_DAMAGES = (ValueError, EOFError, OverflowError, TypeError, IsADirectoryError)
_IDS = 2**20  # ids that are looked at together
# What the oldest folders do not say.
_NEWER: dict[str, Any] = {"sha256": {}, "edge_attributes": [], "named": False}


class GraphFolder(NodeSource):
    """A graph that `write` left in a folder; loaders take it in place of `Data`.

    Rows of edges and of attributes are memory-mapped: what a batch asks for is read from the disk.
    A pattern that is not applied to some rows alone, such as
    ``Compose(AddSelf(), SymmetricNormalize())`` in `NodeSetLoader`, still makes a copy of all edges
    in memory: apply it before, as `edge_weight`, or use `PartitionLoader`. Ids and row pointers are
    read once when it is opened, and refused where they do not hold together; `verify` reads all
    files and notices every changed byte. While it is open, nobody may write to its files, which no
    batch reads whole: searches (`KHop`) read a copy of the edges in memory, 4 bytes each, checked
    as it is made; what samplers read is checked in each batch, and `graph` in each operation.

    Args:
        folder: What `write` wrote.
        attributes: Names of what travels with nodes and edges, as in `SeedLoader`; None is all of
            the nodes.

    Attributes:
        graph: The edges, mapped.
        part: The part of each node, int64 [N]; zeros if it was written without.
        original_id: The number of each node in the graph that was written, int64 [N].

    Raises:
        FileNotFoundError: No such folder, or a file of it is missing.
        ValueError: Files that do not fit together, ids out of range, names that leave the folder,
            or an unknown attribute.

    Example:
        >>> import tempfile
        >>> from torch_geometric.data import Data
        >>> path = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> with tempfile.TemporaryDirectory() as there:
        ...     kept = GraphFolder.write(path, there, part=torch.tensor([1, 0, 1]))
        ...     kept.original_id.tolist(), kept.part.tolist(), kept.graph.edge_index().tolist()
        ([1, 0, 2], [0, 1, 1], [[1, 0], [0, 2]])
    """

    original_id: Tensor

    def __init__(
        self, folder: str | PathLike[str], attributes: Sequence[str] | None = None
    ) -> None:
        self.folder, self.attributes = Path(folder), attributes
        self.edge, self.left = {}, {}
        told = _told_by(self.folder / TOLD)
        nodes, edges = told["nodes"], told["edges"]
        indptr = self._ids(INDPTR, nodes + 1, edges + 1, rise=True)
        indices = self._ids(INDICES, edges, nodes)
        if int(indptr[0]) != 0 or int(indptr[-1]) != edges:
            self._refuse(INDPTR, f"from {int(indptr[0])} to {int(indptr[-1])}", f"0 to {edges}")
        weight = self._rows(WEIGHT, edges) if told["weighted"] else None
        if weight is not None and not (weight.dim() == 1 and weight.is_floating_point()):
            self._refuse(WEIGHT, f"{weight.dtype} {list(weight.shape)}", "a number for each edge")
        self.graph = Neighborhood(indptr, indices, nodes, weight=weight, validate=False)
        self.part = self._ids(PART, nodes, 2**63 - 1)
        self.original_id = self._ids(ORIGINAL, nodes, nodes)
        self._moved = not torch.equal(self.original_id, torch.arange(nodes))
        self.names = self.folder / NAMES if told["named"] else None
        own, of_edges = told["attributes"], told["edge_attributes"]
        check_names([*own, *of_edges], attributes)
        names = own if attributes is None else attributes
        self.whole = told["whole"]
        self.node = {name: self._rows(f"x.{name}", nodes) for name in names if name in own}
        for name in of_edges if attributes is None else set(of_edges) & set(names):
            kept = self.left if attributes is None else self.edge
            kept[name] = self._rows(f"e.{name}", edges)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.attributes)  # another process maps the files itself

    def _rows(self, name: str, rows: int) -> Tensor:
        """A mapped file with that many rows."""
        path = self.folder / f"{name}.npy"
        if path.is_symlink():
            self._refuse(name, "a link", "a file")
        try:  # "c": what is written to a page stays in this process
            found = torch.from_numpy(np.asarray(np.load(path, mmap_mode="c")))
        except _DAMAGES as error:  # numpy and torch do not say which file it was
            self._refuse(name, f"cut off or damaged ({error})", f"numbers in {rows} rows")
        if found.dim() == 0 or len(found) != rows:
            dtype = str(found.dtype).removeprefix("torch.")
            self._refuse(name, f"{dtype} {list(found.shape)}", f"numbers in {rows} rows")
        return found

    def _ids(self, name: str, rows: int, limit: int, *, rise: bool = False) -> Tensor:
        """A mapped file of numbers 0..limit-1, looked at in pieces, and whether they never fall."""
        ids, last = self._rows(name, rows), 0
        whole = (torch.int64,) if name != INDICES else (torch.int64, torch.int32)
        if ids.dim() != 1 or ids.dtype not in whole:
            self._refuse(name, f"{ids.dtype} {list(ids.shape)}", f"int64 [{rows}]")
        for some in ids.split(_IDS):
            if len(some) and not within(some, limit):
                found = f"entries {int(some.min())} to {int(some.max())}"
                self._refuse(name, found, f"0..{limit - 1}")
            if rise and len(some) and (int(some[0]) < last or bool((some.diff() < 0).any())):
                self._refuse(name, "row pointers that fall", "pointers that never fall")
            last = int(some[-1]) if len(some) else last
        del ids, some
        return self._rows(name, rows)  # mapped anew: what was looked at need not stay in memory

    def _refuse(self, name: str, found: str, expected: str) -> NoReturn:
        raise ValueError(
            f"{self.folder / name}.npy: {found}, expected {expected}; write the folder again"
        )

    def ids(self, original: Any) -> Tensor:
        """Where nodes of the graph that was written stand in this one.

        Args:
            original: Their ids there, int64 [S], or a Bool mask of them [N]. Where the ids in
                Parquet files were not 0..N-1, these ids, a list or a tensor; reading them needs
                duckdb.

        Returns:
            Ids in this graph, int64 [S], those of a mask in the order of the original ids.

        Raises:
            TypeError, ValueError: Neither ids nor a mask of these nodes.
            IndexError: An id that was not in the graph that was written.
        """
        if self.names is not None:
            original = _numbers_of(original, self.names)
        nodes = seeds_of(original, len(self.original_id), repeated=True).nodes
        place = torch.full((len(self.original_id),), -1)
        place[self.original_id] = torch.arange(len(place))
        if len(place) and int(place.min()) < 0:
            missing = f"no node that was {int(place.argmin())}"
            self._refuse(ORIGINAL, missing, f"each of 0..{len(place) - 1} once")
        return place[nodes]

    def is_original(self, name: str, value: Any, order: str | None) -> bool:
        super().is_original(name, value, order)
        own = value is None or any(value is mine for mine in (self.part, *self.node.values()))
        if self.names is not None and not own and order != "folder":
            raise ValueError(
                f"{name}: the nodes of {self.folder} had ids of their own, expected "
                "node_order='folder' and what its `ids` gives for these ids"
            )
        if own or not self._moved:
            return False
        if order is None:
            raise ValueError(
                f"{name}: {self.folder} has its nodes in the order of their parts, expected a "
                "tensor of its `node` or `part` itself, or node_order='original' for ids and masks "
                "of the data that was written, 'folder' for those of the folder, as n_id"
            )
        return order == "original"

    def verify(self) -> None:
        """Read every file once; raise for one whose bytes are not those that `write` wrote."""
        digests = _told_by(self.folder / TOLD)["sha256"]
        if not digests:
            raise ValueError(f"{self.folder}: written without digests; write it again")
        for name, expected in digests.items():
            if digest(self.folder / name) != expected:
                raise ValueError(
                    f"{self.folder / name}: damaged, its bytes do not match their SHA-256; write "
                    "the folder again"
                )

    @classmethod
    def write(
        cls,
        data: Any,
        folder: str | PathLike[str],
        part: Tensor | None = None,
        attributes: Sequence[str] | None = None,
    ) -> GraphFolder:
        """Write a graph with its nodes in the order of their parts, a part in one piece.

        Nodes get new numbers; `original_id` of a batch has the old. Beside the graph itself
        about 65,536 of its rows are in memory at a time.

        Args:
            data: What `NodeSetLoader` takes. Its tensors are dense, with a row for each node or
                edge; numbers and strings are kept as they are.
            folder: Made where it is missing; must be empty. It is written beside and renamed, so
                that an interrupted call leaves nothing in it.
            part: The part of each node, int64 [N], such as of `metis`; None is one for all.
            attributes: Names of what travels with nodes and edges; None is all that can.

        Raises:
            FileExistsError: Something lies in the folder.
            TypeError, ValueError: As `SeedLoader`, or a part or attribute that does not fit.
        """
        source, folder = source_of(data, attributes), Path(folder)
        edge = source.edge | (source.left if attributes is None else {})
        nodes = source.graph.num_dst
        part = torch.zeros(nodes, dtype=torch.int64) if part is None else part
        check_part(part, nodes)
        order = part.argsort(stable=True)
        with whole_folder(folder) as draft:
            write_all(draft, source, part, order, edge)
        return cls(folder)

    @classmethod
    def from_parquet(
        cls,
        edges: str | PathLike[str],
        nodes: str | PathLike[str],
        folder: str | PathLike[str],
        *,
        id: str = "id",
        part: str | None = None,
        source: str = "source",
        target: str = "target",
        weight: str | None = None,
        edge_attributes: Sequence[str] = (),
        x: Sequence[str] = (),
        normalize: bool = False,
        memory_limit: str = "2GB",
        progress: Progress = lambda what, done, total: None,
    ) -> GraphFolder:
        """Write a graph that stands in Parquet files, without holding it in memory.

        DuckDB sorts in ``.FOLDER.parquet`` beside the folder; after a kill the same call goes on.
        In memory are `memory_limit` and 16 to 40 bytes a node.

        Args:
            edges: Parquet files, a path or a pattern.
            nodes: Such files; columns of numbers, or of lists of them, travel. All files of a kind
                have the same columns.
            folder: Made where it is missing; must be empty.
            id: Column of `nodes` that edges refer to, of numbers or text.
            part: Column of whole numbers; None is one.
            source: Column of `edges` with the node that sends.
            target: Column of `edges` with the node that receives.
            weight: Column of `edges` that becomes the weight, float32.
            edge_attributes: Columns of `edges` that travel, as those of `nodes`; not beside
                `normalize`, whose loops would have none.
            x: Columns of numbers that become x together, float32.
            normalize: Make the edges those of ``Compose(AddSelf(), SymmetricNormalize())``.
            memory_limit: Of DuckDB, such as "8GB".
            progress: Called with what is done, rows done, and rows in all.

        Returns:
            The folder. Where the ids are 0..N-1, `original_id` has them, else their ranks; the ids
            of the ranks are in ``names.parquet``, and `ids` finds their nodes.

        Raises:
            FileNotFoundError, FileExistsError: No such files, or something lies in the folder.
            ValueError: What does not fit, or other files than those of the call that goes on.
            BlockingIOError: Another call is writing this folder.
        """
        folder = check_empty(Path(folder).absolute())
        tables = SortedTables(
            folder.with_name(f".{folder.name}.parquet"), str(nodes), str(edges),
            {"id": id, "part": part, "source": source, "target": target, "weight": weight},
            x, normalize, memory_limit, progress, list(edge_attributes),
        )  # fmt: skip
        names, weighted = tables.write_nodes(), tables.write_edges(INDICES, WEIGHT)
        tables.save(INDPTR, np.append(0, tables.degrees().cumsum()))
        tables.save(PART, tables.parts())
        tables.save(ORIGINAL, tables.original_ids())
        tell(
            tables.work, tables.num_nodes, tables.num_edges, attributes=names, whole={},
            weighted=weighted, edge_attributes=tables.of_edges, named=tables.write_names(),
        )  # fmt: skip
        tables.finish(folder)
        return cls(folder)


def _numbers_of(ids: Any, names: Path) -> Tensor:
    """The ranks of ids that a file holds."""
    import duckdb

    wanted = ids.tolist() if isinstance(ids, Tensor | np.ndarray) else list(ids)
    with duckdb.connect() as db:
        rows = db.execute(
            "SELECT id, original_id FROM read_parquet(?) "
            "WHERE id::VARCHAR IN (SELECT unnest(?::VARCHAR[]))",
            [str(names), [str(one) for one in wanted]],
        ).fetchall()
    found = {(type(name), name): number for name, number in rows}
    missing = [one for one in wanted if (type(one), one) not in found]
    if missing:
        raise IndexError(f"original: {missing[0]!r} was no id of the nodes")
    return torch.tensor([found[type(one), one] for one in wanted], dtype=torch.int64)


def _told_by(path: Path) -> dict[str, Any]:
    """What the folder says of itself, which has to fit its own digest."""
    if not path.exists():
        raise FileNotFoundError(
            f"folder: {path.parent} holds no {path.name}, expected one that GraphFolder.write "
            "wrote to its end"
        )
    try:
        told = json.loads(path.read_text())
        if not isinstance(told, dict):
            raise ValueError(f"a {type(told).__name__}, expected a graph's facts by name")
        _check_told(_NEWER | told)
    except (RecursionError, *_DAMAGES) as error:
        raise ValueError(f"{path}: {error}; write the folder again") from error
    known = told.pop("digest", None)
    if known is not None and known != _digest_of(told):
        raise ValueError(
            f"{path}: damaged, it does not match its own digest; write the folder again"
        )
    return _NEWER | told


def _check_told(told: dict[str, Any]) -> None:
    """Raise unless it says what `write` says, of names that stay in the folder."""
    wanted = {"nodes": int, "edges": int, "weighted": bool, "attributes": list, "whole": dict}
    for name, kind in (wanted | {"edge_attributes": list, "sha256": dict, "named": bool}).items():
        if type(told.get(name)) is not kind or (kind is int and not 0 <= told[name] < 2**63):
            raise ValueError(f"{name}: {told.get(name)!r}, expected {kind.__name__}")
    names = (*told["attributes"], *told["whole"])
    for name in (*names, *told["edge_attributes"], *told["sha256"]):
        check_file_name(name)
    if len(set(names)) < len(names) or "edge_index" in names:
        raise ValueError(f"attributes: got {sorted(names)}, expected each once, and no edge_index")
