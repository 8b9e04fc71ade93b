"""A graph in Parquet files, which DuckDB sorts outside of memory into the files of a folder."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphtheory.data.loaders.columns import WHOLE, Table, quoted, text
from graphtheory.data.loaders.source import check_names
from graphtheory.data.loaders.writing import NAMES, TOLD, check_attribute
from graphtheory.disk import replace_file

CHUNK = 2**18  # rows of nodes or edges that are read at a time
Progress = Callable[[str, int, int], None]


class SortedTables:
    """Nodes in the order of their parts and edges by target, in a database on the disk.

    What was made survives a kill: tables are whole or absent, and a manifest holds the SHA-256 of
    each piece that was written to an array. All lies in the folder `work`; the other arguments are
    those of `GraphFolder.from_parquet`, with the `columns` by their role.
    """

    def __init__(
        self,
        work: Path,
        nodes: str,
        edges: str,
        columns: dict[str, str | None],
        x: Sequence[str],
        normalize: bool,
        memory_limit: str,
        progress: Progress,
        of_edges: list[str],
    ) -> None:
        if of_edges and normalize:
            raise ValueError(
                f"edge_attributes: got {of_edges} beside normalize=True, whose loops have none; "
                "expected one of the two"
            )
        try:
            import duckdb
        except ImportError as error:
            raise ImportError(
                "from_parquet: needs duckdb; pip install 'pyg-graphtheory[parquet]'"
            ) from error
        limit: dict[str, Any] = {"memory_limit": memory_limit}
        try:
            duckdb.connect(config=limit).close()
        except duckdb.Error as error:
            raise ValueError(
                f"memory_limit: got {memory_limit!r}, expected a size such as '8GB'"
            ) from error
        self.work, self.columns, self.progress = work, columns, progress
        self.x, self.normalize, self.of_edges = list(x), normalize, of_edges
        work.mkdir(parents=True, exist_ok=True)
        self.manifest = work / "manifest.json"
        begun, tables = self.manifest.exists(), work / "sorted.duckdb"
        if not begun:  # of what nobody tells, nothing is taken
            tables.unlink(missing_ok=True)
        try:
            self.db = duckdb.connect(str(tables), config=limit)
        except duckdb.IOException as error:
            raise BlockingIOError(f"folder: {work} is in use by another call ({error})") from error
        self.db.execute("SET temp_directory = ?", [str(work / "spilled")])
        self.db.execute(f"SET threads = {torch.get_num_threads()}")
        try:
            self._sort(nodes, edges)
        except (ValueError, FileNotFoundError, duckdb.InvalidInputException) as error:
            self.db.close()
            if not begun:  # what was asked for cannot be; nothing is lost
                shutil.rmtree(work)
            if isinstance(error, duckdb.InvalidInputException):  # tells the file
                told = str(error).partition("\n")[0]
                raise ValueError(f"nodes or edges: {told}; expected Parquet files") from error
            raise

    def _sort(self, nodes: str, edges: str) -> None:
        files = {"nodes": self._files("nodes", nodes), "edges": self._files("edges", edges)}
        self._begin(files)
        self.nodes, self.edges = (
            Table(name, self.db, [path for path, *_ in found]) for name, found in files.items()
        )
        of_nodes, of_edges = self._of_nodes(), self._of_edges()
        self._make("nodes", self._check_nodes, of_nodes)
        self.num_nodes = int(self._one("SELECT count(*) FROM nodes"))
        self._check_ids()
        self._make("edges", self._check_edges, of_edges)
        self.num_edges = int(self._one("SELECT count(*) FROM edges"))

    def _files(self, name: str, pattern: str) -> list[list[Any]]:
        found = [Path(row[0]) for row in self.db.execute("FROM glob(?)", [pattern]).fetchall()]
        if not found:
            of_folder = ", a folder; expected its files, such as 'FOLDER/*.parquet'"
            pattern += of_folder * Path(pattern).is_dir()
            raise FileNotFoundError(f"{name}: no file matches {pattern}")
        return [[str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns] for p in sorted(found)]

    def _begin(self, files: dict[str, Any]) -> None:
        """Go on with what was begun from these very files in this way, or begin."""
        asked = files | {"columns": self.columns, "x": self.x, "normalize": self.normalize}
        asked |= {"edge_attributes": self.of_edges} if self.of_edges else {}
        self.done: dict[str, str] = {}
        if self.manifest.exists():
            told = json.loads(self.manifest.read_text())
            if told["asked"] != asked:
                raise ValueError(
                    f"folder: {self.work} was begun from other files or options; delete it to "
                    "begin again"
                )
            self.done = told["done"]
        self.asked = asked
        self._tell()

    def _tell(self) -> None:
        replace_file(self.manifest, json.dumps({"asked": self.asked, "done": self.done}).encode())

    def _make(self, table: str, check: Callable[[], object], query: str) -> None:
        if not self._one(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{table}'"):
            self.progress(f"checking {table}", 0, 1)
            check()
            self.progress(f"sorting {table}", 0, 1)
            self.db.execute(f"CREATE TABLE {table} AS {query}")
            self.progress(f"sorting {table}", 1, 1)

    def _one(self, query: str) -> Any:
        row = self.db.execute(query).fetchone()
        return None if row is None else row[0]

    def _of_nodes(self) -> str:
        self._check_columns(self.nodes, ("id", "part"), [("x", name) for name in self.x])
        roles = {self.columns["id"], self.columns["part"], *self.x}
        self.names = [name for name in self.nodes.types if name not in roles]
        if self.x and "x" in self.names:
            raise ValueError("x: columns are to become x, but nodes has a column of that name")
        if both := {*self.names, *(["x"] if self.x else [])} & {*self.of_edges}:
            raise ValueError(
                f"edge_attributes: {sorted(both)} are names of nodes' attributes, expected others"
            )
        for name in [*self.names, *self.of_edges]:
            check_attribute(name)
        check_names([*self.names, *self.of_edges], None)
        if "rowid" in self.nodes.types:
            raise ValueError("nodes: DuckDB numbers rows as 'rowid'; give the column another name")
        self.nodes.check_numbers(self.names)
        self.nodes.check_numbers(self.x, "x")
        order = [self.columns[role] for role in ("part", "id") if self.columns[role]]
        return f"FROM {self.nodes.rows} ORDER BY {', '.join(map(quoted, order))}"

    def _check_columns(self, table: Table, roles: Sequence[str], more: list[Any]) -> None:
        """Raise unless the columns of `roles` and `more` are there."""
        for role, column in [(role, self.columns[role]) for role in roles] + more:
            if column is not None and column not in table.types:
                raise ValueError(
                    f"{role}: {column!r} is no column of {table.name}, which has {[*table.types]}"
                )

    def _check_nodes(self) -> None:
        self.nodes.check_rows([*self.x, *self.names])
        self.nodes.check_whole("part", self.columns["part"], 0)

    def _check_ids(self) -> None:
        ids = quoted(self.columns["id"])
        for role in ("id", "part"):
            column = self.columns[role]
            if column and self._one(f"SELECT count(*) FROM nodes WHERE {quoted(column)} IS NULL"):
                raise ValueError(f"{role}: the column {column!r} of nodes has empty entries")
        twice = self._one(f"SELECT {ids} FROM nodes GROUP BY {ids} HAVING count(*) > 1 LIMIT 1")
        if twice is not None:
            raise ValueError(f"id: {twice!r} names two rows of nodes, expected each id once")

    def _of_edges(self) -> str:
        more = [("edge_attributes", name) for name in self.of_edges]
        self._check_columns(self.edges, ("source", "target", "weight"), more)
        of_ids, weight = self.nodes.types[str(self.columns["id"])], self.columns["weight"]
        for role in ("source", "target"):
            kind = self.edges.types[str(self.columns[role])]
            if kind != of_ids and not {kind, of_ids} <= WHOLE:
                raise ValueError(
                    f"{role}: a column of {kind} for ids of {of_ids}, expected the same type"
                )
        self.of_weight = [weight] if weight else []
        self.edges.check_numbers(self.of_weight, "weight")
        self.edges.check_numbers(self.of_edges)
        source, target, ids = (quoted(self.columns[role]) for role in ("source", "target", "id"))
        given = f"e.{quoted(weight)}::FLOAT" if weight else "1::FLOAT"
        query = (
            f"SELECT t.rowid AS target, s.rowid AS source, {given} AS weight"
            + "".join(f", e.{quoted(n)} AS {quoted(f'e.{n}')}" for n in self.of_edges)
            + f" FROM {self.edges.rows} e JOIN nodes s ON e.{source} = s.{ids} "
            f"JOIN nodes t ON e.{target} = t.{ids}"
        )
        if self.normalize:
            query = (
                f"WITH given AS ({query}) FROM given UNION ALL SELECT rowid, rowid, 1::FLOAT "
                "FROM nodes WHERE rowid NOT IN (SELECT target FROM given WHERE source = target)"
            )
        return f"FROM ({query}) ORDER BY ALL"  # of equal ends, too, in every run alike

    def _check_edges(self) -> None:
        self.edges.check_rows([*self.of_weight, *self.of_edges])
        ids = quoted(self.columns["id"])
        for role in ("source", "target"):
            end = quoted(self.columns[role])
            stray = self.db.execute(
                f"SELECT e.{end} FROM {self.edges.rows} e ANTI JOIN nodes n ON e.{end} = n.{ids} "
                "LIMIT 1"
            ).fetchone()  # None, or a row of what may be NULL
            if stray is not None:
                raise ValueError(f"{role}: edges name {stray[0]!r}, which is no id of nodes")

    def of_nodes(self, query: str, dtype: Any = np.int64) -> np.ndarray:
        """A number for each node, from a query for nodes and values; 0 for other nodes."""
        node, value = self.db.execute(query).fetchnumpy().values()
        out = np.zeros(self.num_nodes, dtype)
        out[node] = value
        return out

    def write_names(self) -> bool:
        """Write the number of each id where the ids are others than 0..N-1; whether they are."""
        ids, to = quoted(self.columns["id"]), text(str(self.work / NAMES))
        ends = self.db.execute(f"SELECT min({ids}), max({ids}) FROM nodes").fetchone()
        whole = self.nodes.types[str(self.columns["id"])] in WHOLE
        named = self.num_nodes > 0 and not (whole and ends == (0, self.num_nodes - 1))
        if named:
            rows = f"SELECT {ids} AS id, {self._rank()} AS original_id FROM nodes"
            self.db.execute(f"COPY ({rows}) TO {to} (FORMAT parquet)")
        return named

    def _rank(self) -> str:
        return f"row_number() OVER (ORDER BY {quoted(self.columns['id'])}) - 1"

    def original_ids(self) -> np.ndarray:
        """Each node's id where the ids are 0..N-1, else its rank among them, int64 [N]."""
        return self.of_nodes(f"SELECT rowid, {self._rank()} FROM nodes")

    def parts(self) -> np.ndarray:
        """The part of each node, int64 [N]; zeros without a column."""
        column = self.columns["part"]
        return self.of_nodes(f"SELECT rowid, {quoted(column) if column else 0} FROM nodes")

    def degrees(self) -> np.ndarray:
        """Edges of each target, int64 [N]."""
        return self.of_nodes("SELECT target, count(*) FROM edges GROUP BY 1")

    def write_nodes(self) -> list[str]:
        """Write ``x.NAME.npy`` for each attribute; returns the names."""
        wanted = [*self.x, *self.names]
        if not wanted:
            return []

        def read(first: int, stop: int) -> dict[str, np.ndarray]:
            found = self._rows("nodes", wanted, first, stop)
            columns = {name: _numbers(found[name]) for name in wanted}
            out = {f"x.{name}": columns[name] for name in self.names}
            if self.x:
                out["x.x"] = np.stack([columns[name] for name in self.x], 1).astype(np.float32)
            return out

        self._write("nodes", self.num_nodes, read)
        return sorted([*self.names, *(["x"] if self.x else [])])

    def write_edges(self, indices: str, weight: str) -> bool:
        """Write sources, attributes, and weights where there are any; returns whether there are."""
        weighted = self.normalize or self.columns["weight"] is not None
        if self.normalize:
            sums = self.of_nodes("SELECT target, sum(weight) FROM edges GROUP BY 1", np.float64)
            scale = np.divide(1, np.sqrt(sums), out=np.zeros_like(sums), where=sums > 0)

        def read(first: int, stop: int) -> dict[str, np.ndarray]:
            more = [f"e.{name}" for name in self.of_edges]
            found = self._rows("edges", ["target", "source", "weight", *more], first, stop)
            out = {indices: found["source"].astype(np.int64)}
            out |= {name: _numbers(found[name]) for name in more}
            if weighted:
                given = _numbers(found["weight"])
                if self.normalize:
                    given = given * scale[found["target"]] * scale[found["source"]]
                out[weight] = given.astype(np.float32)
            return out

        self._write("edges", self.num_edges, read)
        return weighted

    def _rows(self, table: str, names: Sequence[str], first: int, stop: int) -> dict[str, Any]:
        columns = ", ".join(map(quoted, names))
        query = f"SELECT {columns} FROM {table} WHERE rowid BETWEEN {first} AND {stop - 1}"
        found: dict[str, Any] = self.db.execute(f"{query} ORDER BY rowid").fetchnumpy()
        return found

    def _write(
        self, table: str, total: int, read: Callable[[int, int], dict[str, np.ndarray]]
    ) -> None:
        for first in range(0, max(total, 1), CHUNK):
            stop = min(first + CHUNK, total)
            if not self._is_written(table, first, stop):
                made = read(first, stop)
                for name, value in made.items():
                    self._array(name, total, value)[first:stop] = value
                self.done[f"{table} {first}"] = _digest([*made], made.values())
                self._tell()
            self.progress(f"writing {table}", stop, total)

    def _array(self, name: str, total: int, like: np.ndarray) -> np.ndarray:
        path = self.work / f"{name}.npy"
        shape = (total, *like.shape[1:])
        if not path.exists():
            return np.lib.format.open_memmap(path, "w+", like.dtype, shape)
        found = np.load(path, mmap_mode="r+")
        if (found.shape, found.dtype) != (shape, like.dtype):
            raise ValueError(
                f"{name}: rows of {like.dtype} {list(shape[1:])} after rows of {found.dtype} "
                f"{list(found.shape[1:])}, expected the same in every row"
            )
        return found

    def _is_written(self, table: str, first: int, stop: int) -> bool:
        told = self.done.get(f"{table} {first}")
        if told is None:
            return False
        names = told.split()[1:]
        rows = [np.load(self.work / f"{name}.npy", mmap_mode="r")[first:stop] for name in names]
        return _digest(names, rows) == told

    def save(self, name: str, value: np.ndarray) -> None:
        """Write an array to the file of that name in the folder."""
        np.save(self.work / f"{name}.npy", value)

    def finish(self, folder: Path) -> None:
        """Leave in the folder what belongs to the graph, and give it its name."""
        self.db.close()
        shutil.rmtree(self.work / "spilled", ignore_errors=True)
        for path in sorted(self.work.iterdir(), key=self.manifest.__eq__):  # which goes last
            if path.suffix != ".npy" and path.name not in (NAMES, TOLD):
                path.unlink()
        self.work.rename(folder)  # an empty one goes


def _digest(names: Sequence[str], rows: Any) -> str:
    found = hashlib.sha256()
    for row in rows:
        found.update(np.ascontiguousarray(row).data)
    return " ".join([found.hexdigest(), *names])


def _numbers(values: Any) -> np.ndarray:
    """A column of numbers, or of lists of equally many."""
    found = np.asarray(values)
    if found.dtype == object:
        found = np.stack([np.asarray(row) for row in found])
    return found.astype(np.int64) if found.dtype.kind == "u" else found
