import torch

from graphtheory.papers.icl.data import unseen_tasks
from graphtheory.papers.icl.training import SPREAD_OUTSIDE, PromptTest, world


def test_worlds_are_those_of_their_seed_and_tests_are_unseen() -> None:
    given = world(6, 3)
    assert torch.equal(given.patterns.relevant, world(6, 3).patterns.relevant)
    assert not torch.equal(given.patterns.relevant, world(6, 4).patterns.relevant)
    inside, outside = given.test(PromptTest(0.6, 7)), given.test(PromptTest(0.6, 7, 1.1))
    assert torch.equal(inside.tasks, unseen_tasks(given.tasks, 6)) and len(inside.tasks) == 24
    assert len(outside.tasks) == 6 and outside.patterns.spread == SPREAD_OUTSIDE
    assert (inside.alpha, inside.length) == (0.6, 7)
    trained = world(6, 3, blocks=4).training(0.7, 5)
    assert len(trained.tasks) == 24 and (trained.alpha, trained.length) == (0.7, 5)


def test_tests_have_prompts_of_their_own() -> None:
    every = [
        PromptTest(a, n, s) for a in (0.6, 0.8) for n in (4, 5) for s in (None, -0.6, 0.0, 1.0)
    ]
    assert len({test.seed(0) for test in every}) == len(every)
