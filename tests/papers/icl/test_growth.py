import torch

from graphtheory.papers.icl import growth as icl_growth
from graphtheory.papers.icl.errors import Exam, matching
from graphtheory.papers.icl.growth import CoverStudy, GrowthStudy, chosen_tasks
from graphtheory.papers.icl.tasks import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.training import Learner

SMALL = Learner(steps=4, batch_size=6, width=8, length=4)


def test_training_sets_of_every_size(generator: torch.Generator) -> None:
    every, cycle = all_tasks(4), set(map(tuple, training_tasks(4).tolist()))
    for count in (2, 4, 7):
        ids = chosen_tasks(4, count, generator)
        drawn = set(map(tuple, every[ids].tolist()))
        assert len(drawn) == count
        assert drawn <= cycle if count <= 4 else drawn > cycle
    assert not uncovered(every[chosen_tasks(4, 4, generator)], 4)
    assert len({tuple(chosen_tasks(4, 2, generator).tolist()) for _ in range(20)}) > 3


def test_networks_are_tested_on_tasks_they_have_not_seen() -> None:
    study = CoverStudy(SMALL, (3,), (-1, 0, 3), Exam(0.8, 5), prompts=40, seeds=2, first=4)
    rows = study.run()
    assert [(r["tasks"], r["seed"]) for r in rows] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    assert [r["covered"] for r in rows] == [False, False, True, True]
    seen = torch.tensor([[0, 2], [1, 4]])
    others = icl_growth._others(seen, 6)
    assert others.tolist() == [[1, 3, 4, 5], [0, 2, 3, 5]]
    drawn = icl_growth._from(others)(50, torch.Generator().manual_seed(0)).view(2, 50)
    assert set(drawn[0].tolist()) == {1, 3, 4, 5} and set(drawn[1].tolist()) == {0, 2, 3, 5}


def test_where_the_error_falls() -> None:
    rows = [
        {"relevant": 4, "tasks": tasks, "error": error}
        for tasks, errors in ((2, (0.2, 0.4)), (3, (0.1, 0.3)), (4, (0.0, 0.02)), (5, (0.03, 0.03)))
        for error in errors
    ]
    found = icl_growth.jump(rows, 4)
    assert {key: round(value, 6) for key, value in found.items()} == {
        "below": 0.2, "least below": 0.2, "at": 0.01, "most from on": 0.03,
    }  # fmt: skip


def test_a_curve_ends_when_all_networks_are_there() -> None:
    study = GrowthStudy(
        SMALL, (0.5, 1.0), (2, 3), Exam(0.8, 5), every=2, threshold=4.0, prompts=30, seeds=2
    )
    rows = study.run()
    short = [(r["alpha"], r["length"]) for r in matching(rows, kind="length")[::2]]
    assert short == [(0.5, 2), (0.5, 3), (1.0, 2), (1.0, 3)]
    assert [r["step"] for r in matching(rows, kind="steps", alpha=1.0)] == [2, 2]  # below 4 / 4
