import pytest
import torch

from graphtheory.papers.chain.errors import (
    k_step_matrix,
    output_primacy,
    output_probability,
    primacy,
    right_end_leads,
    trajectory_probability,
)

A = torch.tensor([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
TASK = torch.tensor([[0, 1], [1, 0]])  # the identity, then a swap


def test_the_worked_example() -> None:
    b = k_step_matrix(A)
    torch.testing.assert_close(b, torch.tensor([[0.56, 0.44], [0.64, 0.36]]))
    assert trajectory_probability(A, TASK).item() == pytest.approx(0.36)
    assert output_probability(b).item() == pytest.approx(0.56)
    assert right_end_leads(b, TASK).tolist() == [False, True]
    assert primacy(A, TASK).item() == pytest.approx(1 - 0.4 / 0.6)
    assert output_primacy(b).item() == pytest.approx(1 - 0.44 / 0.56)


def test_equal_chances_are_no_lead() -> None:
    assert right_end_leads(torch.full((2, 2), 0.5), TASK).tolist() == [False, False]
    assert output_primacy(torch.full((2, 2), 0.5)).item() == 0


def test_a_batch_is_each_by_itself() -> None:
    tasks = torch.stack([TASK, TASK.flip(0)])
    both = torch.stack([A, A.flip(0)])
    for of_steps in (trajectory_probability, primacy):
        alone = torch.stack([of_steps(a, t) for a, t in zip(both, tasks, strict=True)])
        torch.testing.assert_close(of_steps(both, tasks), alone)
    torch.testing.assert_close(k_step_matrix(both)[1], A[1] @ A[0])
