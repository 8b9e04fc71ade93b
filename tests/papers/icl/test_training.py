from dataclasses import replace

import torch

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.training import Learner, PromptTest, prompts_of, world
from graphtheory.papers.shallow import LINEAR, ROOT

SMALL = Learner(steps=3, batch_size=8, width=10, length=4)


def test_networks_learn_what_sgd_on_the_same_prompts_gives() -> None:
    given = world(6, 0)
    model = icl.train(replace(SMALL, steps=1, step_size=0.5), given, 2, 0)
    start = icl.train(replace(SMALL, steps=0), given, 2, 0)
    generator = torch.Generator().manual_seed(icl.derive(0, 2, 60))
    SMALL.model(2, generator)
    prompts = given.training(SMALL.alpha, SMALL.length).sample(16, generator)
    losses = []
    for t in range(2):
        x, rows, queries = prompts[slice(8 * t, 8 * t + 8)].graph()
        own = start.trial(t)
        losses.append((1 - prompts.answer[8 * t : 8 * t + 8] * own(x, rows, queries)).clamp(min=0))
        losses[-1].mean().backward()
        torch.testing.assert_close(model.W_O[t], (own.W_O - 0.5 * own.W_O.grad)[0])
        torch.testing.assert_close(model.W_Q[t], (own.W_Q - 0.5 * own.W_Q.grad)[0])


def test_scales_of_the_output_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    for scale, size in ((LINEAR, 0.1), (ROOT, 10**-0.5)):
        a = replace(SMALL, scale=scale).model(1, generator).a
        torch.testing.assert_close(a.abs(), torch.full_like(a, size))


def test_outcomes_count_signs_and_zero_as_wrong() -> None:
    given = world(6, 0)
    model = icl.train(SMALL, given, 2, 0)
    source = given.test(PromptTest(0.8, 5))
    found = icl.outcomes(model, source, 600, 9)
    wrong, seen = torch.zeros(2), 0
    for prompts, columns in prompts_of(source, 2, 600, 9):
        seen += columns.size(1)
        for t in range(2):
            value = icl.icl_predict(model.trial(t), columns[t]).value[0]
            wrong[t] += (value.sign() != prompts.answer.view(2, -1)[t]).sum()
    assert seen == 600 and [o.error for o in found] == [float(w) / 600 for w in wrong]
    with torch.no_grad():
        model.W_O.zero_()
    assert [tuple(o) for o in icl.outcomes(model, source, 50, 9)] == [(1.0, 1.0)] * 2


def test_a_trained_learner_answers_unseen_tasks() -> None:
    learner = Learner(steps=120, batch_size=64, width=60, length=12, step_size=3.0)
    given = world(6, 0)
    before = icl.outcomes(
        learner.model(1, torch.Generator()), given.test(PromptTest(0.8, 20)), 300, 1
    )
    after = icl.outcomes(icl.train(learner, given, 1, 0), given.test(PromptTest(0.8, 20)), 300, 1)
    assert before[0].error > 0.1 > 0.05 > after[0].error
