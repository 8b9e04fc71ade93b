import math
from functools import partial
from itertools import product

import numpy as np
import pytest

from graphtheory.lab.bench.rows import Row
from graphtheory.papers import claims
from graphtheory.papers import stats as trends
from graphtheory.papers.claims import Crossing, Level, Power, Trend, Turn, exponent_rows, fewer
from graphtheory.papers.stats import Successes, boundaries, boundary, halves, regression_of

CLAIM = Crossing("contexts")
FEW_DRAWS, BOUNDARIES = partial(boundary, resamples=50), partial(boundaries, resamples=30)


def curve(value: float, needed: float, seed: int) -> list[dict]:
    """Errors that fall as the length to the power -2 and are the threshold at `needed`."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": CLAIM.threshold * (needed / n) ** 2}
        for n in (5, 10, 20, 40, 80, 160)
    ]  # fmt: skip


def test_the_size_that_is_needed_and_its_exponent() -> None:
    rows = []
    for value, seed in product((0.2, 0.4, 0.8), range(3)):
        rows += curve(value, 3 * value**-1.5 * (1 + seed / 10), seed)
    needed = CLAIM(None, rows)["CoT"]
    assert needed[0.2] == pytest.approx([3 * 0.2**-1.5 * f for f in (1, 1.1, 1.2)])
    inside = CLAIM.inside(None, rows)["CoT"]
    assert list(inside) == [0.2, 0.4]  # at 0.8 the 5 examples are enough
    found = trends.regression_of(inside)
    assert found is not None and found.exponent == pytest.approx(-1.5)
    rows = [row | {"error": 0.5} for v in (0.2, 0.4) for s in range(3) for row in curve(v, 9, s)]
    assert CLAIM(None, rows) == {"CoT": {0.2: [math.inf] * 3, 0.4: [math.inf] * 3}}
    assert CLAIM.inside(None, rows) == {"CoT": {}}
    told = fewer({0.2: [8.0, 9.0, 9.0], 0.4: [4.0] * 3, 0.8: [math.inf] * 3}, "steps", "alpha")
    assert told.startswith("9, 4, more steps at alpha = 0.2, 0.4, 0.8, not always fewer with every")
    assert told.endswith("not found")
    assert fewer({0.2: [8.0], 0.4: [4.0]}, "steps", "alpha").endswith("fewer than 3 seeds")


def test_steps_on_a_straight_axis_and_a_measure_that_rises() -> None:
    losses = [
        {"case": "GT", "gamma": 0.5, "seed": seed, "step": step, "hinge": hinge}
        for seed in (0, 1)
        for step, hinge in ((20, 0.001 if seed else 1.0), (0, 1.0), (10, 0.1 if seed else 1.0))
    ]
    steps = Crossing("step", "hinge", 0.01, "gamma", "{case}", log_size=False)
    assert steps(None, losses) == {"GT": {0.5: [math.inf, pytest.approx(15.0)]}}
    about = {"alpha": 1.0, "seed": 0}
    scores = [about | {"labels": n, "accuracy": share} for n, share in ((100, 0.5), (1000, 0.7))]
    wanted = Crossing("labels", "accuracy", 0.6, "alpha", "all", rising=True, log_measure=False)
    assert wanted(None, scores)["all"][1.0] == [pytest.approx(10**2.5)]


def measured(measure, seeds: int = 4, values: tuple[float, ...] = (1, 2, 4, 8)) -> list[dict]:
    """Of two lines, "low" and "high", seeds in falling order."""
    return [
        {"line": line, "n": n, "seed": seed, "y": factor * measure(n, seed)}
        for line, factor in (("low", 1), ("high", 2))
        for seed in reversed(range(seeds))
        for n in values
    ]


def successes(half: float) -> Successes:
    """Half of 20 trials succeed at half * v^-2 labels."""
    values, labels = np.array([1.0, 2, 4]), np.geomspace(1, 256, 9)
    logit = 4 * np.log(labels[None] / (half * values[:, None] ** -2))
    return Successes(values, labels, np.round(20 / (1 + np.exp(-logit))), 20)


READ = claims.over("n", "y", "{line} line")


def test_numbers_are_read_by_line_and_setting_seeds_in_order() -> None:
    rows = [*measured(lambda n, seed: n + seed / 10, 2, (2, 1)), {"line": "empty"}]
    assert READ(None, rows) == {
        "low line": {1: [1, 1.1], 2: [2, 2.1]}, "high line": {1: [2, 2.2], 2: [4, 4.2]},
    }  # fmt: skip


def test_powers_hold_where_the_interval_contains_what_is_claimed() -> None:
    rows = measured(lambda n, seed: n**-1.5 * (1 + seed / 10))
    claim = Power(
        what="steps", letter="n", read=READ, claimed=(-1.5, -2),
        rows=lambda line, found: exponent_rows("exponent", found, case=line),
    )  # fmt: skip
    told, found = claim(None, rows)
    low, high = told.split(". high line")
    assert low.startswith("low line: steps ~ (n)^-1.50 [") and low.endswith("claimed -1.5: holds")
    assert high.endswith("claimed -2: not found.")
    assert found[0] == Row.of("exponent", found[0].value, "1", case="low line")
    assert len(found) == 6

    def say(claimed: float, rows: list[dict]) -> str:
        return Power(what="steps", letter="n", read=READ, claimed=claimed)(None, rows).text

    rows = measured(lambda n, seed: n**-1.5 * (1 + seed / 10))
    assert "claimed" not in say(math.nan, rows)
    assert say(-1.5, rows[:4]).endswith("claimed -1.5: no verdict of fewer than 3 seeds.")
    assert say(-1.5, rows[:1]) == "low line: too few steps inside the grid for an exponent."


@pytest.mark.parametrize(("claimed", "word"), [(-2.0, "holds"), (-4.0, "not found")])
def test_a_power_of_a_boundary_says_whether_it_is_one(claimed: float, word: str) -> None:
    claim = Power(
        what="labels", letter="v", read=lambda *_: {"GT": successes(64)}, fit=FEW_DRAWS,
        claimed=claimed, least=3,
    )  # fmt: skip
    assert f"{word} (a power law fits, p = " in claim(None, []).text
    few = successes(64)
    few = Successes(few.values[:2], few.labels, few.counts[:2], 20)
    assert claim.tell(FEW_DRAWS(few), 0, few).endswith("no verdict of fewer than 3 values")
    bent = successes(64)
    bent.counts[1] = bent.counts[0]
    assert "not found (no power law fits, p = " in claim.tell(claim.find(bent), 0, bent)


def test_a_trend_and_one_that_is_denied() -> None:
    rows = measured(lambda n, seed: n + seed)
    words = {"rises": "holds", "falls": "not found", "does not rise": "not found",
             "does not fall": "holds"}  # fmt: skip
    for claimed, word in words.items():
        claim = Trend(what="y", letter="n", read=READ, claimed=claimed)  # type: ignore[arg-type]
        told = f"y rises with n (1.00 [1.00, 1.00]), claimed: {claimed}: {word}"
        assert claim(None, rows).text.startswith(f"low line: {told}. high")
    flat = Trend(what="y", letter="n", read=READ, claimed="rises")
    assert "y has no trend with n" in flat(None, measured(lambda n, seed: 1.0)).text
    assert "no verdict of fewer than 3 seeds" in flat(None, measured(lambda n, seed: n, 2)).text
    assert flat.find({1.0: [1.0]}) is None and "too few values" in flat.tell(None, 0, {})
    told = Trend(what="y", letter="n", read=READ, claimed=None)(None, rows).text
    assert told.startswith("low line: y rises with n (1.00 [1.00, 1.00]). high")
    fewer = Trend(what="labels", letter="v", read=READ, claimed="falls", sample=BOUNDARIES)
    assert fewer.tell(fewer.find(successes(64)), 0, successes(64)).endswith("holds")


def test_turns_are_inside_and_levels_within_bounds() -> None:
    claim = Turn(what="error", letter="n", read=READ)
    assert claim(None, measured(lambda n, seed: (n - 4) ** 2 + seed)).text.startswith(
        "low line: error over n is lowest at 4, inside in 100 % of resamples, claimed to fall and "
        "then to rise: holds."
    )
    assert "not found" in claim(None, measured(lambda n, seed: n + seed)).text
    peak = Turn(what="accuracy", letter="n", read=READ, highest=True)
    assert peak(None, measured(lambda n, seed: 9 - (n - 4) ** 2 + seed)).text.startswith(
        "low line: accuracy over n is highest at 4, inside in 100 % of resamples, claimed to rise "
        "and then to fall: holds."
    )
    rows = measured(lambda n, seed: 1 + 0.02 * seed, 3, (1, 2))
    claim = Level(what="ratio", letter="n", read=READ, low=0.75, high=1.25)
    low, high = claim(None, rows).text.split(". high line: ")
    assert low.startswith("low line: ratio is 1.02 [1.0") and " at n = 2, claimed at least" in low
    assert low.endswith("at most 1.25: holds") and high.endswith("not found.")


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
    straight = partial(Crossing, "n", log_size=False, log_measure=False)
    assert Crossing("n", threshold=0.1**0.5).of(falling) == pytest.approx(10**0.5)
    assert straight(threshold=0.55).of(falling) == pytest.approx(5.5)
    past = [(3, 0.0), *falling[1:]]  # at the first point already
    assert straight(threshold=0.5).of(past) == 3
    assert straight(threshold=0.001).of(falling) == math.inf
    rising = Crossing("n", threshold=0.5, rising=True, log_measure=False)
    assert rising.of([(1, 0.0), (100, 1.0)]) == pytest.approx(10)
    rising = Crossing("n", threshold=0.9, rising=True)
    assert rising.of([(10, 0.8), (20, 0.95)]) == pytest.approx(16.081, abs=1e-3)
    # an error of 0 counts as a hundredth of the threshold
    steps = Crossing("n", threshold=0.1, log_size=False)
    assert steps.of([(1, 1.0), (2, 0.0)]) == pytest.approx(1 + 1 / 3)


def test_where_a_curve_passes_for_the_last_time() -> None:
    settled = Crossing("n", stays=True).of
    fall = math.log(0.1 / 0.05) / math.log(100)
    assert settled([(5, 0.4), (10, 0.1), (20, 0.001)]) == pytest.approx(10 * 2**fall)
    again = settled([(5, 0.01), (10, 0.2), (20, 0.01)])
    assert again == pytest.approx(10 * 2 ** (math.log(4) / math.log(20)))
    assert settled([(5, 0.4), (20, 0.06)]) == math.inf
    assert settled([(5, 0.0), (20, 0.0)]) == 5


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
    counts = 3 * VALUES[:, None] ** -2 * np.exp(0.1 * random.standard_normal((5, 10)))
    found = regression_of(dict(zip(VALUES.tolist(), counts.tolist(), strict=True)), resamples=200)
    assert found is not None and found.low < -2 < found.high and found.high - found.low < 0.2
    assert str(found).startswith(f"{found.exponent:.2f} [")


def test_boundaries_rise_where_more_is_needed() -> None:
    counts = np.array([[19.0, 20, 20, 20], [2, 18, 20, 20], [0, 0, 5, 20]])
    grid = Successes(np.array([1.0, 2, 4]), np.array([10.0, 20, 40, 80]), counts, 20)
    found = trends.trend([1, 2, 4], boundaries(grid, resamples=20))
    assert found.low == 1 == pytest.approx(found.value)
