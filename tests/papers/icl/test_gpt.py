from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch

from graphtheory.lab.progress import report_epochs
from graphtheory.lab.train import checkpoint
from graphtheory.lab.train.checkpoint import checkpoint_dir
from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.figures import GptErrors, gpt_errors
from graphtheory.papers.icl.figures_alpha import FIGURES
from graphtheory.papers.icl.training import GptLearner, PromptTest, World, world
from tests.lab.bench.conftest import nearly

SMALL = GptLearner(depth=1, dim=16, steps=2, batch_size=4, length=3)
TESTS = (PromptTest(0.8, 3), PromptTest(0.8, 3, 1.2))


def own_world(learner: GptLearner) -> World:
    return world(learner.relevant, 0, learner.blocks)


def test_tokens_are_columns_or_inputs_and_labels_in_turn() -> None:
    given = own_world(SMALL)
    assert given.tasks.shape == (24, 2)
    prompts = given.test(TESTS[0]).sample(5, torch.Generator().manual_seed(0))
    assert torch.equal(SMALL.inputs(prompts), prompts.columns())
    in_turn = replace(SMALL, tokens="in turn").inputs(prompts)
    assert in_turn.shape == (5, 7, 30)
    assert torch.equal(in_turn[:, ::2], prompts.x)
    wanted = prompts.y[:, :-1, None] * prompts.labels[1]
    torch.testing.assert_close(in_turn[:, 1::2], wanted)


def test_a_network_learns() -> None:
    learner = replace(SMALL, steps=60, batch_size=64, length=6, step_size=1e-2)
    given = own_world(learner)
    source = given.test(PromptTest(0.8, 6))
    model = icl.train_gpt(learner, given, 0)
    trained = icl.gpt_outcome(model, learner, source, 300, 1)
    model.reset_parameters(torch.Generator().manual_seed(0))
    start = icl.gpt_outcome(model, learner, source, 300, 1)
    assert trained.error < start.error - 0.1 and trained.hinge < start.hinge


def test_a_training_that_was_interrupted_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    learner, seen = replace(SMALL, steps=9), list[int]()
    given = own_world(learner)
    whole = icl.train_gpt(learner, given, 0)

    def interrupt(step: int, *_: object) -> None:
        seen.append(step)
        if step == 5:
            raise KeyboardInterrupt

    with checkpoint_dir(tmp_path), report_epochs(interrupt), pytest.raises(KeyboardInterrupt):
        icl.train_gpt(learner, given, 0)
    with checkpoint_dir(tmp_path), report_epochs(interrupt):
        resumed = icl.train_gpt(learner, given, 0)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert all(map(torch.equal, whole.parameters(), resumed.parameters()))


def test_a_loss_at_every_context_is_the_mean_over_inputs() -> None:
    learner = replace(SMALL, tokens="in turn", every_context=True)
    prompts = own_world(learner).test(TESTS[0]).sample(5, torch.Generator().manual_seed(0))
    said = torch.randn(5, 7, 1, generator=torch.Generator().manual_seed(1))
    wanted = [
        max(0.0, 1 - float(said[p, 2 * i, 0]) * float(prompts.y[p, i]))
        for p in range(5)
        for i in range(4)
    ]
    found = icl.loss_of(lambda tokens: said, learner, prompts)
    assert float(found) == pytest.approx(fmean(wanted), rel=1e-6)
    query = icl.loss_of(lambda tokens: said, replace(learner, every_context=False), prompts)
    assert float(query) == pytest.approx(fmean(wanted[3::4]), rel=1e-6)
    with pytest.raises(ValueError, match=r"every_context: tokens are 'columns', expected 'in turn"):
        replace(SMALL, every_context=True)


def test_one_training_serves_both_figures_and_tells_its_steps() -> None:
    figure = {figure.id: figure for figure in FIGURES}["fig-6-3-gpt"]
    learners = tuple(replace(each, dim=8, depth=1, steps=2) for each in figure.grid.learners)
    grid = replace(figure.grid, learners=learners, prompts=20, seeds=1)
    report = figure.report(grid, grid.measure(figure.run))
    assert "on unseen tasks" in report.verdict and "contexts at alpha'" in report.verdict
    assert len(report.rows) == len(grid.tests) == len(set(grid.tests))
    told: list[tuple[int, int, str]] = []
    with report_epochs(lambda *at: told.append(at)):
        icl.train_gpt(SMALL, own_world(SMALL), 0)
    assert told == [(1, 2, "step"), (2, 2, "step")]


def test_outputs_that_are_no_numbers_are_errors() -> None:
    given = own_world(SMALL)
    model = SMALL.model(torch.Generator().manual_seed(0))
    model.head.bias.data.fill_(torch.nan)
    assert icl.gpt_outcome(model, SMALL, given.test(TESTS[0]), 20, 1).error == 1


def test_the_answer_of_the_query_is_not_seen_and_rows_are_those_of_the_seed() -> None:
    given = own_world(SMALL)
    prompts = given.test(TESTS[0]).sample(5, torch.Generator().manual_seed(0))
    other = replace(prompts, y=torch.cat([prompts.y[:, :-1], -prompts.y[:, -1:]], 1))
    for tokens in ("columns", "in turn"):
        learner = replace(SMALL, tokens=tokens)
        assert torch.equal(learner.inputs(prompts), learner.inputs(other))
    grid = GptErrors((SMALL,), TESTS, prompts=20, seeds=2, first=5)
    rows = grid.measure(gpt_errors)
    assert [(r["seed"], r["s_1"]) for r in rows] == [(5, None), (5, 1.2), (6, None), (6, 1.2)]
    assert replace(grid, seeds=1, first=6).measure(gpt_errors) == nearly(rows[2:])
