import math

import pytest
import torch

from graphtheory.papers.chain.data import ChainData, draw_prompts, shift_tasks, step_positions
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
