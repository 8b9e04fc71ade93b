import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from graphtheory.lab.signals import insistent_signals
from graphtheory.lab.train import CheckpointError
from graphtheory.lab.train.checkpoint import next_place
from graphtheory.papers import grid as grids
from graphtheory.papers.grid import Grid, Measured, axis, label, map_on_threads, under_way


@dataclass(frozen=True)
class Squares(Grid):
    """Numbers that are squared; what is told to fail is interrupted."""

    seeds: int = axis("seed")
    first: int = 0
    factor: float = 1.0
    fails: int | None = grids.unrecorded(None)


@dataclass(frozen=True)
class OnThreads(Squares):
    side_by_side: ClassVar[bool] = True


class Square:
    def __init__(self) -> None:
        self.ran: list[int] = []

    def __call__(self, grid: Squares, seed: int) -> list[Measured]:
        if seed == grid.fails:
            raise KeyboardInterrupt
        self.ran.append(seed)
        return [{"i": seed, "square": grid.factor * seed * seed / 3}] * 2


def test_without_a_file_every_cell_runs() -> None:
    told: list[tuple[str, int, int]] = []
    square = Square()
    rows = Squares(2).measure(square, lambda *step: told.append(step))
    assert [r["i"] for r in rows] == [0, 0, 1, 1]
    assert told == [("seed 0", 0, 2), ("seed 1", 1, 2)]
    assert Squares(2).measure(square) == rows and square.ran == [0, 1, 0, 1]


def test_an_interrupted_figure_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    kept = tmp_path / "made" / "figure.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Squares(4, fails=2).measure(Square(), kept=kept)
    assert [json.loads(line)["settings"] for line in kept.read_text().splitlines()] == [
        {"seed": 0, "factor": 1.0}, {"seed": 1, "factor": 1.0},
    ]  # fmt: skip
    kept.write_text(kept.read_text() + '{"settings": {"seed": 2}, "ro')  # cut short by a crash
    later, told = Square(), list[int]()
    rows = Squares(4).measure(later, lambda _, done, __: told.append(done), kept=kept)
    assert rows == Squares(4).measure(Square())
    assert later.ran == told == [2, 3]


def test_what_a_cell_has_under_way_stays_until_it_ends(tmp_path: Path) -> None:
    kept, places = tmp_path / "figure.jsonl", list[Path | None]()

    def run(grid: Squares, seed: int) -> list[Measured]:
        place = next_place()
        places.append(place)
        if place is not None:
            place.mkdir(parents=True, exist_ok=True)
        return Square()(grid, seed)

    with pytest.raises(KeyboardInterrupt):
        Squares(2, fails=1).measure(run, kept=kept)
    first, second = places
    assert first is not None and second is not None and first != second
    assert not first.exists() and second.exists() and under_way(kept) in second.parents
    (first / "of a process that was killed").mkdir(parents=True)
    Squares(2).measure(run, kept=kept)
    assert places[2] == second  # the same cell has the same place
    assert not under_way(kept).exists()
    Squares(2).measure(run)
    assert places[3:] == [None, None]


def test_a_state_that_cannot_be_used_names_what_to_remove(tmp_path: Path) -> None:
    def run(grid: Squares, seed: int) -> list[Measured]:
        raise CheckpointError("last.ckpt: damaged")

    told = r"damaged; without .*figure.under-way.* alone starts"
    with pytest.raises(CheckpointError, match=told):
        Squares(1).measure(run, kept=tmp_path / "figure.jsonl")


def test_cells_side_by_side_make_the_same_rows(tmp_path: Path, two_threads: None) -> None:
    kept, told = tmp_path / "figure.jsonl", list[tuple[int, int]]()
    with pytest.raises(KeyboardInterrupt):
        OnThreads(9, fails=5).measure(Square(), kept=kept)
    done = len(kept.read_text().splitlines())
    assert done < 9
    later = Square()
    rows = OnThreads(9).measure(later, lambda _, done, total: told.append((done, total)), kept=kept)
    assert told == [(i, 9) for i in range(done, 9)] and len(later.ran) == 9 - done
    assert [row["i"] for row in rows[::2]] == list(range(9))


def test_more_seeds_are_added_and_other_settings_run_again(tmp_path: Path) -> None:
    kept, square = tmp_path / "figure.jsonl", Square()
    Squares(1).measure(square, kept=kept)
    assert len(Squares(3).measure(square, kept=kept)) == 6 and square.ran == [0, 1, 2]
    Squares(2, first=1, fails=9).measure(square, kept=kept)  # these were run already
    assert square.ran == [0, 1, 2]
    Squares(1, factor=2.0).measure(square, kept=kept)
    assert square.ran == [0, 1, 2, 0]


@dataclass(frozen=True)
class Case:
    name: str
    width: int


@dataclass(frozen=True)
class Cases(Grid):
    cases: tuple[Case, ...] = axis("case")
    labels: tuple[int, ...] = axis("label")
    seeds: int = 2
    first: int = 5
    root: Path | None = grids.unrecorded(None)


def test_the_key_follows_from_the_fields() -> None:
    grid = Cases((Case("a", 1), Case("b", 2)), (10, 20), root=Path("here"))
    cells = grid.cells()
    assert [(c["case"].name, c["label"]) for c in cells] == [
        ("a", 10), ("a", 20), ("b", 10), ("b", 20),
    ]  # fmt: skip
    assert grid.key(cells[1]) == {
        "case": {"name": "a", "width": 1}, "label": 20, "seeds": 2, "first": 5,
    }  # fmt: skip
    told: list[str] = []
    grid.measure(lambda grid, case, label: [], lambda name, *_: told.append(name))
    assert told[0] == "a, label 10"
    assert label({"at": None, "head": "mlp", "lr": 0.1}) == "mlp, lr 0.1"
    assert replace(grid, root=None).key(cells[0]) == grid.key(cells[0])


@pytest.mark.parametrize(
    "content", ["no json\n", '{"settings": {}}\n', "[1]\n", '{"settings": {}, "rows": "x"}\n']
)
def test_another_file_is_refused_by_name(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "figure.jsonl"
    kept.write_text(content)
    with pytest.raises(ValueError, match=r"line 1 of .*figure\.jsonl is no finished run"):
        Squares(1).measure(Square(), kept=kept)
    assert kept.read_text() == content


def test_a_grid_without_an_axis_has_one_cell() -> None:
    @dataclass(frozen=True)
    class Whole(Grid):
        steps: int = 3

    told: list[tuple[str, int, int]] = []
    grid = Whole()
    assert grid.cells() == [{}] and grid.key({}) == {"steps": 3}
    rows = grid.measure(lambda grid: [{"steps": grid.steps}], lambda *args: told.append(args))
    assert rows == [{"steps": 3}] and told == [("all", 0, 1)]


@dataclass(frozen=True)
class TwoAxes(Grid):
    widths: tuple[int, ...] = axis("width", (1, 2))
    heights: tuple[int, ...] = axis("width", (3,))


@dataclass(frozen=True)
class AxisAndSetting(Grid):
    widths: tuple[int, ...] = axis("width", (1, 2))
    width: int = 3


@pytest.mark.parametrize("grid", [TwoAxes(), AxisAndSetting()])
def test_a_name_for_two_fields_is_refused(grid: Grid) -> None:
    with pytest.raises(ValueError, match="'width' names two fields of the grid"):
        grid.cells()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_keep_the_order_of_items_that_run_on_torchs_threads(threads: int) -> None:
    def work(item: int) -> tuple[int, int]:
        time.sleep(0.02 * (3 - item))
        return item, torch.get_num_threads()

    assert map_on_threads(work, range(3)) == [(0, 1), (1, 1), (2, 1)]
    assert torch.get_num_threads() == threads
    assert map_on_threads(work, []) == []
    meet = threading.Barrier(threads)
    found = map_on_threads(lambda item: meet.wait(5) >= 0, range(2 * threads))
    assert found == [True] * 2 * threads


def test_an_error_ends_what_is_under_way() -> None:
    ended = []

    def work(item: int) -> None:
        if item == 0:
            time.sleep(0.05)
            raise KeyError("first")
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.append(item)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError, match="first"):
            map_on_threads(work, range(4))
        assert 1 in ended and 3 not in ended and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_first_error_ends_an_earlier_item_and_survives_a_finalizer() -> None:
    class Slow:
        def __del__(self) -> None:
            start = time.monotonic()
            while time.monotonic() - start < 0.3:
                pass

    begun = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            time.sleep(0.1)
            raise ValueError("of item 1")
        Slow()
        while True:
            time.sleep(0.01)

    before, start = torch.get_num_threads(), time.monotonic()
    hook, ignored = sys.unraisablehook, list[object]()
    torch.set_num_threads(2)
    sys.unraisablehook = lambda report: ignored.append(report.exc_type)
    try:
        with pytest.raises(ValueError, match="of item 1"), insistent_signals():
            map_on_threads(work, range(9))
    finally:
        torch.set_num_threads(before)
        sys.unraisablehook = hook
    assert time.monotonic() - start < 5 and set(begun) <= {0, 1, 2}
    assert set(ignored) <= {KeyboardInterrupt}
