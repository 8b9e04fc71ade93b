import pytest

from graphtheory.papers.topology.figures_targets import Lowest, best_sampler, best_target
from graphtheory.papers.topology.training import SAMPLERS, DegreeGroupTask
from tests.papers.topology.test_figures import BY_ID, row, verdict


def test_best_target_and_best_sampler_by_hand() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    errors = {(a, a): (0.2, 0.5), (a, b): (0.3, 0.3), (b, a): (0.1, 9.0), (b, b): (0.2, 0.2)}
    rows = [
        row(learner=f"{p}", sampler=SAMPLERS[0], p_star=list(p), p_hat=list(q), seed=s, error=error)
        for (p, q), both in errors.items()
        for s, error in enumerate(both)
    ]
    lost = row(learner="F", sampler=SAMPLERS[1], p_star=[1, 1], p_hat=list(b), error=float("inf"))
    found = best_target([*rows, lost])
    assert {name: (best.at, best.seeds, best.of) for name, best in found.items()} == {
        f"{a}": (b, 1, 2), f"{b}": (b, 1, 2), "F": (None, 0, 1),
    }  # fmt: skip
    assert found[f"{a}"].share == pytest.approx(0.75, abs=0.05)  # not of the first seed alone
    assert found["F"].share == 0 and not found[f"{a}"].holds(b)
    by_target = best_sampler([*rows, lost])
    assert (by_target[a].at, by_target[a].seeds) == (a, 1)
    assert by_target[b] == Lowest(b, 2, 2, 1.0)
    assert by_target[b].holds(b) and not by_target[b].holds(a)


def test_of_several_numbers_of_labels_the_best_is_of_the_largest() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    rows = [
        row(learner="L", sampler=SAMPLERS[0], p_star=list(q), p_hat=list(q), seed=s, labels=labels,
            error=error)
        for labels, errors in ((20, {a: 0.3, b: 0.2}), (10, {a: 0.1, b: 0.9}))
        for q, error in errors.items()
        for s in range(3)
    ]  # fmt: skip
    assert best_target(rows) == {"L": Lowest(b, 3, 3, 1.0)}
    assert best_sampler(rows) == {a: Lowest(a, 3, 3, 1.0), b: Lowest(b, 3, 3, 1.0)}


def test_every_sampler_meets_every_target_and_the_best_learned_is_told() -> None:
    def own(task: DegreeGroupTask, at: int) -> float:
        return 1.0 + abs(task.p_star[0] - task.p_hat[0])

    told = verdict("fig-5-3", own)
    assert "p* = (0.9, 0.1): lowest over the variance on (0.9, 0.1) (3 of 3 seeds, 100 %" in told
    assert told.count("holds") == 4  # FastGCN has p* = (1, 1) here, which is next to (0.9, 0.1)
    told = verdict("fig-5-4", own)
    assert told.count("claimed (0.5, 0.5): holds") == 1 and told.count("not found") == 3
    assert verdict("fig-5-4", own, seeds=1).count("no verdict of fewer than 3 seeds") == 4
    tasks = BY_ID["fig-5-3"].grid.tasks
    learners = ["p* = (0.9, 0.1)", "p* = (0.1, 0.9)", "p* = (0.5, 0.5)", "FastGCN"]
    assert [task.learner for task in tasks[::3]] == learners
    assert len({(task.learner, task.p_hat) for task in tasks}) == len(tasks) == 12
