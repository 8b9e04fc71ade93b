import numpy as np
import pytest

from graphtheory.papers.stats import Successes, boundaries, boundary, halves, regression, trend

VALUES = np.array([0.2, 0.3, 0.4, 0.6, 0.8])
LABELS = np.array([5.0, 8, 12, 20, 32, 50, 80, 128, 200])


def grid(exponent: float, steepness: float = 4.0, trials: int = 20, seed: int = 0) -> Successes:
    half = 6 * VALUES**exponent
    chance = 1 / (1 + (half[:, None] / LABELS) ** steepness)
    counts = np.random.default_rng(seed).binomial(trials, chance).astype(float)
    return Successes(VALUES, LABELS, counts, trials)


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.0])
def test_a_planted_exponent_lies_in_its_interval(exponent: float) -> None:
    found = boundary(grid(exponent), resamples=100)
    assert found.low < exponent < found.high
    assert found.high - found.low < 0.8 and found.misfit > 0.01
    assert found.factor * 0.5**found.exponent == pytest.approx(6 * 0.5**exponent, rel=0.2)


def test_laws_of_two_values_are_not_tested_and_no_power_law_is_told() -> None:
    whole = grid(-2.0)
    two = Successes(VALUES[::4], LABELS, whole.counts[::4], 20)
    assert np.isnan(boundary(two, resamples=20).misfit)
    bent = np.array([100.0, 10, 5, 10, 100])
    chance = 1 / (1 + (bent[:, None] / LABELS) ** 6)
    assert boundary(Successes(VALUES, LABELS, np.round(40 * chance), 40), 20).misfit < 1e-6
    assert np.isnan(boundary(Successes(VALUES, LABELS, np.zeros((5, 9)), 20), 20).exponent)


def test_half_of_the_trials_and_regression_of_counts() -> None:
    wanted = 6 * VALUES**-2.0
    np.testing.assert_allclose(halves(grid(-2.0, trials=2000)), wanted, rtol=0.05)
    counts = np.zeros((5, 9))
    counts[1] = 20
    counts[2, 4:] = 20
    half = halves(Successes(VALUES, LABELS, counts, 20))
    assert half[0] == np.inf and half[1] == 0 and 20 < half[2] < 32
    random = np.random.default_rng(1)
    values = VALUES.repeat(10)
    counts = 3 * values**-2 * np.exp(0.1 * random.standard_normal(50))
    found = regression(values.tolist(), counts.tolist(), resamples=200)
    assert found.low < -2 < found.high and found.high - found.low < 0.2
    assert str(found).startswith(f"{found.exponent:.2f} [")


def test_boundaries_rise_where_more_is_needed() -> None:
    grid = Successes(
        np.array([1.0, 2, 4]),
        np.array([10.0, 20, 40, 80]),
        np.array([[19.0, 20, 20, 20], [2, 18, 20, 20], [0, 0, 5, 20]]),
        20,
    )
    found = trend([1, 2, 4], boundaries(grid, resamples=20))
    assert found.low == 1 == pytest.approx(found.value)
