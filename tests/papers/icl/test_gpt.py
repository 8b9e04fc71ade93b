from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from graphtheory.lab.progress import report_epochs
from graphtheory.lab.train import checkpoint
from graphtheory.lab.train.checkpoint import CheckpointError, checkpoint_dir, write_checkpoint
from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.figures import GptErrors, gpt_errors
from graphtheory.papers.icl.figures_alpha import FIGURES
from graphtheory.papers.icl.in_context import Curriculum, Ramp, predictions, train_in_context
from graphtheory.papers.icl.prompts import Linear
from graphtheory.papers.icl.training import GptLearner, PromptTest, World, world
from graphtheory.vision.models import gpt
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


def test_a_training_that_was_interrupted_goes_on_to_the_same_bits(tmp_path, monkeypatch) -> None:
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
    inputs = [(said[p, 2 * i, 0], prompts.y[p, i]) for p in range(5) for i in range(4)]
    wanted = [max(0.0, 1 - float(output) * float(y)) for output, y in inputs]
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


SHORT = Curriculum(Ramp(1, 2, every=20), Ramp(3, 6, add=3, every=20))


def model() -> nn.Module:
    made = gpt(32, depth=2, heads=2, in_channels=2, out_channels=1, length=12)
    made.reset_parameters(Generator().manual_seed(0))
    return made


def draw() -> Generator:
    return Generator().manual_seed(1)


def test_a_prediction_sees_the_examples_before_it_alone() -> None:
    x, y = torch.randn(2, 5, 2, generator=draw()), torch.randn(2, 5, generator=draw())
    tokens: list[Tensor] = []
    reads = nn.Linear(2, 1)
    reads.register_forward_pre_hook(lambda module, given: tokens.extend(given))
    predictions(reads, x, y)
    assert tokens[0][0, :4].tolist() == [
        x[0, 0].tolist(), [float(y[0, 0]), 0.0], x[0, 1].tolist(), [float(y[0, 1]), 0.0],
    ]  # fmt: skip
    network = model().eval()
    before, changed = predictions(network, x, y), y.clone()
    changed[:, 2] += 3
    after = predictions(network, x.numpy(), changed.numpy())
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.equal(before[:, 3], after[:, 3])


def test_it_learns_one_function_of_all_prompts_at_every_position() -> None:
    def same(count: int, points: int, dim: int, generator: Generator) -> tuple[Any, Any]:
        x = torch.randn(count, points, dim, generator=generator).numpy()
        return x, 2.0 * x[..., 0]

    network = model()
    options: dict[str, Any] = {"steps": 50, "batch_size": 32, "generator": draw(), "lr": 1e-2}
    losses = train_in_context(network, same, SHORT, **options)
    assert np.mean(losses[-5:]) < 0.5 * losses[0] and not network.training


def test_prompts_grow_and_are_filled_with_zeros() -> None:
    seen: list[tuple[int, int, int]] = []
    told: list[Tensor] = []

    def noted(count: int, points: int, dim: int, generator: Generator) -> Any:
        seen.append((count, points, dim))
        return Linear().prompts(count, points, dim, generator)

    def loss(found: Tensor, y: Tensor) -> Tensor:
        told.append(found.detach())
        return (found - y).abs().mean()

    train_in_context(model(), noted, SHORT, steps=21, generator=draw(), batch_size=4, loss=loss)
    assert seen[0] == (4, 3, 1) and seen[19] == (4, 3, 1) and seen[20] == (4, 6, 2)
    assert told[0].shape == (4, 3) and told[20].shape == (4, 6)


def filled(p: int, n: int, d: int, value: float) -> tuple[Any, Any]:
    return np.zeros((p, n, d)), np.full((p, n), value)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"sample": lambda p, n, d, g: filled(p, 2, d, 0.0)}, ValueError,
         r"sample: gave x \(64, 2, 1\) and y \(64, 2\), expected"),
        ({"sample": lambda p, n, d, g: filled(p, n, d, np.nan)}, FloatingPointError,
         "step 0: the loss is nan"),
        ({"sample": Linear()}, TypeError, "sample: got Linear, expected a function"),
        ({"sample": lambda *asked: None}, TypeError, "sample: gave NoneType, expected x and y"),
        ({"curriculum": 3}, TypeError, "curriculum: got int, expected Curriculum"),
        ({"model": gpt(16, depth=1, heads=2, in_channels=2, out_channels=2, length=12)}, ValueError,
         r"model: gives .* 2\) for tokens .*, expected one num"),
        ({"loss": torch.sub}, ValueError, r"loss: gave shape \(64, 3\), expected one number"),
        ({"steps": 0}, ValueError, "steps: got 0, expected 1 or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_refused(changed: dict[str, Any], error, message: str) -> None:
    given = {"model": model(), "sample": Linear().prompts, "curriculum": SHORT, "steps": 1}
    with pytest.raises(error, match=message):
        train_in_context(**given | changed, generator=draw())
    with pytest.raises(ValueError, match="expected 1 <= start <= end"):
        Ramp(3, 2)
    with pytest.raises(TypeError, match="points: got 8, expected Ramp"):
        Curriculum(Ramp(1, 3), 8)  # type: ignore[arg-type]


def test_a_training_that_stopped_goes_on_to_the_same_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)

    def run(steps: int, stop: int = -1, file: Path | None = None) -> tuple[list[float], nn.Module]:
        def progress(step: int, loss: float) -> None:
            if step == stop:
                raise KeyboardInterrupt

        network = model()
        losses = train_in_context(
            network, Linear().prompts, SHORT, steps=steps, generator=draw(), batch_size=4,
            progress=progress, checkpoint=file,
        )  # fmt: skip
        return losses, network

    whole, alone = run(30)
    file = tmp_path / "new" / "gpt.ckpt"
    with pytest.raises(KeyboardInterrupt):
        run(30, stop=22, file=file)
    assert run(25, file=file)[0] == whole[:25]  # steps 23 and 24
    losses, resumed = run(30, file=file)
    assert losses == whole
    same = zip(alone.parameters(), resumed.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert run(30, file=file)[0] == whole  # nothing left to do
    with pytest.raises(ValueError, match=r"steps: got 29, but .* has done 30"):
        run(29, file=file)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gpt.ckpt"
    options: dict[str, Any] = {"steps": 2, "checkpoint": file, "batch_size": 4}
    train_in_context(model(), Linear().prompts, SHORT, generator=draw(), **options)
    with pytest.raises(CheckpointError, match=r"another training: lr is 0\.0001 there"):
        train_in_context(model(), Linear().prompts, SHORT, generator=draw(), lr=0.1, **options)
    wider = gpt(64, depth=2, heads=2, in_channels=2, out_channels=1, length=12)
    with pytest.raises(CheckpointError, match="another training: model: "):
        train_in_context(wider, Linear().prompts, SHORT, generator=draw(), **options)
    write_checkpoint(file, {"state_dict": {}})
    with pytest.raises(CheckpointError, match="not written by train_in_context"):
        train_in_context(model(), Linear().prompts, SHORT, generator=draw(), **options)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="truncated"):
        train_in_context(model(), Linear().prompts, SHORT, generator=draw(), **options)
