import math
from typing import Any

import pytest

from graphtheory.papers.mixture import claims
from graphtheory.papers.mixture.study import FAR, NEAR, TENSOR, SampleStudy, StartStudy
from graphtheory.papers.power_law import Exponent


def row(value: float, seed: int, **entries: Any) -> dict[str, Any]:
    return {"learner": "a", "value": value, "seed": seed, "ended": True} | entries


@pytest.mark.parametrize("figure", list(claims.STUDIES))
def test_every_figure_has_a_claim_and_a_quick_form(figure: str) -> None:
    study, claim = claims.STUDIES[figure], claims.CLAIMS[figure]
    assert (claim.kind == "starts") == isinstance(study, StartStudy)
    assert len(claims.quick(study).steps()) < len(study.steps())
    assert len({learner.name for learner in study.learners}) == len(study.learners)


def test_means_are_shown_as_norms_and_counts_as_what_the_bound_has() -> None:
    assert claims.shown(claims.STUDIES["fig-4-6b"], -2.0) == pytest.approx(2 * 5**0.5)
    assert claims.shown(claims.STUDIES["fig-4-5b"], 2000) == pytest.approx(math.log(2000) / 2000)
    assert claims.shown(claims.STUDIES["fig-4-7a"], 0.3) == 0.3


def test_success_is_a_small_spread() -> None:
    study = SampleStudy("d", (2, 4), seeds=2, examples=(10, 20))
    rows = [
        row(d, seed, n=n, spread=spread)
        for d, n, spreads in ((2, 10, (0, 1)), (2, 20, (1e-3, 0)), (4, 10, (1, 1)), (4, 20, (1, 0)))
        for seed, spread in enumerate(spreads)
    ]
    assert claims.successes(study, rows).counts.tolist() == [[1, 2], [0, 1]]


def test_the_same_seeds_count_at_every_value() -> None:
    study = claims.STUDIES["fig-4-4a"]
    rows = [
        row(v, s, rate=10 * v + s, ended=(s < 2 if v == 2 else not (v == 1 and s == 1)))
        for v in (0.5, 1.0, 2.0)
        for s in range(5)
    ]
    root = 5**0.5
    found = claims.cells(study, rows, "rate")
    assert found == {0.5 * root: [5, 7, 8, 9], root: [10, 12, 13, 14]}
    few = [r for r in rows if r["value"] < 2 and r["seed"] < 3]  # two seeds at both values
    assert claims.cells(study, few, "rate") == {0.5 * root: [5, 7], root: [10, 12]}
    nothing = claims.verdict(claims.CLAIMS["fig-4-4a"], study, few, "rate")
    assert math.isnan(nothing[0].rho) and not nothing[1]


def test_every_trial_has_a_risk() -> None:
    study = claims.STUDIES["fig-4-6a"]
    rows = [row(v, s, average=v, ended=s == 0) for v in (0.1, 2.0) for s in range(3)]
    assert claims.cells(study, rows, "average") == {0.1: [0.1] * 3, 2.0: [2.0] * 3}


def test_other_seeds_at_every_value_make_no_trend() -> None:
    study = claims.STUDIES["fig-4-4a"]
    rows = [  # each seed alike everywhere; those of a small rate end at small values alone
        row(v, s, rate=float(s), ended=abs(s - 2 * i) <= 3)
        for i, v in enumerate((0.1, 0.5, 1.0, 1.5, 2.0))
        for s in range(12)
    ]
    assert not claims.verdict(claims.CLAIMS["fig-4-4a"], study, rows, "rate")[1]


def test_a_trend_within_seeds_is_found_beside_larger_differences_between_them() -> None:
    study = claims.STUDIES["fig-4-7b"]
    rows = [
        row(v, s, average=100.0 * ((7 * s) % 11) + v)
        for v in (0.0, 0.1, 0.2, 0.3)
        for s in range(11)
    ]
    found, holds = claims.verdict(claims.CLAIMS["fig-4-7b"], study, rows, "average")
    assert holds and found.low == pytest.approx(1)


def test_verdicts_of_a_power_a_trend_and_a_turn() -> None:
    study = claims.STUDIES["fig-4-5a"]
    rows = [row(k, s, rate=1 - 0.1 * (1 + 0.1 * s) / k**2) for k in (2, 3, 5) for s in range(3)]
    found, holds = claims.verdict(claims.CLAIMS["fig-4-5a"], study, rows, "speed")
    assert isinstance(found, Exponent) and found.exponent == pytest.approx(-2) and holds
    slower = [row(k, s, rate=1 - 0.1 / k) for k in (2, 3, 5) for s in range(3)]
    assert not claims.verdict(claims.CLAIMS["fig-4-5a"], study, slower, "speed")[1]
    risks = [row(v, s, average=v + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    falls, rises, turns = (claims.CLAIMS[f"fig-4-{f}"] for f in ("7a", "7b", "6a"))
    study = claims.STUDIES["fig-4-7a"]
    assert not claims.verdict(falls, study, risks, "average")[1]
    assert claims.verdict(rises, study, risks, "average")[1]
    assert not claims.verdict(turns, study, risks, "average")[1]
    bowl = [row(v, s, average=abs(v - 0.2) + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    assert claims.verdict(turns, study, bowl, "average")[1]


def test_what_the_starts_of_figure_c_1_say() -> None:
    rows = [
        {"start": start, "seed": seed, "value": 4.0, "error": [first, last], "rate": rate,
         "ended": True}
        for seed, shift in enumerate((0.0, 0.02, 0.04))
        for start, first, last, rate in (
            (TENSOR, 0.58 + shift, 0.3, 0.99), (NEAR, 0.1, 0.1, 0.989), (FAR, 70.0, 60.0, 0.9999),
        )
    ]  # fmt: skip
    found = claims.of_starts(rows, 4.0)
    assert found.error == pytest.approx((0.6, 0.58, 0.62))
    assert found.speed == pytest.approx((0.909,) * 3, abs=1e-3)
    assert found.far[0] == 60 and found.holds == (True, True, True)
    slow = [r | {"rate": 0.999} if r["start"] == TENSOR else r for r in rows]
    assert claims.of_starts(slow, 4.0).holds == (True, False, True)
    nowhere = claims.of_starts([r | {"ended": False} for r in rows], 4.0)
    assert nowhere.holds == (True, False, True) and math.isnan(nowhere.speed[0])
    lost = [r | {"rate": math.nan, "error": [1.0, 0.2]} for r in rows]
    assert claims.of_starts(lost, 4.0).holds == (False, False, False)
