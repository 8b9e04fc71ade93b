import math
from collections.abc import Callable

import pytest
import torch

from graphtheory.papers.chain import errors as checks

TASK = torch.tensor([[[1, 0]]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: checks.check_count(steps=1, contexts=-3), "contexts: got -3, expected at least 1"),
        (lambda: checks.check_numbers(math.nan, 0.0), "share: got nan, expected 0 to 1"),
        (lambda: checks.check_numbers(0.5, -1.0), "noise: got -1.0, expected 0 or more"),
        (lambda: checks.check_numbers(0.5, math.inf), "noise: got inf"),
        (lambda: checks.check_probability("tau", 0.0), "tau: got 0.0, expected above 0"),
        (lambda: checks.check_orthonormal(torch.eye(3)[0]), r"patterns: shape \(3,\)"),
        (lambda: checks.check_orthonormal(2 * torch.eye(3)), "patterns: products up to 3 from"),
        (lambda: checks.check_orthonormal(torch.full((2, 3), math.nan)), "patterns: products"),
        (lambda: checks.check_step(torch.tensor([1, 0]), 2, 3), "step: from 0 to 1, expected 1 to"),
        (
            lambda: checks.check_step(torch.tensor([1]), 2, 3),
            r"step: shape \(1,\), expected \(2,\)",
        ),
        (lambda: checks.check_task(TASK, 3), r"task: shape \(1, 1, 2\) with 3 patterns"),
        (lambda: checks.check_transitions(torch.eye(2), TASK), r"transitions: shape \(2, 2\)"),
        (
            lambda: checks.check_transitions(torch.zeros(1, 1, 2, 2), TASK),
            "transitions: .* sums of rows up to 1 from 1",
        ),
        (
            lambda: checks.check_transitions(3 * torch.eye(2)[None, None] - 1, TASK),
            "transitions: smallest entry -1",
        ),
    ],
)
def test_what_cannot_be_is_named(make: Callable[[], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_can_be_passes() -> None:
    checks.check_count(steps=1)
    checks.check_orthonormal(torch.eye(3, dtype=torch.float64)[:2])
    checks.check_step(torch.tensor([1, 3]), 2, 3)
    checks.check_transitions(torch.full((1, 1, 2, 2), 0.5), TASK)
