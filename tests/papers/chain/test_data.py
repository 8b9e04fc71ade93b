"""Prompts of chains of thought: their tasks, steps and errors."""

import math

import pytest
import torch

from graphtheory.papers.chain import data
from graphtheory.papers.chain import steps as checks
from graphtheory.papers.chain.steps import k_step_matrix, output_primacy, primacy, right_end_leads
from tests.papers.conftest import refuses

DATA = data.ChainData()


def test_a_task_shifts_along_its_permutation_in_steps_that_are_there(generator) -> None:
    prompts = DATA.training(DATA.patterns(generator), 4, generator)
    for ask in (prompts.at, prompts.relation):
        with pytest.raises(ValueError, match="step: from 0 to 3, expected 1 to 3"):
            ask(torch.arange(4))
    # f_{k+1} = f_1 f_k: all steps are powers of one cycle through all patterns.
    task = data.shift_tasks(4, 20, 3, generator)
    one, two, three = task.unbind(1)
    assert torch.equal(one.gather(1, one), two) and torch.equal(one.gather(1, two), three)
    at = torch.zeros(4, 1, dtype=torch.int64)
    for turn in range(1, 21):
        at = one.gather(1, at)
        assert (at == 0).all() == (turn == 20) and (at == 0).any() == (turn == 20)


def test_positions_are_orthonormal_and_noise_is_of_the_type_of_the_patterns(generator) -> None:
    mu = DATA.patterns(generator)
    c = data.step_positions(mu, 3, generator)
    torch.testing.assert_close(c @ c.t(), torch.eye(3))
    assert (c[:, :30] @ mu.t()).abs().max() < 1e-5 and not c[:, 30:].any()
    with pytest.raises(ValueError, match="steps: got 11, expected at most d - M = 10"):
        data.step_positions(mu, 11, generator)
    mu = DATA.test_patterns(DATA.patterns(generator), generator)
    errors = data.TrajectoryErrors.even(0.5, 0.8, 3, 10)
    prompts = DATA.testing(mu, 400, 50, 0.8, errors, generator)
    own = prompts.context_pattern[:, :, 0] == prompts.query_pattern[:, :1]
    right = (prompts.context_pattern == prompts.query_pattern[:, None])[own]
    assert own.float().mean() == pytest.approx(0.8)
    assert right.all(1).float().mean() == pytest.approx(0.5, abs=0.02)
    delta = prompts.context - mu[prompts.context_pattern]
    torch.testing.assert_close(delta.norm(dim=3), torch.full((400, 50, 4), 0.2))
    assert (delta @ mu.t()).abs().max() < 1e-5
    mu = DATA.patterns(generator).double()
    task = data.shift_tasks(4, 20, 3, generator)
    prompts = data.draw_prompts(mu, task, 5, 0.4, generator, noise=0.1)
    assert prompts.context.dtype == torch.float64
    assert data.step_positions(mu, 3, generator).dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "value"),
    [("share", 2.0), ("share", math.nan), ("steps", 0), ("contexts", -3), ("noise", -1.0),
     ("noise", math.inf)],
)  # fmt: skip
def test_data_that_cannot_be_are_named(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value}, expected"):
        data.ChainData(**{name: value})


def test_prompts_of_every_step(generator: torch.Generator) -> None:
    mu = DATA.patterns(generator)
    task = data.shift_tasks(300, 20, 3, generator)
    prompts = data.draw_prompts(mu, task, 20, 0.4, generator)
    step = torch.arange(300) % 3 + 1
    columns, sizes, label = prompts.at(step)
    assert torch.equal(sizes, 60 + step)
    same = prompts.context_pattern[:, :, 0] == prompts.query_pattern[:, :1]
    assert (same.sum(1) == 8).all() and same.float().mean(0).amax() < 0.6  # 8 of 20, any order
    first, second = columns[:, :60].view(300, 20, 3, 2, 30).unbind(3)
    assert torch.equal(first[:, :, 1:], second[:, :, :-1])
    for k in range(3):
        to = task[:, k].gather(1, prompts.context_pattern[:, :, k])
        assert torch.equal(second[:, :, k], mu[to])
    for row in range(6):
        own = columns[row, 60 : sizes[row]]
        k = int(step[row])
        assert torch.equal(own[:, :30], prompts.query[row, :k])
        assert torch.equal(own[:-1, 30:], prompts.query[row, 1:k]) and not own[-1, 30:].any()
        end = checks.trajectories(task[row])[k, prompts.query_pattern[row, 0]]
        assert torch.equal(label[row], mu[end])


def test_columns_hold_both_ends_and_the_relation_marks_those_that_tell(generator) -> None:
    prompts = DATA.training(DATA.patterns(generator), 2, generator)
    found = prompts.icl_columns().view(2, 20, 3, 60)
    ends = torch.cat([prompts.context[:, :, 0], prompts.context[:, :, 3]], 2)
    assert torch.equal(found[:, :, 0], ends) and not found[:, :, 1:].any()
    assert found.flatten(1, 2).shape == prompts.columns().shape
    prompts, step = DATA.training(DATA.patterns(generator), 3, generator), torch.tensor([1, 2, 3])
    same_step, same_pattern = prompts.relation(step)
    columns, sizes, _ = prompts.at(step)
    assert torch.equal(same_step[1].view(20, 3), torch.tensor([[False, True, False]] * 20))
    for row, size in enumerate(sizes.tolist()):
        dots = columns[row, :60, :30] @ columns[row, size - 1, :30]
        assert torch.equal(dots > 0.5, same_pattern[row])


def test_prompts_that_cannot_be_are_named(generator: torch.Generator) -> None:
    mu, task = DATA.patterns(generator), data.shift_tasks(4, 20, 3, generator)

    def draw(patterns: torch.Tensor = mu, contexts: int = 5, **options: object) -> None:
        data.draw_prompts(patterns, task, contexts, 0.4, generator, **options)  # type: ignore[arg-type]

    draw(2 * mu)  # without noise any patterns will do
    refuses(
        (lambda: draw(2 * mu, noise=0.1), "patterns: products"),
        (lambda: draw(contexts=0), "contexts: got 0"),
        (lambda: draw(mu[:7]), "task: shape"),
        (lambda: draw(noise=math.nan), "noise: got nan"),
        (lambda: draw(transitions=torch.zeros(4, 3, 20, 20)), "transitions: smallest entry"),
        (lambda: data.step_positions(2 * mu, 3, generator), "patterns: products"),
    )


def test_patterns_steps_and_transitions_that_cannot_be_are_named() -> None:
    task, check = torch.tensor([[[1, 0]]]), checks.check_transitions
    refuses(
        (lambda: checks.check_orthonormal(torch.eye(3)[0]), r"patterns: shape \(3,\)"),
        (lambda: checks.check_orthonormal(torch.full((2, 3), math.nan)), "patterns: products"),
        (
            lambda: checks.check_step(torch.tensor([1]), 2, 3),
            r"step: shape \(1,\), expected \(2,\)",
        ),
        (lambda: check(torch.eye(2), task), r"transitions: shape \(2, 2\)"),
        (
            lambda: check(torch.zeros(1, 1, 2, 2), task),
            "transitions: .* sums of rows up to 1 from 1",
        ),
    )


A = torch.tensor([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
TASK_transitions = torch.tensor([[0, 1], [1, 0]])  # the identity, then a swap


def test_the_worked_example_equal_chances_and_a_batch() -> None:
    b = k_step_matrix(A)
    torch.testing.assert_close(b, torch.tensor([[0.56, 0.44], [0.64, 0.36]]))
    assert checks.trajectory_probability(A, TASK_transitions).item() == pytest.approx(0.36)
    assert checks.output_probability(b).item() == pytest.approx(0.56)
    assert right_end_leads(b, TASK_transitions).tolist() == [False, True]
    assert primacy(A, TASK_transitions).item() == pytest.approx(1 - 0.4 / 0.6)
    assert output_primacy(b).item() == pytest.approx(1 - 0.44 / 0.56)
    assert right_end_leads(torch.full((2, 2), 0.5), TASK_transitions).tolist() == [False, False]
    assert output_primacy(torch.full((2, 2), 0.5)).item() == 0
    tasks = torch.stack([TASK_transitions, TASK_transitions.flip(0)])
    both = torch.stack([A, A.flip(0)])
    for of_steps in (checks.trajectory_probability, primacy):
        alone = torch.stack([of_steps(a, t) for a, t in zip(both, tasks, strict=True)])
        torch.testing.assert_close(of_steps(both, tasks), alone)
    torch.testing.assert_close(k_step_matrix(both)[1], A[1] @ A[0])


def check(errors: data.TrajectoryErrors, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """tau, rho, tau_o, rho_o and the condition of five tasks, after the matrices were checked."""
    task = data.shift_tasks(5, 10, 3, generator)
    a = errors(task)
    torch.testing.assert_close(a.sum(-1), torch.ones(5, 3, 10))
    assert a.min() >= 0 and torch.equal(a.argmax(-1), task)
    b = k_step_matrix(a)
    leads = right_end_leads(b, task)
    assert (leads == leads[:, :1]).all()
    return (
        checks.trajectory_probability(a, task), primacy(a, task), checks.output_probability(b),
        output_primacy(b), leads[:, 0],
    )  # fmt: skip


def test_matrices_have_the_numbers_that_were_asked_for(generator: torch.Generator) -> None:
    five = torch.ones(5)
    for make in (data.TrajectoryErrors.even, data.TrajectoryErrors.first):
        tau, rho, *_, leads = check(make(0.5, 0.8, 3, 10), generator)
        torch.testing.assert_close(tau, 0.5 * five)
        torch.testing.assert_close(rho, 0.8 * five)
        assert leads.all()
    for options in ({}, {"wrong": 2}, {"holds": False}):
        errors = data.TrajectoryErrors.of_output(0.4, 0.1, 3, 10, **options)
        *_, tau_o, rho_o, leads = check(errors, generator)
        torch.testing.assert_close(tau_o, 0.4 * five)
        torch.testing.assert_close(rho_o, 0.1 * five)
        assert leads.all() == options.get("holds", True) and leads.any() == leads.all()
    errors = data.TrajectoryErrors.of_output(0.9, 8 / 9, 2, 2)  # of two patterns
    assert sum((errors.right[0], errors.rival[0])) == pytest.approx(1)


def test_rivals_lie_on_the_trajectory_of_another_start() -> None:
    task = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 0]])
    a = data.TrajectoryErrors((0.7, 0.7), (0.2, 0.2), "next")(task)
    place = checks.trajectories(task)
    for k in range(2):
        for i in range(4):
            row = a[k, place[k, i]]
            assert row[place[k + 1, i]] == pytest.approx(0.7)
            assert row[place[k + 1, (i + 1) % 4]] == pytest.approx(0.2)
            assert sorted(row.tolist())[:2] == pytest.approx([0.05, 0.05])


def test_errors_that_cannot_be_are_named() -> None:
    made = data.TrajectoryErrors
    for tau in (0.0, -1.0, 1.5):
        told = f"got {tau}, expected above 0, at most 1"
        refuses(
            (lambda: made.even(tau, 0.8, 3, 10), f"tau: {told}"),  # noqa: B023 (called at once)
            (lambda: made.first(tau, 0.8, 3, 10), f"tau: {told}"),  # noqa: B023
            (lambda: made.of_output(tau, 0.1, 3, 10), f"tau_o: {told}"),  # noqa: B023
        )
    rho = 0.1 * 0.4 / 0.47
    refuses(
        (lambda: made.even(0.5, 0.2, 3, 10), r"rho: got 0\.2, expected 0\.740 to 0\.971"),
        (
            lambda: made.of_output(0.47, rho, 3, 10, holds=False),
            r"tau_o: got 0\.47 .* at most 0\.457",
        ),
        (lambda: made.even(0.5, 0.8, 0, 10), "steps: got 0, expected at least 1"),
        (lambda: made.first(0.5, 0.8, 3, 1), "patterns: got 1, expected at least 2"),
        (lambda: made((0.7,), (0.2,))(torch.tensor([[0, 0]])), "maps two patterns to one"),
        (lambda: made((0.7,), (0.2,))(torch.tensor([[1, 2, 0]])), "expected an even number"),
    )
