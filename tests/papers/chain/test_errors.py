import pytest
import torch

from graphtheory.papers.chain.data import TrajectoryErrors, shift_tasks
from graphtheory.papers.chain.steps import (
    k_step_matrix,
    output_primacy,
    output_probability,
    primacy,
    right_end_leads,
    trajectories,
    trajectory_probability,
)


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
