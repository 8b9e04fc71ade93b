from dataclasses import replace
from typing import Any

import pytest
import torch

from graphtheory.papers.mixture import image_study as groups
from graphtheory.papers.mixture.image_groups import Grouped, TwoKinds
from graphtheory.papers.mixture.image_study import BRIGHT, FAINT, STUDIES, Recipe
from graphtheory.papers.stats import Correlation, Minimum
from tests.bench.conftest import nearly

TINY = Recipe(total=40, copies=5, epochs=1, batch_size=20, widths=(4,))


def row(kind: str, value: float, seed: int, error: float) -> dict[str, Any]:
    return {"kind": kind, "value": value, "seed": seed, "minority": error}


def test_rows_are_of_each_minority_setting_and_seed() -> None:
    study = replace(STUDIES["fig-4-8"], values=(0.1, 0.5), seeds=1, recipe=TINY)
    rows = study.run()
    assert [(r["kind"], r["value"]) for r in rows] == [
        ("bright", 0.1), ("bright", 0.5), ("faint", 0.1), ("faint", 0.5),
    ]  # fmt: skip
    for r in rows:
        assert r["average"] == pytest.approx((r["minority"] + r["majority"]) / 2)
        assert 0 < r["average"] < 1
    assert rows[3]["norms"] == rows[1]["norms"][::-1]  # half and half: the same images
    assert study.run() == nearly(rows)


def test_a_fraction_moves_images_and_noise_adds_copies() -> None:
    pixels = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8)
    images, kinds = (pixels, torch.arange(60)), TwoKinds.of(pixels)
    study = replace(STUDIES["fig-4-8"], recipe=TINY)
    made = study.examples(kinds, images, FAINT, 0.1, 0)
    assert made.group.bincount().tolist() == [36, 4]
    turned = study.examples(kinds, images, BRIGHT, 0.1, 0)
    assert turned.group.bincount().tolist() == [4, 36] and torch.equal(turned.y, made.y)
    noisy = replace(STUDIES["fig-4-1"], recipe=TINY)
    few, many = (noisy.examples(kinds, images, FAINT, v, 0) for v in (0.0, 100.0))
    assert few.group.bincount().tolist() == [32, 8 + 5]
    assert torch.equal(few.x[:40], many.x[:40]) and float((many.x - few.x)[40:].std()) > 5


def test_a_network_learns_and_errors_are_of_each_group() -> None:
    y = torch.arange(64) % 2
    x = torch.where(y == 1, 1.0, -1.0)[:, None, None, None].expand(64, 1, 4, 4).contiguous()
    examples = Grouped(x, y, torch.arange(64) // 32)
    recipe = replace(TINY, epochs=20, widths=(8,))
    net = groups.learn(examples, recipe, 0)
    assert groups.errors(net, examples) == [0, 0]
    wrong = examples._replace(y=torch.where(examples.group == 1, 1 - y, y))
    assert groups.errors(net, wrong) == [0, 1]


def test_verdicts_of_noise_and_of_the_two_minorities() -> None:
    noise = STUDIES["fig-4-1"]
    bowl = [row("faint", v, s, e + s / 100) for v, e in ((0, 0.3), (1, 0.1), (9, 0.2))
            for s in range(3)]  # fmt: skip
    found, holds = groups.verdict(noise, bowl, "faint", "minority")
    assert isinstance(found, Minimum) and found.at == 1 and holds
    fraction = STUDIES["fig-4-8"]
    falls = [row(kind, v, s, 0.5 - v / 10) for kind in ("bright", "faint") for v in (0, 1, 3)
             for s in range(3)]  # fmt: skip
    found, holds = groups.verdict(fraction, falls, "faint", "minority")
    assert isinstance(found, Correlation) and found.direction == "falls" and holds
    assert not groups.verdict(fraction, falls, "bright", "minority")[1]


def test_the_larger_set_and_the_first_look_are_smaller_in_seeds() -> None:
    study = groups.on("fig-4-8", "mnist", "x")
    assert study.recipe.total == 5000 and study.root == "x"
    assert study.seeds < STUDIES["fig-4-8"].seeds
    assert len(groups.quick(study).steps()) < len(study.steps())
