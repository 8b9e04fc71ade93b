import math

import pytest

from graphtheory.papers.claims import Crossing, fewer
from graphtheory.papers.stats import regression_of

CLAIM = Crossing("contexts")


def curve(value: float, needed: float, seed: int) -> list[dict]:
    """Errors that fall as the length to the power -2 and are the threshold at `needed`."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": CLAIM.threshold * (needed / n) ** 2}
        for n in (5, 10, 20, 40, 80, 160)
    ]  # fmt: skip


def test_the_size_that_is_needed_and_its_exponent() -> None:
    rows = [
        row
        for value in (0.2, 0.4, 0.8)
        for seed in range(3)
        for row in curve(value, 3 * value**-1.5 * (1 + seed / 10), seed)
    ]
    needed = CLAIM(None, rows)["CoT"]
    assert needed[0.2] == pytest.approx([3 * 0.2**-1.5 * f for f in (1, 1.1, 1.2)])
    inside = CLAIM.inside(None, rows)["CoT"]
    assert list(inside) == [0.2, 0.4]  # at 0.8 the 5 examples are enough
    found = regression_of(inside)
    assert found is not None and found.exponent == pytest.approx(-1.5)


def test_what_is_never_reached_is_infinite() -> None:
    rows = [row | {"error": 0.5} for v in (0.2, 0.4) for s in range(3) for row in curve(v, 9, s)]
    assert CLAIM(None, rows) == {"CoT": {0.2: [math.inf] * 3, 0.4: [math.inf] * 3}}
    assert CLAIM.inside(None, rows) == {"CoT": {}}


def test_steps_on_a_straight_axis_and_a_measure_that_rises() -> None:
    losses = [
        {"case": "GT", "gamma": 0.5, "seed": seed, "step": step, "hinge": hinge}
        for seed in (0, 1)
        for step, hinge in ((20, 0.001 if seed else 1.0), (0, 1.0), (10, 0.1 if seed else 1.0))
    ]
    steps = Crossing("step", "hinge", 0.01, "gamma", "{case}", log_size=False)
    assert steps(None, losses) == {"GT": {0.5: [math.inf, pytest.approx(15.0)]}}
    scores = [
        {"alpha": 1.0, "seed": 0, "labels": n, "accuracy": share}
        for n, share in ((100, 0.5), (1000, 0.7))
    ]
    wanted = Crossing("labels", "accuracy", 0.6, "alpha", "all", rising=True, log_measure=False)
    assert wanted(None, scores)["all"][1.0] == [pytest.approx(10**2.5)]


def test_sizes_that_do_not_fall_with_every_larger_value() -> None:
    told = fewer({0.2: [8.0, 9.0, 9.0], 0.4: [4.0] * 3, 0.8: [math.inf] * 3}, "steps", "alpha")
    assert told.startswith("9, 4, more steps at alpha = 0.2, 0.4, 0.8, not always fewer with every")
    assert told.endswith("not found")
    assert fewer({0.2: [8.0], 0.4: [4.0]}, "steps", "alpha").endswith("fewer than 3 seeds")
