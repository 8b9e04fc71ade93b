"""Figures 4.1 to 4.8: rows, verdicts, and the mixtures that they vary."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory.papers.figure import figures
from graphtheory.papers.mixture import figures_images, figures_samples
from graphtheory.papers.mixture.figures import rates, risks
from graphtheory.papers.mixture.figures_images import TwoKinds, covariance_norm, with_noisy_copies
from graphtheory.papers.mixture.figures_samples import FAR, NEAR, TENSOR, Samples, found_of, spreads
from graphtheory.papers.mixture.mixtures import Counted, Letter, Mixtures, ends, varied
from graphtheory.papers.mixture.model import weight_error
from graphtheory.papers.mixture.training import Learner, Setting, draw
from tests.lab.bench.conftest import nearly
from tests.papers.conftest import drawn, entries

BY_ID = figures()
SMALL = Setting(dim=2, neurons=1)


def row(value: float, seed: int, **entries: Any) -> dict[str, Any]:
    return {"learner": "a", "value": value, "seed": seed, "ended": True} | entries


def test_rows_of_rates_and_risks() -> None:
    learners = (Learner(factor=8.0, steps=60),)
    rows = Mixtures("means", learners, (0.1, 1.0), SMALL, 400, 2).measure(rates)
    assert [(r["value"], r["seed"]) for r in rows] == [(0.1, 0), (0.1, 1), (1.0, 0), (1.0, 1)]
    for r in rows:
        assert 0 < r["rate"] < 1 and r["ended"] and r["gap"][-1] < r["gap"][0]
        assert r["straight"] > 0.99 and len(r["steps"]) == len(r["gap"]) == 61
    rows = Mixtures("n", (Learner(steps=6),), (40, 400), SMALL, seeds=1).measure(risks)
    assert [r["n"] for r in rows] == [40, 400]
    assert all(0 < r["excess"] < r["average"] and r["off"] > 0 for r in rows)


def holds(figure: str, rows: list[dict[str, Any]], claim: int = 0) -> bool:
    text = BY_ID[figure].claims[claim](BY_ID[figure].grid, rows).text
    return text.endswith("holds.")


def test_verdicts_and_what_is_told_beside_them() -> None:
    rows = [row(k, s, rate=1 - 0.1 * (1 + 0.1 * s) / k**2) for k in (2, 3, 5) for s in range(3)]
    assert holds("fig-4-5a", rows)
    assert "1 - v ~ (K)^-2.00" in BY_ID["fig-4-5a"].claims[0](BY_ID["fig-4-5a"].grid, rows).text
    slower = [row(k, s, rate=1 - 0.1 / k) for k in (2, 3, 5) for s in range(3)]
    assert not holds("fig-4-5a", slower)
    rising = [row(v, s, average=v + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    assert not holds("fig-4-7a", rising) and holds("fig-4-7b", rising)
    assert not holds("fig-4-6a", rising)
    bowl = [row(v, s, average=abs(v - 0.2) + s) for v in (0.0, 0.2, 0.5) for s in range(3)]
    assert holds("fig-4-6a", bowl)
    figure = BY_ID["fig-4-5a"]
    rows = [
        row(k, s, rate=0.9, straight=0.99, ended=k < 5 and (k, s) != (2, 0), steps=[0], gap=[1.0])
        for k, s in product((2, 3, 4, 5), range(8))
    ]
    told = " ".join(claim(figure.grid, rows).text for claim in figure.claims)
    assert "a: log distances are straight lines with R^2 of at least 0.990." in told
    assert "a: 72 % of trials end at a minimum; 7 of 8 seeds do so at every value but K = 5" in told


def images(count: int = 40) -> tuple[Tensor, Tensor]:
    pixels = torch.randint(0, 256, (count, 1, 3, 3), dtype=torch.uint8, generator=drawn(1))
    return pixels, torch.arange(count) % 2


def test_both_kinds_of_images_and_no_image_in_both_groups() -> None:
    pixels, y = images()
    found = TwoKinds.of(pixels).both(pixels, y)
    bright, faint = (found.x[found.of(group)] for group in range(2))
    torch.testing.assert_close(faint[:, 0, 0, 0], bright[:, 0, 0, 2] / 2)  # a quarter to the left
    torch.testing.assert_close(bright.mean(0), torch.zeros(1, 3, 3), atol=1e-5, rtol=0)
    assert float(bright.square().mean()) == pytest.approx(1, abs=1e-4)
    assert covariance_norm(bright) == pytest.approx(4 * covariance_norm(faint), rel=1e-5)
    cov = bright.flatten(1).t().cov(correction=0)
    assert covariance_norm(bright) == pytest.approx(float(torch.linalg.eigvalsh(cov)[-1]), rel=1e-4)
    assert torch.equal(found.y, torch.cat([y, y]))
    pixels, _ = images()
    kinds = TwoKinds(torch.zeros(1, 3, 3), 1.0)
    found = kinds.draw(pixels, torch.arange(40), (25, 10), drawn())
    assert found.group.bincount().tolist() == [25, 10]
    assert len(set(found.y.tolist())) == 35
    torch.testing.assert_close(found.x[:25], pixels[found.y[:25]].float())
    fewer = kinds.draw(pixels, torch.arange(40), (30, 5), drawn())
    assert torch.equal(fewer.y, found.y)
    with pytest.raises(ValueError, match=r"counts: got \(30, 11\), expected 0 or more, 40 at most"):
        kinds.draw(pixels, torch.arange(40), (30, 11), drawn())


def test_copies_have_the_noise_and_the_rest_has_none() -> None:
    ids = torch.arange(60)
    given = figures_images.Grouped(torch.zeros(60, 1, 9, 9), ids, ids // 40)
    found = with_noisy_copies(given, 1, 15, 4.0, drawn())
    assert torch.equal(found.x[:60], given.x) and len(found.x) == 75
    assert float(found.x[60:].std()) == pytest.approx(2, abs=0.1)
    assert found.group[60:].tolist() == [1] * 15
    chosen = found.y[60:].tolist()
    assert len(set(chosen)) == 15 and min(chosen) >= 40
    twice = with_noisy_copies(given, 1, 15, 1.0, drawn())
    torch.testing.assert_close(2 * twice.x, found.x)
    with pytest.raises(ValueError, match="copies: got 21, expected 0 to 20"):
        with_noisy_copies(given, 1, 21, 1.0, drawn())
    with pytest.raises(ValueError, match="variance: got -1"):
        with_noisy_copies(given, 1, 2, -1.0, drawn())


def test_a_network_learns_and_errors_are_of_each_group() -> None:
    y = torch.arange(64) % 2
    x = torch.where(y == 1, 1.0, -1.0)[:, None, None, None].expand(64, 1, 4, 4).contiguous()
    examples = figures_images.Grouped(x, y, torch.arange(64) // 32)
    recipe = replace(figures_images.Recipe(), epochs=20, batch_size=20, widths=(8,))
    net = figures_images.learn(examples, recipe, 0)
    assert figures_images.errors(net, examples) == [0, 0]
    wrong = examples._replace(y=torch.where(examples.group == 1, 1 - y, y))
    assert figures_images.errors(net, wrong) == [0, 1]


TINY = figures_images.Recipe(total=40, copies=5, epochs=1, batch_size=20, widths=(4,))
NOISE, FRACTION = figures_images.FIGURES


def rows_of(kind: str, error: dict[float, float]) -> list[dict[str, Any]]:
    """The minority does worse with the seed."""
    return [
        {"kind": kind, "value": value, "seed": seed, "minority": e + seed / 100, "average": e,
         "majority": e, "norms": [1.0, 4.0]}
        for value, e in error.items() for seed in range(3)
    ]  # fmt: skip


def test_rows_are_of_each_minority_setting_and_seed() -> None:
    grid = replace(FRACTION.grid, values=(0.1, 0.5), seeds=1, recipe=TINY)
    rows = grid.measure(figures_images.group_errors)
    assert entries(rows, "kind", "value") == [*product(("bright", "faint"), (0.1, 0.5))]
    for r in rows:
        assert r["average"] == pytest.approx((r["minority"] + r["majority"]) / 2)
        assert 0 < r["average"] < 1
    assert rows[3]["norms"] == rows[1]["norms"][::-1]  # half and half: the same images
    assert grid.measure(figures_images.group_errors) == nearly(rows)


def test_a_fraction_moves_images_and_noise_adds_copies() -> None:
    pixels = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8)
    images, kinds = (pixels, torch.arange(60)), TwoKinds.of(pixels)
    grid = replace(FRACTION.grid, recipe=TINY)
    made = grid.examples(kinds, images, "faint", 0.1, 0)
    assert made.group.bincount().tolist() == [36, 4]
    turned = grid.examples(kinds, images, "bright", 0.1, 0)
    assert turned.group.bincount().tolist() == [4, 36] and torch.equal(turned.y, made.y)
    noisy = replace(NOISE.grid, recipe=TINY)
    few, many = (noisy.examples(kinds, images, "faint", v, 0) for v in (0.0, 100.0))
    assert few.group.bincount().tolist() == [32, 8 + 5]
    assert torch.equal(few.x[:40], many.x[:40]) and float((many.x - few.x)[40:].std()) > 5


def test_verdicts_of_noise_and_of_the_two_minorities() -> None:
    for of, holds in (((0.3, 0.1, 0.2), True), ((0.1, 0.2, 0.3), False)):
        rows = rows_of("faint", dict(zip((0.0, 1.0, 9.0), of, strict=True)))
        report = NOISE.report(replace(NOISE.grid, values=(0.0, 1.0, 9.0)), rows)
        assert f"highest at {1 if holds else 0}, inside in {100 * holds} %" in report.verdict
        assert report.verdict.count("holds" if holds else "not found") == 2
        assert "|Sigma| of the faint minority in training is 1.0 at 0" in report.verdict
    assert report.table.rows[0][0] == "faint minority, the minority"
    assert report.rows[0].value == pytest.approx(0.89) and len(report.rows) == 9
    falling = {0.0: 0.5, 1.0: 0.4, 3.0: 0.2}
    rows = rows_of("bright", falling) + rows_of("faint", falling)
    bright, faint = (claim(FRACTION.grid, rows).text for claim in FRACTION.claims[:2])
    assert "bright minority, both groups: accuracy rises with fraction" in bright
    assert bright.count("claimed: falls: not found") == 2 and "holds" not in bright
    assert faint.count("(1.00 [1.00, 1.00]), claimed: rises: holds") == 2


def test_the_larger_set_and_the_first_look_have_fewer_seeds() -> None:
    grid = FRACTION.settings("MNIST", Path("x"))
    assert grid.recipe.total == 5000 and grid.root == Path("x") and grid.dataset == "mnist"
    assert grid.seeds < FRACTION.grid.seeds == FRACTION.settings("digits").seeds


LEARNERS = (Learner(steps=60),)


def test_success_is_a_small_spread_of_starts() -> None:
    small = Setting(dim=2, neurons=1)
    rows = Samples("d", LEARNERS, (2,), small, seeds=2, counts=(40, 400), starts=3).measure(spreads)
    assert [(r["n"], r["seed"]) for r in rows] == [(40, 0), (40, 1), (400, 0), (400, 1)]
    assert all(r["spread"] < 1e-4 for r in rows)
    grid = Samples("d", LEARNERS, (3,), Setting(neurons=3), 0, 3, 5, (60,), 3)
    few = grid.measure(spreads)
    assert max(r["spread"] for r in few) > 1e-3 and few[0]["seed"] == 5
    grid = Samples("d", LEARNERS, (2, 4), seeds=2, counts=(10, 20))
    rows = [
        row(d, seed, n=n, spread=spread)
        for d, n, spreads in ((2, 10, (0, 1)), (2, 20, (1e-3, 0)), (4, 10, (1, 1)), (4, 20, (1, 0)))
        for seed, spread in enumerate(spreads)
    ]
    assert figures_samples.successes(grid, rows)["a"].counts.tolist() == [[1, 2], [0, 1]]


def test_rows_of_starts_and_the_error_of_the_tensor_start() -> None:
    skew = Setting((-0.3, 0.0), dim=4, neurons=2)
    grid = Mixtures("sigma", (Learner(steps=6),), (1.0,), skew, 300, 1)
    rows = grid.measure(figures_samples.paths)
    assert [r["start"] for r in rows] == [TENSOR, figures_samples.PRINTED, NEAR, FAR]
    near, far = rows[2:]
    assert near["error"][0] < 0.1 < 1 < far["error"][0]
    assert near["steps"][-1] == 6 and len(near["error"]) == len(near["gap"]) == 7
    again = [r["error"] for r in grid.measure(figures_samples.paths)]
    assert again == nearly([r["error"] for r in rows])
    # At a tenth of the dimension and of the examples.
    trial = draw(Setting((-0.3, 0.0), (2.0, 2.0), dim=5, neurons=2, size=0.3), 20_000, 0)
    found = figures_samples.starting_points(trial, 0.1, 0)
    error = {k: float(weight_error(w, trial.teacher) / trial.teacher.norm())
             for k, w in found.items()}  # fmt: skip
    assert error[TENSOR] < 0.65 < error[figures_samples.PRINTED]


def test_what_the_starts_say() -> None:
    rows: list[dict[str, Any]] = [
        {"start": start, "seed": seed, "value": 4.0, "error": [first, last], "rate": rate,
         "ended": True}
        for seed, shift in enumerate((0.0, 0.02, 0.04))
        for start, first, last, rate in (
            (TENSOR, 0.58 + shift, 0.3, 0.99), (NEAR, 0.1, 0.1, 0.989), (FAR, 70.0, 60.0, 0.9999),
        )
    ]  # fmt: skip
    error, speed, far = found_of(rows, 4.0)
    assert error.spread == pytest.approx((0.6, 0.58, 0.62))
    assert speed.spread == pytest.approx((0.909,) * 3, abs=1e-3)
    assert far.spread[0] == 60 and error.holds and speed.holds and far.holds

    def holds(given: list[dict[str, Any]]) -> list[bool]:
        return [found.holds for found in found_of(given, 4.0)]

    slow = [r | {"rate": 0.999} if r["start"] == TENSOR else r for r in rows]
    assert holds(slow) == [True, False, True]
    nowhere = [r | {"ended": False} for r in rows]
    assert holds(nowhere) == [True, False, True]
    assert math.isnan(found_of(nowhere, 4.0)[1].spread[0])
    told = "not defined, because the near start reaches no minimum: not found"
    assert told in str(found_of(nowhere, 4.0)[1])
    lost = [r | {"rate": math.nan, "error": [1.0, 0.2]} for r in rows]
    assert holds(lost) == [False, False, False]


@pytest.mark.parametrize(
    ("letter", "value", "wanted"),
    [
        ("d", 7, {"dim": 7}),
        ("K", 2, {"neurons": 2}),
        ("n", 2000, {}),
        ("mean 1", 0.5, {"means": (0.5, -1.0)}),
        ("mean 2", 0.5, {"means": (1.0, 0.5)}),
        ("means", 0.5, {"means": (0.5, -0.5)}),
        ("sigma 1", 4.0, {"deviations": (2.0, 1.0)}),
        ("sigma 2", 4.0, {"deviations": (1.0, 2.0)}),
        ("sigma", 4.0, {"deviations": (2.0, 2.0)}),
        ("lambda 2", 0.2, {"weights": (0.8, 0.2)}),
    ],
)
def test_one_letter_changes(letter: Letter, value: float, wanted: dict[str, object]) -> None:
    assert vars(varied(Setting(), letter, value)) == vars(Setting()) | wanted


def test_what_is_shown_and_the_norm_of_a_turned_spread() -> None:
    assert BY_ID["fig-4-6b"].grid.shown(-2.0) == pytest.approx(2 * 5**0.5)
    assert BY_ID["fig-4-5b"].grid.shown(2000) == pytest.approx(math.log(2000) / 2000)
    assert BY_ID["fig-4-7a"].grid.shown(0.3) == 0.3
    grid = BY_ID["fig-4-6b"].grid
    assert grid.places == sorted(grid.places) and ends(grid.values) == (0.0, -2.0, -4.0)
    assert ends((1.0, 2.0)) == (1.0, 2.0)
    made = varied(Setting(turned=True), "sigma", 3.0)
    spread = draw(made, 3, 0, torch.float64).mixture.covariances
    assert float(torch.linalg.matrix_norm(spread[0], 2)) == pytest.approx(3)


def verdict(name: str, rows: list[dict]) -> str:
    return BY_ID[name].claims[0](BY_ID[name].grid, rows).text


def test_the_same_seeds_count_at_every_value_with_a_risk_and_a_rate_where_it_is_a_number() -> None:
    grid, root = BY_ID["fig-4-4a"].grid, 5**0.5
    rows = [
        row(v, s, rate=10 * v + s, ended=(s < 2 if v == 2 else not (v == 1 and s == 1)))
        for v, s in product((0.5, 1.0, 2.0), range(5))
    ]
    read = Counted("rate")
    assert read(grid, rows)["a"] == {0.5 * root: [5, 7, 8, 9], root: [10, 12, 13, 14]}
    few = [r for r in rows if r["value"] < 2 and r["seed"] < 3]  # two seeds at both values
    assert read(grid, few)["a"] == {0.5 * root: [5, 7], root: [10, 12]}
    assert "no verdict of fewer than 3 seeds" in verdict("fig-4-4a", few)
    shown = BY_ID["fig-4-4a"].show(grid, [r | {"straight": 1.0} for r in few])
    assert shown.table.rows[0][-1] == "-" and "rho" not in {r.name for r in shown.rows}
    grid = BY_ID["fig-4-6a"].grid
    rows = [row(v, s, average=v, ended=s == 0) for v in (0.1, 2.0) for s in range(3)]
    read = Counted("average", everywhere=True)
    assert read(grid, rows)["a"] == {0.1: [0.1] * 3, 2.0: [2.0] * 3}
    rates = [row(1.0, s, rate=math.nan if s == 1 else 0.9) for s in range(3)]
    assert Counted("speed")(grid, rates)["a"] == {1.0: [pytest.approx(0.1)] * 2}


def test_a_trend_is_one_within_seeds() -> None:
    rows = [  # each seed alike everywhere; those of a small rate end at small values alone
        row(v, s, rate=float(s), ended=abs(s - 2 * i) <= 3)
        for (i, v), s in product(enumerate((0.1, 0.5, 1.0, 1.5, 2.0)), range(12))
    ]
    assert "holds" not in verdict("fig-4-4a", rows)
    cells = product((0.0, 0.1, 0.2, 0.3), range(11))
    rows = [row(v, s, average=100.0 * ((7 * s) % 11) + v) for v, s in cells]
    assert "rises with lambda_2 (1.00 [1.00, 1.00])" in verdict("fig-4-7b", rows)
