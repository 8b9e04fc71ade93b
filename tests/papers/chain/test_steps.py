import math
from collections.abc import Callable

import pytest
import torch

from graphtheory.papers.chain import steps as checks
from graphtheory.papers.chain.steps import (
    k_step_matrix,
    output_primacy,
    output_probability,
    primacy,
    right_end_leads,
    trajectory_probability,
)

TASK = torch.tensor([[[1, 0]]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: checks.check_orthonormal(torch.eye(3)[0]), r"patterns: shape \(3,\)"),
        (lambda: checks.check_orthonormal(torch.full((2, 3), math.nan)), "patterns: products"),
        (
            lambda: checks.check_step(torch.tensor([1]), 2, 3),
            r"step: shape \(1,\), expected \(2,\)",
        ),
        (lambda: checks.check_transitions(torch.eye(2), TASK), r"transitions: shape \(2, 2\)"),
        (
            lambda: checks.check_transitions(torch.zeros(1, 1, 2, 2), TASK),
            "transitions: .* sums of rows up to 1 from 1",
        ),
    ],
)
def test_what_cannot_be_is_named(make: Callable[[], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


A = torch.tensor([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
TASK_transitions = torch.tensor([[0, 1], [1, 0]])  # the identity, then a swap


def test_the_worked_example_equal_chances_and_a_batch() -> None:
    b = k_step_matrix(A)
    torch.testing.assert_close(b, torch.tensor([[0.56, 0.44], [0.64, 0.36]]))
    assert trajectory_probability(A, TASK_transitions).item() == pytest.approx(0.36)
    assert output_probability(b).item() == pytest.approx(0.56)
    assert right_end_leads(b, TASK_transitions).tolist() == [False, True]
    assert primacy(A, TASK_transitions).item() == pytest.approx(1 - 0.4 / 0.6)
    assert output_primacy(b).item() == pytest.approx(1 - 0.44 / 0.56)
    assert right_end_leads(torch.full((2, 2), 0.5), TASK_transitions).tolist() == [False, False]
    assert output_primacy(torch.full((2, 2), 0.5)).item() == 0
    tasks = torch.stack([TASK_transitions, TASK_transitions.flip(0)])
    both = torch.stack([A, A.flip(0)])
    for of_steps in (trajectory_probability, primacy):
        alone = torch.stack([of_steps(a, t) for a, t in zip(both, tasks, strict=True)])
        torch.testing.assert_close(of_steps(both, tasks), alone)
    torch.testing.assert_close(k_step_matrix(both)[1], A[1] @ A[0])
