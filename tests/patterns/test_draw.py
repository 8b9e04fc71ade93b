import pytest
import torch

from graphtheory.patterns.draw import (
    first_of_each,
    ranks,
    scale_columns,
)
from tests.patterns.laws import GRAPHS, source


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
