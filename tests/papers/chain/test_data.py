import math

import pytest
import torch

from graphtheory.papers.chain.data import (
    ChainData,
    TrajectoryErrors,
    draw_prompts,
    shift_tasks,
    step_positions,
)

DATA = ChainData()


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
