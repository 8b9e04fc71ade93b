import pytest
import torch

from graphtheory.patterns.draw import (
    check_size,
    first_of_each,
    importance_factor,
    inclusion,
    ranks,
    sample_size,
    scale_columns,
)
from tests.patterns.laws import GRAPHS, source

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
def test_without_replacement_so_many_different_nodes_come(count: int) -> None:
    drawn = source()
    for _ in range(50):
        factor = importance_factor(MASS, count, replace=False, generator=drawn)
        assert int((factor > 0).sum()) == min(count, 4)


def test_probabilities_are_capped_at_one_and_sum_to_the_count() -> None:
    chance = inclusion(MASS[MASS > 0], 3)
    # 9 comes for certain, then 4 of what is left would be above 1 as well: 2 * 4 / 7 > 1.
    torch.testing.assert_close(chance, torch.tensor([1, 1 / 3, 2 / 3, 1], dtype=torch.float64))
    assert inclusion(MASS[MASS > 0], 4).tolist() == [1.0] * 4


def test_nothing_to_draw_from() -> None:
    none = torch.zeros(3, dtype=torch.float64)
    assert importance_factor(none, 2, replace=True, generator=source()).tolist() == [0.0] * 3


def test_ranks_are_a_permutation_of_each_group() -> None:
    group = torch.tensor([1, 0, 1, 1, 0])
    rank = ranks(group, source(), torch.device("cpu"))
    assert sorted(rank[group == 0].tolist()) == [0, 1]
    assert sorted(rank[group == 1].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("groups", [3, 20])
def test_the_first_of_each_group_are_those_of_the_lowest_ranks(groups: int) -> None:
    group = torch.arange(200) % groups
    size = torch.arange(groups) % 7
    found = first_of_each(group, size, source(), torch.device("cpu"))
    assert torch.equal(found, ranks(group, source(), torch.device("cpu")) < size[group])
    assert torch.bincount(group[found], minlength=groups).tolist() == size.tolist()


def test_columns_of_factor_zero_are_dropped() -> None:
    star = GRAPHS["star"]
    out = scale_columns(star, torch.tensor([0.0, 2, 2, 2, 2, 2, 3]))
    assert out.num_edges == 6 and out.weight.tolist() == [2.0] * 5 + [3.0]


@pytest.mark.parametrize(
    ("count", "share", "message"),
    [
        (3, 0.5, "count: got 3 beside share=0.5"),
        (0, None, "count: got 0, expected a whole number of nodes, at least 1"),
        (2.5, None, "count: got 2.5"),
        (None, 0.0, "share: got 0.0, expected a share of the nodes"),
        (None, 1.1, "share: got 1.1"),
    ],
)
def test_sizes_out_of_range(count: int | None, share: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_size(count, share)


def test_size_of_a_sample() -> None:
    assert sample_size(None, None, 7) == 4 and sample_size(None, 0.01, 7) == 1
    assert sample_size(30, None, 7) == 30
