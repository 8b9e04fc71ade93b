"""Figures 4.1 and 4.8."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory.papers.mixture.figures_images import (
    FIGURES,
    Grouped,
    Recipe,
    TwoKinds,
    covariance_norm,
    errors,
    group_errors,
    learn,
    with_noisy_copies,
)
from tests.lab.bench.conftest import nearly
from tests.papers.conftest import drawn


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
    given = Grouped(torch.zeros(60, 1, 9, 9), torch.arange(60), torch.arange(60) // 40)
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
    examples = Grouped(x, y, torch.arange(64) // 32)
    recipe = replace(Recipe(), epochs=20, batch_size=20, widths=(8,))
    net = learn(examples, recipe, 0)
    assert errors(net, examples) == [0, 0]
    wrong = examples._replace(y=torch.where(examples.group == 1, 1 - y, y))
    assert errors(net, wrong) == [0, 1]


TINY = Recipe(total=40, copies=5, epochs=1, batch_size=20, widths=(4,))
NOISE, FRACTION = FIGURES


def rows_of(kind: str, error: dict[float, float]) -> list[dict[str, Any]]:
    """The minority does worse with the seed."""
    return [
        {"kind": kind, "value": value, "seed": seed, "minority": e + seed / 100, "average": e,
         "majority": e, "norms": [1.0, 4.0]}
        for value, e in error.items() for seed in range(3)
    ]  # fmt: skip


def test_rows_are_of_each_minority_setting_and_seed() -> None:
    grid = replace(FRACTION.grid, values=(0.1, 0.5), seeds=1, recipe=TINY)
    rows = grid.measure(group_errors)
    assert [(r["kind"], r["value"]) for r in rows] == [
        ("bright", 0.1), ("bright", 0.5), ("faint", 0.1), ("faint", 0.5),
    ]  # fmt: skip
    for r in rows:
        assert r["average"] == pytest.approx((r["minority"] + r["majority"]) / 2)
        assert 0 < r["average"] < 1
    assert rows[3]["norms"] == rows[1]["norms"][::-1]  # half and half: the same images
    assert grid.measure(group_errors) == nearly(rows)


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
