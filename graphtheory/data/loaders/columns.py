"""Columns of Parquet files: the same in all files of a table, and numbers in every row."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

WHOLE = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL", "BIG")}
WHOLE |= {"INTEGER", "UINTEGER"}
_NUMBER = re.compile(rf"({'|'.join(WHOLE)}|BOOLEAN|FLOAT|DOUBLE|DECIMAL\(.*?\))(\[\d*\])?")
_MOST = 2**63 - 1


class Table:
    """The rows of some files, which DuckDB reads.

    Args:
        name: For messages.
        db: A connection to DuckDB.
        files: Their paths.

    Attributes:
        rows: What DuckDB calls them.
        types: The type of each column.

    Raises:
        ValueError: Files whose columns differ.
    """

    def __init__(self, name: str, db: Any, files: Sequence[str]) -> None:
        self.name, self.db, self.rows = name, db, _rows_of(files)
        self.types, *others = (
            {row[0]: row[1] for row in db.execute(f"DESCRIBE FROM {_rows_of([f])}").fetchall()}
            for f in files
        )
        for path, other in zip(files[1:], others, strict=True):
            if odd := sorted(set(other.items()) ^ set(self.types.items())):
                raise ValueError(
                    f"{name}: {path} and {files[0]} differ in {odd}, expected columns of the same "
                    "names and types in all files"
                )

    def check_numbers(self, columns: Iterable[str], role: str | None = None) -> None:
        """Raise unless the columns hold numbers, or lists of them where they have no role."""
        for name in columns:
            if not _NUMBER.fullmatch(kind := self.types[name]):
                raise ValueError(
                    f"{name}: a column of {kind}, expected numbers; leave it out of the files"
                )
            if role and kind.endswith("]"):
                raise ValueError(f"{role}: {name!r} has lists, expected a number in every row")

    def check_whole(self, role: str, column: str | None, least: int) -> None:
        """Raise unless a column holds whole numbers from `least` on, which int64 holds."""
        if column is None:
            return
        if self.types[column] not in WHOLE:
            raise ValueError(f"{role}: {column!r} has {self.types[column]}, expected whole numbers")
        of = quoted(column)
        low, high = self.db.execute(f"SELECT min({of}), max({of}) FROM {self.rows}").fetchone()
        if low is not None and not least <= low <= high < _MOST:
            raise ValueError(f"{role}: {column!r} has {low} to {high}, expected {least} or more")

    def check_rows(self, columns: Sequence[str]) -> None:
        """Raise unless every row holds as many numbers; in one pass over the files."""
        asked = []
        for name in columns:
            column, kind = quoted(name), self.types[name]
            empty, length, top = f"{column} IS NULL", "0", column
            if kind.endswith("]"):
                column = f"{column}::{kind.partition('[')[0]}[]"
                length, top = f"len({column})", f"list_max({column})"
                empty += f" OR {length} > list_aggregate({column}, 'count')"
            top = f"max({top})" if kind.startswith("UBIGINT") else "0"
            asked += [f"count(*) FILTER ({empty})", f"min({length})", f"max({length})", top]
        if not asked:
            return
        row = self.db.execute(f"SELECT {', '.join(asked)} FROM {self.rows}").fetchone()
        for k, name in enumerate(columns):
            empty, least, most, top = row[4 * k : 4 * k + 4]
            if empty:
                raise ValueError(f"{name}: has empty entries, expected a number in every row")
            if least != most:
                raise ValueError(f"{name}: lists of unequal length, expected one for all")
            if top is not None and top > _MOST:
                raise ValueError(f"{name}: {top} does not fit int64, expected up to {_MOST}")


def _rows_of(files: Sequence[str]) -> str:
    return f"read_parquet([{', '.join(map(text, files))}], hive_partitioning = false)"


def quoted(column: str | None) -> str:
    """The name of a column in a query."""
    return '"' + str(column).replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in a query."""
    return "'" + value.replace("'", "''") + "'"
