from dataclasses import replace

import torch

from graphtheory.papers.icl import gpt as icl_gpt
from graphtheory.papers.icl.errors import Exam
from graphtheory.papers.icl.gpt import GptLearner, GptStudy
from tests.bench.conftest import nearly

SMALL = GptLearner(depth=1, dim=16, steps=2, batch_size=4, length=3)
TESTS = (Exam(0.8, 3), Exam(0.8, 3, 1.2))


def test_tokens_are_columns_or_inputs_and_labels_in_turn() -> None:
    given = icl_gpt.world(SMALL, 0)
    assert given.tasks.shape == (24, 2)
    prompts = given.source(0.8, 3).sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(SMALL.inputs(prompts), prompts.columns())
    in_turn = replace(SMALL, tokens="in turn").inputs(prompts)
    assert in_turn.shape == (5, 7, 30)
    assert torch.equal(in_turn[:, ::2], prompts.x)
    wanted = prompts.y[:, :-1, None] * prompts.labels[1]
    torch.testing.assert_close(in_turn[:, 1::2], wanted)


def test_a_network_learns() -> None:
    learner = replace(SMALL, steps=60, batch_size=64, length=6, step_size=1e-2)
    given = icl_gpt.world(learner, 0)
    source = given.source(0.8, 6)
    model = icl_gpt.train(learner, given, 0)
    trained = icl_gpt.outcome(model, learner, source, 300, 1)
    model.reset_parameters(torch.Generator().manual_seed(0))
    start = icl_gpt.outcome(model, learner, source, 300, 1)
    assert trained.error < start.error - 0.1 and trained.hinge < start.hinge


def test_outputs_that_are_no_numbers_are_errors() -> None:
    given = icl_gpt.world(SMALL, 0)
    model = SMALL.model(torch.Generator().manual_seed(0))
    model.head.bias.data.fill_(torch.nan)
    assert icl_gpt.outcome(model, SMALL, given.source(0.8, 3), 20, 1).error == 1


def test_the_answer_of_the_query_is_not_seen() -> None:
    given = icl_gpt.world(SMALL, 0)
    prompts = given.source(0.8, 3).sample(5, torch.Generator().manual_seed(0))
    other = replace(prompts, y=torch.cat([prompts.y[:, :-1], -prompts.y[:, -1:]], 1))
    for tokens in ("columns", "in turn"):
        learner = replace(SMALL, tokens=tokens)
        assert torch.equal(learner.inputs(prompts), learner.inputs(other))


def test_rows_are_those_of_the_seed() -> None:
    study = GptStudy((SMALL,), TESTS, prompts=20, seeds=2, first=5)
    rows = study.run()
    assert [(r["seed"], r["s_1"]) for r in rows] == [(5, None), (5, 1.2), (6, None), (6, 1.2)]
    assert replace(study, seeds=1, first=6).run() == nearly(rows[2:])
