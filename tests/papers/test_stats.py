import math

import numpy as np
import pytest

from graphtheory.papers import stats as trends
from graphtheory.papers.stats import crossing


def test_intervals_of_student_of_few_seeds_and_of_means() -> None:
    assert trends.student_interval([1.0, 3.0]) == (2, pytest.approx(12.7062, rel=1e-4))
    assert math.isnan(trends.student_interval([1.0])[1])
    inf = float("inf")
    by = {2: [1.0, 2.0, 6.0], 1: [1.0, 1.0, 1.0]}
    assert trends.means(by | {3: [1.0, 2.0, inf]})[0].tolist() == [1, 3, inf]
    still, wide = trends.levels(trends.means(by))
    assert (still.value, still.low, still.high) == (1, 1, 1)
    assert wide.value == 3 and 1 <= wide.low < 3 < wide.high <= 6
    paired = {v: [100.0 * s + v for s in range(3)] for v in (1.0, 2.0)}
    assert trends.trend([1, 2], trends.means(paired)).low == 1


def test_trends_and_turns_are_as_sure_as_their_seeds() -> None:
    sure = {v: [v + s for s in range(5)] for v in (3.0, 1.0, 2.0)}
    found = trends.trend([1, 2, 3], trends.medians(sure))
    assert (found.value, found.low, found.high, found.direction) == (1, 1, 1, "rises")
    falls = trends.trend([1, 2, 3], trends.medians({v: [-v, -2 * v] for v in (1.0, 2.0, 3.0)}))
    assert falls.direction == "falls" and str(falls) == "-1.00 [-1.00, -1.00]"
    random = np.random.default_rng(0).normal(size=(4, 5))
    unsure = trends.trend([1, 2, 3, 4], trends.medians(dict(enumerate(random.tolist()))))
    assert unsure.low < 0 < unsure.high and unsure.direction == "no trend"
    flat = trends.trend([1, 2], trends.medians({1: [1.0], 2: [1.0]}))
    assert flat.value == 0 and flat.direction == "no trend"
    bowl = {v: [(v - 2) ** 2 + 0.1 * s for s in range(4)] for v in (1.0, 2.0, 4.0)}
    found = trends.lowest([1, 2, 4], trends.medians(bowl))
    assert found.at == 2 and found.holds
    slope = trends.lowest([1, 2, 4], trends.medians({v: [v, v + 1] for v in (1.0, 2.0, 4.0)}))
    assert slope.at == 1 and slope.inside == 0 and not slope.holds


def test_seeds_stay_together_and_trials_without_a_measure_do_not_count() -> None:
    """Seeds differ by 100 and settings by 1: only differences within a seed tell the trend."""
    paired = {v: [100 * s + v for s in range(6)] for v in (1.0, 2.0)}
    assert trends.trend([1, 2], trends.medians(paired)).low == 1
    nan = float("nan")
    whole, drawn = trends.medians({1: [1.0, nan, 3.0], 2: [nan, nan, 5.0]}, resamples=50)
    assert whole.tolist() == [2, 5] and set(drawn[:, 0]) <= {1, 2, 3} and set(drawn[:, 1]) == {5}


def test_where_a_curve_passes() -> None:
    falling = [(1, 1.0), (10, 0.1), (100, 0.01)]
    assert crossing(falling, 0.1**0.5, log_x=True, log_y=True) == pytest.approx(10**0.5)
    assert crossing(falling, 0.55) == pytest.approx(5.5)
    assert crossing([(3, 0.0), *falling[1:]], 0.5) == 3  # past it at the first point
    assert crossing(falling, 0.001) == math.inf
    rising = [(1, 0.0), (100, 1.0)]
    assert crossing(rising, 0.5, rising=True, log_x=True) == pytest.approx(10)
    # an error of 0 counts as a hundredth of the threshold
    assert crossing([(1, 1.0), (2, 0.0)], 0.1, log_y=True) == pytest.approx(1 + 1 / 3)


def test_where_a_curve_passes_for_the_last_time() -> None:
    def settled(curve: list[tuple[float, float]]) -> float:
        return crossing(curve, 0.05, log_x=True, log_y=True, stays=True)

    fall = math.log(0.1 / 0.05) / math.log(100)
    assert settled([(5, 0.4), (10, 0.1), (20, 0.001)]) == pytest.approx(10 * 2**fall)
    again = settled([(5, 0.01), (10, 0.2), (20, 0.01)])
    assert again == pytest.approx(10 * 2 ** (math.log(4) / math.log(20)))
    assert settled([(5, 0.4), (20, 0.06)]) == math.inf
    assert settled([(5, 0.0), (20, 0.0)]) == 5
