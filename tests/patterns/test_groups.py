import pytest
import torch

from graphtheory.patterns.groups import digest, each_group, group_by_degree, group_sizes


def test_limits_lie_evenly_on_a_log_scale() -> None:
    degree = torch.tensor([1, 9, 10, 99, 100, 1000])
    assert group_by_degree(degree, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert group_by_degree(degree, 1).tolist() == [0] * 6


def test_a_limit_begins_a_group() -> None:
    degree = torch.tensor([0, 2, 3, 5, 6])
    assert group_by_degree(degree, (3, 6)).tolist() == [0, 0, 1, 1, 2]


def test_a_node_without_senders_is_in_the_first_group() -> None:
    assert group_by_degree(torch.tensor([0, 0, 16]), 2).tolist() == [0, 0, 1]


def test_an_empty_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"group 1 of 0\.\.1 has no node.*sizes are \[3, 0\]"):
        group_sizes(group_by_degree(torch.tensor([4, 4, 4]), (9.0,)), (9.0,))


def test_one_number_is_for_all_groups() -> None:
    assert each_group("share", 0.5, 3, least=0.0).tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="share: 2 numbers, expected one for each of 3 groups"):
        each_group("share", (0.5, 0.5), 3, least=0.0)


def test_equal_assignments_have_one_digest() -> None:
    a, b = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
    assert digest(a) == digest(a.clone()) != digest(b)
