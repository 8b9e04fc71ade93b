import math
from collections.abc import Callable

import pytest
import torch

from graphtheory.papers.chain import errors as checks
from graphtheory.papers.chain.data import shift_tasks
from graphtheory.papers.chain.errors import (
    TrajectoryErrors,
    k_step_matrix,
    output_primacy,
    output_probability,
    primacy,
    right_end_leads,
    trajectories,
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


def check(errors: TrajectoryErrors, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """tau, rho, tau_o, rho_o and the condition of five tasks, after the matrices were checked."""
    task = shift_tasks(5, 10, 3, generator)
    a = errors(task)
    torch.testing.assert_close(a.sum(-1), torch.ones(5, 3, 10))
    assert a.min() >= 0 and torch.equal(a.argmax(-1), task)
    b = k_step_matrix(a)
    leads = right_end_leads(b, task)
    assert (leads == leads[:, :1]).all()
    return (
        trajectory_probability(a, task), primacy(a, task), output_probability(b),
        output_primacy(b), leads[:, 0],
    )  # fmt: skip


def test_matrices_have_the_numbers_that_were_asked_for(generator: torch.Generator) -> None:
    five = torch.ones(5)
    for make in (TrajectoryErrors.even, TrajectoryErrors.first):
        tau, rho, *_, leads = check(make(0.5, 0.8, 3, 10), generator)
        torch.testing.assert_close(tau, 0.5 * five)
        torch.testing.assert_close(rho, 0.8 * five)
        assert leads.all()
    for options in ({}, {"wrong": 2}, {"holds": False}):
        errors = TrajectoryErrors.of_output(0.4, 0.1, 3, 10, **options)
        *_, tau_o, rho_o, leads = check(errors, generator)
        torch.testing.assert_close(tau_o, 0.4 * five)
        torch.testing.assert_close(rho_o, 0.1 * five)
        assert leads.all() == options.get("holds", True) and leads.any() == leads.all()


def test_rivals_lie_on_the_trajectory_of_another_start() -> None:
    task = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])
    a = TrajectoryErrors((0.7, 0.7), (0.2, 0.2), "next")(task)
    place = trajectories(task)
    for k in range(2):
        for i in range(4):
            row = a[k, place[k, i]]
            assert row[place[k + 1, i]] == pytest.approx(0.7)
            assert row[place[k + 1, (i + 1) % 4]] == pytest.approx(0.2)
            assert sorted(row.tolist())[:2] == pytest.approx([0.05, 0.05])


def test_what_cannot_be_is_named_of_errors() -> None:
    with pytest.raises(ValueError, match=r"rho: got 0\.2, expected 0\.740 to 0\.971"):
        TrajectoryErrors.even(0.5, 0.2, 3, 10)
    with pytest.raises(ValueError, match=r"tau_o: got 0\.47 .* at most 0\.457"):
        TrajectoryErrors.of_output(0.47, 0.1 * 0.4 / 0.47, 3, 10, holds=False)
    for tau in (0.0, -1.0, 1.5):
        for make in (TrajectoryErrors.even, TrajectoryErrors.first):
            with pytest.raises(ValueError, match=rf"tau: got {tau}, expected above 0, at most 1"):
                make(tau, 0.8, 3, 10)
        with pytest.raises(ValueError, match=rf"tau_o: got {tau}, expected above 0, at most 1"):
            TrajectoryErrors.of_output(tau, 0.1, 3, 10)
    with pytest.raises(ValueError, match="steps: got 0, expected at least 1"):
        TrajectoryErrors.even(0.5, 0.8, 0, 10)
    with pytest.raises(ValueError, match="patterns: got 1, expected at least 2"):
        TrajectoryErrors.first(0.5, 0.8, 3, 1)
    with pytest.raises(ValueError, match="maps two patterns to one"):
        TrajectoryErrors((0.7,), (0.2,))(torch.tensor([[0, 0]]))
    with pytest.raises(ValueError, match="expected an even number"):
        TrajectoryErrors((0.7,), (0.2,))(torch.tensor([[1, 2, 0]]))
