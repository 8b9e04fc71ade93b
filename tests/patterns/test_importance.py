import pytest
import torch

from graphtheory.patterns.importance import importance_factor, inclusion
from tests.patterns.laws import source

MASS = torch.tensor([4.0, 1.0, 0.0, 2.0, 9.0], dtype=torch.float64)


@pytest.mark.parametrize(("replace", "count"), [(True, 3), (True, 40), (False, 2), (False, 3)])
def test_factors_have_mean_one_where_there_is_mass(replace: bool, count: int) -> None:
    drawn = source()
    found = torch.stack(
        [importance_factor(MASS, count, replace=replace, generator=drawn) for _ in range(3000)]
    )
    error = found.std(0) / 3000**0.5
    assert ((found.mean(0) - (MASS > 0).double()).abs() <= 4 * error + 1e-12).all()
    assert not found[:, 2].any()


def test_with_replacement_counts_sum_to_the_draws() -> None:
    factor = importance_factor(MASS, 7, replace=True, generator=source())
    times = factor * 7 * MASS / MASS.sum()
    torch.testing.assert_close(times, times.round())
    assert float(times.sum()) == pytest.approx(7)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_without_replacement_the_count_of_different_nodes_is_drawn(count: int) -> None:
    drawn = source()
    for _ in range(50):
        factor = importance_factor(MASS, count, replace=False, generator=drawn)
        assert int((factor > 0).sum()) == min(count, 4)


def test_probabilities_are_capped_at_one_and_sum_to_the_count() -> None:
    chance = inclusion(MASS[MASS > 0], 3)
    # 9 is always drawn; then 4 would be above 1 as well, since 2 * 4 / 7 > 1.
    torch.testing.assert_close(chance, torch.tensor([1, 1 / 3, 2 / 3, 1], dtype=torch.float64))
    assert inclusion(MASS[MASS > 0], 4).tolist() == [1.0] * 4


def test_nothing_to_draw_from() -> None:
    none = torch.zeros(3, dtype=torch.float64)
    assert importance_factor(none, 2, replace=True, generator=source()).tolist() == [0.0] * 3
