from typing import Any

import pytest

from graphtheory.papers.core_neighborhood import claims
from graphtheory.papers.core_neighborhood.study import Case, CurveStudy, PhaseStudy
from graphtheory.papers.core_neighborhood.training import Learner

CASES = (Case(Learner()),)


def row(**entries: Any) -> dict[str, Any]:
    return {"case": CASES[0].name, "seed": 0} | entries


def test_counts_of_confusion_links_stand_for_one_less() -> None:
    study = PhaseStudy("eps_s", (0.0, 0.2), (4, 8), CASES[:1], (-2,), seeds=3)
    rows = [
        row(eps_s=value, labels=labels, seed=seed, hinge=hinge)
        for value, labels, hinges in ((0.0, 4, (0, 0, 1)), (0.0, 8, (0, 0, 0)),
                                      (0.2, 4, (1, 1, 1e-3)), (0.2, 8, (1, 1, 9e-4)))
        for seed, hinge in enumerate(hinges)
    ]  # fmt: skip
    found = claims.successes(study, rows, CASES[0].name)
    assert found.values.tolist() == [1.0, 0.8]
    assert found.counts.tolist() == [[2, 3], [0, 1]]


def test_passage_lies_between_two_looks() -> None:
    rows = [
        row(gamma_d=0.5, step=step, hinge=hinge)
        for step, hinge in ((0, 1.0), (10, 0.1), (20, 0.001))
    ]
    rows += [row(gamma_d=0.5, seed=1, step=step, hinge=1.0) for step in (0, 10, 20)]
    needed = claims.iterations(rows, CASES[0].name, threshold=0.01)
    assert needed == {0.5: [pytest.approx(15.0), float("inf")]}


def test_growth_leaves_out_where_a_trial_never_arrives() -> None:
    study = CurveStudy("gamma_d", (0.2, 0.4, 0.8), CASES[:1], claims=(-1,), seeds=2)
    rows = []
    for value, scale in ((0.2, 1.0), (0.4, 40), (0.8, 20)):
        for seed in (0, 1):
            rows.append(row(gamma_d=value, seed=seed, step=0, hinge=1.0))
            low = 1.0 if value == 0.2 else 0.1
            rows.append(row(gamma_d=value, seed=seed, step=scale, hinge=low))
    (found,) = claims.growth(study, rows, 0.1001).values()
    assert found["found"].exponent == pytest.approx(-1, abs=0.01)
    assert found["median"][0.2] == float("inf")


def test_settling_is_the_step_of_most_of_the_fall() -> None:
    rows = [
        row(eps_0=0.1, step=step, hinge=hinge)
        for step, hinge in ((0, 1.0), (10, 0.4), (20, 0.25), (30, 0.2))
    ]
    assert claims.settling(rows, CASES[0].name, 0.1) == [20.0]


def test_a_boundary_is_that_of_its_case() -> None:
    study = PhaseStudy("gamma_d", (0.2, 0.4, 0.8), (4, 8, 16, 32), CASES, (-2,), seeds=20)
    rows = [
        row(gamma_d=value, labels=labels, seed=seed, hinge=0.0 if labels * value > 3 else 1.0)
        for value in study.values
        for labels in study.labels
        for seed in range(20)
    ]
    (of,) = claims.boundaries(study, rows).values()
    assert of["claimed"] == -2 and of["found"].exponent == pytest.approx(-1, abs=0.2)
    assert list(of["half"]) == [0.2, 0.4, 0.8] and 8 < of["half"][0.2] < 16


def settles(eps: float, seed: int, at: int, end: float) -> list[dict[str, Any]]:
    """A loss that falls in one step."""
    looks = ((0, 1.0), (10, 1.0 if at > 10 else end), (20, end), (30, end))
    return [row(eps_0=eps, seed=seed, step=step, hinge=hinge) for step, hinge in looks]


def test_the_last_loss_over_twice_the_share_and_whether_more_is_slower() -> None:
    rows = []
    for seed, off in enumerate((0.9, 1.0, 1.1)):
        rows += settles(0.0, seed, 10, 0.0) + settles(0.1, seed, 20, 0.2 * off)
    ratios = claims.ratios(rows, CASES[0].name)
    assert list(ratios) == [0.1] and ratios[0.1].value == pytest.approx(1)
    assert 0.9 <= ratios[0.1].low < 1 < ratios[0.1].high <= 1.1
    assert claims.slower(rows, CASES[0].name).direction == "rises"
    same = [r for seed in range(3) for eps in (0.0, 0.1) for r in settles(eps, seed, 10, eps)]
    assert claims.slower(same, CASES[0].name).direction == "no trend"


def test_attention_at_the_end_and_over_the_steps() -> None:
    rows = [
        row(seed=seed, step=step, mass=mass + 0.01 * seed)
        for seed in range(3)
        for step, mass in ((0, 0.2), (20, 0.6), (10, 0.5), (30, 0.9))
    ]
    end, over = claims.risen([*rows, row(case="another", step=40, mass=0.0)], CASES[0].name)
    assert end.value == pytest.approx(0.91) and end.low >= 0.9 - 1e-9
    assert (over.rho, over.direction) == (1, "rises")
