"""Settings of a figure and the cells that are run under them, one by one or side by side."""

import ctypes
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from functools import partial
from itertools import count, product
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, ClassVar, TypeVar

import torch

from graphtheory.lab.bench.finished import Finished
from graphtheory.lab.train.checkpoint import CheckpointError, checkpoint_dir

Item = TypeVar("Item")
Result = TypeVar("Result")
_PATIENCE = 0.05  # seconds


def map_on_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``[work(item) for item in items]``, several at a time, each on a thread of its own.

    As many as torch has threads, and torch has one within each: small computations gain more from
    that than from two threads that share each of them. `work` must draw from generators of its own.
    An error, Ctrl-C among them, ends what is under way at its next line of Python.

    Example:
        >>> map_on_threads(lambda number: number**2, [2, 3, 4])
        [4, 9, 16]
    """
    threads = torch.get_num_threads()
    if min(threads, len(items)) < 2:
        return [work(item) for item in items]
    busy: set[int] = set()

    def on_thread(item: Item) -> Result:
        busy.add(get_ident())
        try:
            return work(item)
        finally:
            busy.discard(get_ident())

    begin = partial(torch.set_num_threads, 1)  # of the thread, and of those that begin after it
    with ThreadPoolExecutor(min(threads, len(items)), initializer=begin) as pool:
        try:
            futures = [pool.submit(on_thread, item) for item in items]
            for ended in wait(futures, return_when=FIRST_EXCEPTION).done:
                ended.result()  # raises what it raised
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while any([_interrupt(thread) for thread in tuple(busy)]):
                time.sleep(_PATIENCE)  # a finalizer may have swallowed it
            raise
        finally:
            torch.set_num_threads(threads)


def _interrupt(thread: int) -> bool:
    """Raise KeyboardInterrupt in a thread, at its next line of Python; whether it lives."""
    error = ctypes.py_object(KeyboardInterrupt)
    return bool(ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error))


Cell = dict[str, Any]
"""Name -> value: the arguments of a figure's `run`."""
Measured = dict[str, Any]
"""What one run measured at one place, as plain values under names."""
Progress = Callable[[str, int, int], None]
"""(name of the cell, cells done or begun, cells in all), called before each cell that is run."""


def axis(cell: str, default: Any = MISSING) -> Any:
    """A field of a `Grid` whose entries are run one by one; a cell holds one entry as `cell`.

    A whole number n, as of seeds, stands for the entries first, ..., first + n - 1, where `first`
    is another field of the grid, or 0.
    """
    return field(default=default, metadata={"axis": cell})


def unrecorded(default: Any = MISSING) -> Any:
    """A field of a `Grid` that changes no result, such as the folder of the raw files."""
    return field(default=default, metadata={"recorded": False})


@dataclass(frozen=True)
class Grid:
    """Base of the settings of a figure: a frozen dataclass, some of whose fields are axes.

    The cells are all combinations of the entries of its axes, the last axis fastest; without an
    axis there is one cell. What a run is recorded under follows from the fields: the settings that
    are no axes, and the cell. A grid with more seeds or cases therefore takes over what was run
    before. By convention `seeds` says how many networks, trials or draws there are, `first` which
    seed is the first, and `dataset` and `root` where the data lie.

    Example:
        >>> @dataclass(frozen=True)
        ... class Widths(Grid):
        ...     widths: tuple[int, ...] = axis("width")
        ...     steps: int = 10
        ...     seeds: int = axis("seed", 2)
        >>> Widths((4, 8)).cells()[1]
        {'width': 4, 'seed': 1}
        >>> Widths((4, 8)).key({"width": 4, "seed": 1})
        {'width': 4, 'steps': 10, 'seed': 1}
    """

    # whether several cells may run at once, on a thread each. They must draw from generators of
    # their own.
    side_by_side: ClassVar[bool] = False

    def cells(self) -> list[Cell]:
        """All combinations of the axes' entries."""
        names = [f.metadata.get("axis", f.name) for f in fields(self)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{type(self).__name__}: {twice[0]!r} names two fields of the grid")
        axes = {f.metadata["axis"]: self._entries(f) for f in fields(self) if "axis" in f.metadata}
        return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]

    def key(self, cell: Cell) -> dict[str, Any]:
        """All that decides what the cell measures, as plain values."""
        axes = [getattr(self, f.name) for f in fields(self) if "axis" in f.metadata]
        counted = any(isinstance(entries, int) for entries in axes)
        out: dict[str, Any] = {}
        for f in fields(self):
            if "axis" in f.metadata:
                out[f.metadata["axis"]] = cell[f.metadata["axis"]]
            elif f.metadata.get("recorded", True) and not (counted and f.name == "first"):
                out[f.name] = getattr(self, f.name)
        return json.loads(json.dumps(out, default=asdict))

    def measure(
        self, run: Callable[..., list[Measured]], progress: Progress = lambda *_: None,
        *, kept: Path | None = None,
    ) -> list[Measured]:  # fmt: skip
        """What `run(self, **cell)` measures in all cells, in their order.

        Args:
            run: Measures one cell.
            progress: Called before each cell that is run.
            kept: A file where each cell is added when it ends, one JSON object per line; cells that
                stand there under the same key are not run again. Beside it, in `under_way(kept)`,
                trainings of the cells that have not ended leave their state about once a minute,
                and go on from there.
        """
        cells, finished = self.cells(), Finished[list[Measured]](kept)
        todo = [cell for cell in cells if finished.find(self.key(cell)) is None]
        if kept is not None and under_way(kept).exists():
            keep = {_folder(kept, self.key(cell)) for cell in todo}
            for cell in cells:  # whose process ended before it could clear up
                if (folder := _folder(kept, self.key(cell))) not in keep:
                    shutil.rmtree(folder, ignore_errors=True)
        begun, one_at_a_time = count(len(cells) - len(todo)), Lock()

        def finish(cell: Cell) -> None:
            with one_at_a_time:
                progress(label(cell), next(begun), len(cells))
            with _place(kept, self.key(cell)):
                measured = run(self, **cell)
            with one_at_a_time:
                finished.add(self.key(cell), measured)
                if kept is not None:
                    shutil.rmtree(_folder(kept, self.key(cell)), ignore_errors=True)

        if self.side_by_side:
            map_on_threads(finish, todo)
        else:
            for cell in todo:
                finish(cell)
        if kept is not None:
            with suppress(OSError):  # none, or with cells of another grid
                under_way(kept).rmdir()
        return [row for cell in cells for row in finished.find(self.key(cell)) or []]

    def _entries(self, axis: Field[Any]) -> list[Any]:
        value = getattr(self, axis.name)
        if isinstance(value, int):
            first = getattr(self, "first", 0)
            return list(range(first, first + value))
        return list(value)


def under_way(kept: Path) -> Path:
    """The folder of what the cells of a file have under way."""
    return kept.with_suffix(".under-way")


def _folder(kept: Path, key: dict[str, Any]) -> Path:
    """The folder of one cell's unfinished trainings."""
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return under_way(kept) / name[:16]


@contextmanager
def _place(kept: Path | None, key: dict[str, Any]) -> Iterator[None]:
    """Where the trainings of a cell keep their state; nowhere without a file of cells."""
    if kept is None:
        yield
        return
    folder = _folder(kept, key)
    try:
        with checkpoint_dir(folder):
            yield
    except CheckpointError as error:
        raise CheckpointError(f"{error}; without {folder} this cell alone starts anew") from error


def label(cell: Cell) -> str:
    """A cell in progress and messages: "case of its own name, labels 40, seed 3"."""

    def told(name: str, value: Any) -> str:
        if isinstance(value, int | float):
            return f"{name} {value:g}"
        return str(getattr(value, "name", value))

    shown = {name: value for name, value in cell.items() if value is not None}
    return ", ".join(told(name, value) for name, value in shown.items()) or "all"
