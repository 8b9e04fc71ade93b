import math
from typing import Any

import pytest

from graphtheory.lab.bench.benchmark import Benchmark, Run
from graphtheory.lab.bench.comparison import Comparison, Difference, reading
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.rows import MEASURES, Environment, measure_of
from graphtheory.lab.bench.search import SearchResult, best
from graphtheory.lab.bench.task import CONSTANT
from graphtheory.lab.train.score import SCORES

RMSE = measure_of("rmse")


def run(model: str, seed: int, test: float, **extra: Any) -> Run:
    return Run(model, seed, test, test, 10, 0.1, 1.0, 1, [], extra)


def compared(runs: list[Run], metric: Any) -> Comparison:
    task = NodeBenchTask("karate", "random-60-20-20")
    task.measure = measure_of(metric)
    benchmark = Benchmark(task, tuple(dict.fromkeys(run.model for run in runs)))
    return Comparison(benchmark, runs, "", Environment("", {}, ""))


ERRORS = [run("gt", 0, 0.8), run("gcn", 0, 1.0), run("gt", 1, 0.9), run("gcn", 1, 0.85)]


def test_every_score_of_training_is_known_with_its_direction() -> None:
    assert {n: m.higher_is_better for n, m in MEASURES.items()} == {
        n: s.higher_is_better for n, s in SCORES.items()
    }
    with pytest.raises(ValueError, match="metric: got 'r2', expected one of accuracy"):
        measure_of("r2")
    assert [RMSE.shown(*of) for of in ((0.8512, 0.0123), (0.0712,), (123.4, 5.0), (0.0,))] == [
        "0.8512 ± 0.0123", "0.07120", "123.4 ± 5.0", "0.0000",
    ]  # fmt: skip


def test_of_errors_the_lowest_is_best_everywhere() -> None:
    of_errors = compared(ERRORS, "rmse")
    assert of_errors.best.model == "gt"
    (found,) = of_errors.differences()
    assert found.difference == pytest.approx((0.2 - 0.05) / 2) and found.ahead == 1
    table = of_errors.difference_table()
    assert table.rows[0][0] == "gcn - gt" and table.rows[0][1].startswith("+0.075 ± ")
    assert table.columns[1] == "RMSE ± 95 %" and "Positive values favor gt" in table.note
    low, high = (
        SearchResult("k", NodeRunConfig.of("gt", hidden=h), v, 1, 1.0, 1, 1, 1)
        for h, v in ((8, 0.5), (16, 0.7))
    )
    assert best([high, low], RMSE)["gt"] == low and best([high, low])["gt"] == high  # fmt: skip
    lost = SearchResult("k", NodeRunConfig.of("gt"), math.inf, 1, 1.0, 1, 1, 1)
    assert best([lost, high, lost], RMSE)["gt"] == high
    found = {(r.name, r.parameters["model"]): r for r in of_errors.rows()}
    assert found["test rmse", "gt"].unit == "unit of the target"
    gap = found["paired difference of test rmse, model - gt", "gcn"]
    assert gap.value == pytest.approx(0.075) and gap.unit == "unit of the target"
    assert compared(ERRORS, "mae").rows()[0].unit == "unit of the target"
    note = of_errors.scores().note
    assert note.startswith("Test RMSE (lower is better) at the epoch")


def test_a_model_that_learned_nothing_is_marked() -> None:
    runs = [run("gt", 0, 0.5), run("mlp", 0, 0.3, **{CONSTANT: 0.3}), run("mlp", 1, 0.4)]
    found = compared(runs, "accuracy")
    table = found.scores()
    assert found.unlearned == {"mlp": "1 of 2"}
    assert [row[0] for row in table.rows] == ["gt", "mlp (!)"]
    assert "(!) mlp was no better than always predicting one class on 1 of 2 seeds." in table.note
    lost = [run("gt", seed, 0.5, **{CONSTANT: 0.5}) for seed in (0, 1)]
    both = compared([*lost, *runs[1:]], "rmse").scores()
    assert "one value on 2 of 2 seeds, mlp on 1 of 2 seeds." in both.note
    marked = [r.parameters for r in found.rows()]
    assert {of["model"] for of in marked if "learned nothing" in of} == {"mlp"}


@pytest.mark.parametrize(("seeds", "difference", "error", "read"), [
    (2, 12.0, 1.0, "not clear"), (2, 13.0, 1.0, "ahead"), (5, -2.7, 1.0, "not clear"),
    (10, -2.3, 1.0, "behind"),
    (2, 0.5, 0.0, "few seeds"), (2, 0.5, 1e-17, "few seeds"), (5, 0.5, 0.0, "ahead"),
    (5, 0.0, 0.0, "not clear"),
    (1, 1.0, math.nan, "one seed"),
])  # fmt: skip
def test_few_seeds_need_a_large_gap(seeds: int, difference: float, error: float, read: str) -> None:
    assert reading(Difference("gcn", difference, error, seeds, seeds)) == read
