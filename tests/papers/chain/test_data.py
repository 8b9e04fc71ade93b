import math

import pytest
import torch

from graphtheory.papers.chain.data import ChainData, draw_prompts, shift_tasks, step_positions
from graphtheory.papers.chain.errors import TrajectoryErrors
from graphtheory.papers.chain.steps import trajectories

DATA = ChainData()


def test_prompts_of_every_step(generator: torch.Generator) -> None:
    mu = DATA.patterns(generator)
    task = shift_tasks(300, 20, 3, generator)
    prompts = draw_prompts(mu, task, 20, 0.4, generator)
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
        assert torch.equal(
            label[row], mu[trajectories(task[row])[k, prompts.query_pattern[row, 0]]]
        )


def test_columns_hold_both_ends_and_the_relation_marks_those_that_tell(
    generator: torch.Generator,
) -> None:
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


def test_a_task_shifts_along_its_permutation_in_steps_that_are_there(
    generator: torch.Generator,
) -> None:
    prompts = DATA.training(DATA.patterns(generator), 4, generator)
    for ask in (prompts.at, prompts.relation):
        with pytest.raises(ValueError, match="step: from 0 to 3, expected 1 to 3"):
            ask(torch.arange(4))
    # f_{k+1} = f_1 f_k: all steps are powers of one cycle through all patterns.
    task = shift_tasks(4, 20, 3, generator)
    one, two, three = task.unbind(1)
    assert torch.equal(one.gather(1, one), two) and torch.equal(one.gather(1, two), three)
    at = torch.zeros(4, 1, dtype=torch.int64)
    for turn in range(1, 21):
        at = one.gather(1, at)
        assert (at == 0).all() == (turn == 20) and (at == 0).any() == (turn == 20)


def test_positions_are_orthonormal_and_noise_is_of_the_type_of_the_patterns(
    generator: torch.Generator,
) -> None:
    mu = DATA.patterns(generator)
    c = step_positions(mu, 3, generator)
    torch.testing.assert_close(c @ c.t(), torch.eye(3))
    assert (c[:, :30] @ mu.t()).abs().max() < 1e-5 and not c[:, 30:].any()
    with pytest.raises(ValueError, match="steps: got 11, expected at most d - M = 10"):
        step_positions(mu, 11, generator)
    mu = DATA.test_patterns(DATA.patterns(generator), generator)
    errors = TrajectoryErrors.even(0.5, 0.8, 3, 10)
    prompts = DATA.testing(mu, 400, 50, 0.8, errors, generator)
    own = prompts.context_pattern[:, :, 0] == prompts.query_pattern[:, :1]
    right = (prompts.context_pattern == prompts.query_pattern[:, None])[own]
    assert own.float().mean() == pytest.approx(0.8)
    assert right.all(1).float().mean() == pytest.approx(0.5, abs=0.02)
    delta = prompts.context - mu[prompts.context_pattern]
    torch.testing.assert_close(delta.norm(dim=3), torch.full((400, 50, 4), 0.2))
    assert (delta @ mu.t()).abs().max() < 1e-5
    mu = DATA.patterns(generator).double()
    task = shift_tasks(4, 20, 3, generator)
    prompts = draw_prompts(mu, task, 5, 0.4, generator, noise=0.1)
    assert prompts.context.dtype == torch.float64
    assert step_positions(mu, 3, generator).dtype == torch.float64


@pytest.mark.parametrize(
    "change",
    [
        {"share": 2.0},
        {"share": math.nan},
        {"steps": 0},
        {"contexts": -3},
        {"noise": -1.0},
        {"noise": math.inf},
    ],
)
def test_data_that_cannot_be_are_named(change: dict) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=f"{name}: got {change[name]}, expected"):
        ChainData(**change)


def test_prompts_that_cannot_be_are_named(generator: torch.Generator) -> None:
    mu, task = DATA.patterns(generator), shift_tasks(4, 20, 3, generator)

    def draw(patterns: torch.Tensor = mu, contexts: int = 5, **options: object) -> None:
        draw_prompts(patterns, task, contexts, 0.4, generator, **options)  # type: ignore[arg-type]

    draw(2 * mu)  # without noise any patterns will do
    for name, options in {
        "patterns: products": {"patterns": 2 * mu, "noise": 0.1},
        "contexts: got 0": {"contexts": 0},
        "task: shape": {"patterns": mu[:7]},
        "noise: got nan": {"noise": math.nan},
        "transitions: smallest entry": {"transitions": torch.zeros(4, 3, 20, 20)},
    }.items():
        with pytest.raises(ValueError, match=name):
            draw(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="patterns: products"):
        step_positions(2 * mu, 3, generator)
