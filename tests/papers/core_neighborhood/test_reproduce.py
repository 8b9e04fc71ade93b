"""Figures 3.8 and 3.9 and the tables of appendix B from the command line to their files."""

from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.lab.cli import main
from graphtheory.papers.core_neighborhood.figures_distance import Distances, up_to
from graphtheory.papers.core_neighborhood.figures_labels import Labels
from tests.papers.conftest import Reproduced


def few_epochs(grid: Distances) -> Distances:
    return replace(grid, seeds=1, epochs=2, networks=up_to(3))


def few_labels(grid: Labels) -> Labels:
    recipes = tuple(replace(recipe, epochs=2) for recipe in grid.recipes)
    return replace(grid, seeds=1, shares=grid.shares[-2:], recipes=recipes)


def test_a_study_prints_its_rows_and_draws(reproduced: Reproduced) -> None:
    assert reproduced("fig-3-8", few_epochs, "karate", "distance-z model", "W_Q frozen")


def test_a_study_of_labels_prints_its_rows_and_draws(reproduced: Reproduced) -> None:
    assert reproduced("fig-3-9", few_labels, "karate", "labels", "gt - gcn")


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("table-b-1", ("82.05", "88.02", "90.78")),  # printed, printed, found
        ("table-b-5 --quick", ("95.68", "86.41", "95.49")),
        ("table-b-6", ("26659", "found")),
        ("table-b-8 --dataset Actor", ("1520.00", "667.00", "found")),
        ("fig-b-5 --quick", ("decreasing", "falls in 2 of 2 steps")),
    ],
)
def test_a_table_prints_what_is_found_beside_what_is_printed(
    words: str,
    numbers: tuple[str, ...],
    data_root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["reproduce", *words.split(), "--root", str(data_root), "--out", str(tmp_path)]
    assert main(given) == 0
    printed = capsys.readouterr().out
    assert all(number in printed for number in numbers)
    assert list(tmp_path.glob("*.csv"))
