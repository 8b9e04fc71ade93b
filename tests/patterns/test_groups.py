import math
from typing import Any

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


def test_a_node_without_sources_is_in_the_first_group() -> None:
    assert group_by_degree(torch.tensor([0, 0, 16]), 2).tolist() == [0, 0, 1]


def test_an_empty_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"group 1 of 0\.\.1 has no node.*sizes are \[3, 0\]"):
        group_sizes(group_by_degree(torch.tensor([4, 4, 4]), (9.0,)), (9.0,))


def test_one_number_is_for_all_groups() -> None:
    assert each_group("share", 0.5, 3, least=0.0).tolist() == [0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="share: 2 values, expected one for each of 3 groups"):
        each_group("share", (0.5, 0.5), 3, least=0.0)


@pytest.mark.parametrize("counts", [(2, 2.5), 1.5])
def test_a_fraction_of_a_node_is_refused(counts: float | tuple[float, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"count: got \d\.5 for group \d, expected a whole number, 1"
    ):
        each_group("count", counts, 2, least=1.0, whole=True)
    assert each_group("count", 2.0, 1, least=1.0, whole=True).tolist() == [2.0]


@pytest.mark.parametrize(
    ("degree", "groups", "error", "message"),
    [
        (torch.ones(3), 2, TypeError, r"degree: got torch.float32 of shape \(3,\), expected int64"),
        (torch.ones(3, 2).long(), 2, TypeError, r"degree: got torch.int64 of shape \(3, 2\)"),
        ([1, 2], 2, TypeError, r"degree: got list of shape \(\), expected int64 \[N\]"),
        (torch.tensor([1, 2]), 0, ValueError, "groups: got 0, expected a whole number of groups"),
        (torch.tensor([1, 2]), 2.5, ValueError, "groups: got 2.5, expected .* or a tuple of the"),
        (torch.tensor([1, 2]), [1, 2], ValueError, r"groups: got \[1, 2\], expected .* or a tuple"),
        (torch.tensor([1, 2]), (3, 2), ValueError, r"groups: got \(3, 2\), expected increasing"),
        (
            torch.tensor([1, 2]),
            (math.nan,),
            ValueError,
            r"groups: got \(nan,\), expected increasing",
        ),
        (torch.tensor([1, 2]), (), ValueError, r"groups: got \(\), expected increasing degrees"),
    ],
)
def test_bad_degrees_and_limits_are_refused(
    degree: Any, groups: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        group_by_degree(degree, groups)


def test_equal_assignments_have_one_digest() -> None:
    a, b = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])
    assert digest(a) == digest(a.clone()) != digest(b)
