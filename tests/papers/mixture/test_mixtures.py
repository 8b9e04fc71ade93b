import math
from dataclasses import replace

import pytest
import torch

from graphtheory.papers.mixture import figures, figures_samples
from graphtheory.papers.mixture import figures_samples as figures_starts
from graphtheory.papers.mixture.mixtures import Letter, varied
from graphtheory.papers.mixture.training import Setting, draw

BY_ID = {
    figure.id: figure
    for figure in (*figures.FIGURES, *figures_samples.FIGURES, *figures_starts.FIGURES)
}


@pytest.mark.parametrize(
    ("letter", "value", "wanted"),
    [
        ("d", 7, {"dim": 7}),
        ("K", 2, {"neurons": 2}),
        ("n", 2000, {}),
        ("mean 1", 0.5, {"means": (0.5, -1.0)}),
        ("mean 2", 0.5, {"means": (1.0, 0.5)}),
        ("means", 0.5, {"means": (0.5, -0.5)}),
        ("sigma 1", 4.0, {"deviations": (2.0, 1.0)}),
        ("sigma 2", 4.0, {"deviations": (1.0, 2.0)}),
        ("sigma", 4.0, {"deviations": (2.0, 2.0)}),
        ("lambda 2", 0.2, {"weights": (0.8, 0.2)}),
    ],
)
def test_one_letter_changes(letter: Letter, value: float, wanted: dict[str, object]) -> None:
    assert vars(varied(Setting(), letter, value)) == vars(Setting()) | wanted


def test_the_norm_of_a_turned_spread_is_what_was_asked() -> None:
    made = varied(Setting(turned=True), "sigma", 3.0)
    spread = draw(made, 3, 0, torch.float64).mixture.covariances
    assert float(torch.linalg.matrix_norm(spread[0], 2)) == pytest.approx(3)


@pytest.mark.parametrize("name", BY_ID)
def test_every_figure_has_a_quick_form_and_learners_of_different_names(name: str) -> None:
    grid, quick = BY_ID[name].grid, BY_ID[name].quick(BY_ID[name].grid)
    assert len(quick.cells()) < len(grid.cells()) and quick.seeds < grid.seeds
    assert len({learner.name for learner in grid.learners}) == len(grid.learners)


def test_means_are_shown_as_norms_and_counts_as_what_the_bound_has() -> None:
    assert BY_ID["fig-4-6b"].grid.shown(-2.0) == pytest.approx(2 * 5**0.5)
    assert BY_ID["fig-4-5b"].grid.shown(2000) == pytest.approx(math.log(2000) / 2000)
    assert BY_ID["fig-4-7a"].grid.shown(0.3) == 0.3


def test_places_are_sorted_and_ends_are_in_the_order_of_the_values() -> None:
    grid = BY_ID["fig-4-6b"].grid
    assert grid.places == sorted(grid.places) and grid.ends == (0.0, -2.0, -4.0)
    assert replace(grid, values=(1.0, 2.0)).ends == (1.0, 2.0)
