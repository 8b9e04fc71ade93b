import math
from functools import partial

import numpy as np
import pytest

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.claims import (
    Crossing,
    Level,
    Power,
    Trend,
    Turn,
    exponent_rows,
    fewer,
    over,
)
from graphtheory.papers.stats import Successes, boundaries, boundary, regression_of

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
    scores = [
        {"alpha": 1.0, "seed": 0, "labels": n, "accuracy": share}
        for n, share in ((100, 0.5), (1000, 0.7))
    ]
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


READ = over("n", "y", "{line} line")


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
        assert claim(None, rows).text.startswith(
            f"low line: y rises with n (1.00 [1.00, 1.00]), claimed: {claimed}: {word}. high"
        )
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
