from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory.metrics import infinity_norm
from graphtheory.papers.topology.data import degree_group_graph
from graphtheory.papers.topology.study import ADAM, SAMPLERS, STUDIES, Task
from graphtheory.patterns.draw import derive
from tests.bench.conftest import nearly

EVEN = (0.5, 0.5)
TASKS = tuple(
    Task(sampler, (10, 30), (5, 2), (0.9, 0.1), EVEN, sampler=sampler) for sampler in SAMPLERS
)
SMALL = replace(STUDIES["fig-5-3"], tasks=TASKS, labels=(8, 12), widths=(6,), seeds=2)


def test_rows_of_a_small_study() -> None:
    rows = SMALL.run()
    assert [(r["reading"], r["labels"], r["name"], r["seed"]) for r in rows] == [
        (reading, labels, sampler, seed)
        for reading in ("SGD", "Adam")
        for labels in (8, 12)
        for sampler in SAMPLERS
        for seed in (0, 1)
    ]
    assert all(r["error"] == pytest.approx(r["mse"] / r["variance"]) for r in rows)
    assert SMALL.run() == nearly(rows)


def test_samplers_and_targets_are_compared_on_the_same_draws() -> None:
    first, *others = (task.trial(8, seed=3)[0] for task in TASKS)
    for trial in others:
        assert torch.equal(trial.x, first.x) and torch.equal(trial.labelled, first.labelled)
        assert torch.equal(trial.y, first.y)
        assert torch.equal(trial.adjacency.indices, first.adjacency.indices)
    other = replace(TASKS[0], p_hat=(0.9, 0.1)).trial(8, seed=3)[0]
    assert torch.equal(other.x, first.x) and not torch.equal(other.y, first.y)
    assert not torch.equal(TASKS[0].trial(8, seed=4)[0].x, first.x)
    more = TASKS[0].trial(12, seed=3)[0].labelled
    assert torch.equal(more[:8], first.labelled)


def test_targets_are_those_of_the_formula() -> None:
    task = replace(TASKS[0], p_hat=(0.7, 0.2))
    trial, star = task.trial(8, seed=0)
    scale = torch.tensor([0.7] * 10 + [0.2] * 30)
    dense = trial.adjacency.to_dense() * scale
    predicted = trial.adjacency.to_dense() * torch.tensor([0.9] * 10 + [0.1] * 30)
    torch.testing.assert_close(star.to_dense(), predicted)
    assert infinity_norm(star) == pytest.approx(float(predicted.sum(1).max()))
    draw = Generator().manual_seed(derive(0))  # the graph comes first, then X, W* and C*
    degree_group_graph((10, 30), (5, 2), draw)
    x, w, c = (torch.randn(shape, generator=draw) for shape in ((40, 10), (10, 10), (10, 2)))
    heard = dense @ x @ w
    assert torch.equal(trial.x, x)
    torch.testing.assert_close(trial.y, (heard.sin() * heard.tanh()) @ c)


def test_held_out_errors_never_see_an_unlabelled_node() -> None:
    study = replace(SMALL, labels=(10,), tasks=TASKS[:1], readings=(ADAM,), held_out=0.3)
    trial = TASKS[0].trial(10, seed=1)[0]
    rest = trial.y[trial.labelled[7:]]
    (_, row) = study.run()
    assert row["variance"] == pytest.approx(float(rest.var(0, correction=0).mean()))


def test_every_figure_learns_under_both_readings_and_the_search_holds_nodes_out() -> None:
    for name, study in STUDIES.items():
        assert (study.held_out > 0) == (name == "steps-5")
        assert name == "steps-5" or [r.adam for r in study.readings] == [False, True]
    learners = [task.learner for task in STUDIES["fig-5-3"].tasks]
    assert learners[::3] == ["p* = (0.9, 0.1)", "p* = (0.1, 0.9)", "p* = (0.5, 0.5)", "FastGCN"]
