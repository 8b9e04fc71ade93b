"""The figures of projection heads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.papers.fusion.figures import FIGURES, Heads, ahead_of_others, chosen, gains, scores
from graphtheory.papers.fusion.recipe import ContrastiveRecipe

TINY = ContrastiveRecipe(depth=2, width=16, heads=2, batch_size=16, epochs=1, limit=1)
BY_ID = {figure.id: figure for figure in FIGURES}


def row(head: str, lr: float, seed: int, val: float, probe: float) -> dict[str, Any]:
    return {"head": head, "at": None, "lr": lr, "seed": seed, "val": val, "probe": probe}


def test_validation_chooses_the_step_size_and_a_verdict_has_its_pairs_as_rows() -> None:
    rows = [row("mlp", lr, s, val, probe)
            for lr, val, probe in ((0.1, 0.8, 0.5), (0.3, 0.7, 0.9)) for s in (0, 1)]  # fmt: skip
    assert {r["lr"] for r in chosen(rows)["mlp", None]} == {0.1}
    rows = [row("transformer", 0.1, s, 0, 0.5 + s / 10) for s in range(3)]
    rows += [row("mlp", 0.1, s, 0, 0.4 + s / 10) for s in range(3)]
    assert gains(chosen(rows), "probe") == pytest.approx([10, 10, 10])
    grid = replace(BY_ID["deep-fusion-heads"].grid, recipe=TINY, heads=("transformer", "mlp"))
    rows = [row("transformer", 0.1, s, 0, 0.5 + s / 10) | {"nearest": 0.2} for s in range(2)]
    rows += [row("mlp", 0.1, s, 0, 0.4) | {"nearest": 0.3} for s in range(2)]
    verdict = ahead_of_others(grid, rows)
    assert "linear probe +15.0 (± 63.5), 1-nearest neighbor -10.0 (± 0.0, behind)" in verdict.text
    probe, nearest = verdict.rows
    assert probe.name == "paired difference of linear probe" and probe.unit == "points"
    assert probe.value == pytest.approx(15) and nearest.value == pytest.approx(-10)
    of_one_seed = ahead_of_others(grid, [rows[0], rows[2]])
    assert "linear probe +10.0 (one seed), 1-nearest neighbor -10.0 (one seed)" in of_one_seed.text


@pytest.mark.usefixtures("few_images")
def test_a_backbone_as_drawn_is_scored_once_per_seed_and_its_norms_follow_from_it() -> None:
    grid = Heads(TINY, heads=("untrained",), seeds=1)
    (row,) = grid.measure(scores)
    assert row["lr"] == grid.lrs[0] and 0.1 < row["nearest"] <= 1
    pytest.importorskip("transformers")  # the ResNet is its
    grid = Heads(replace(TINY, encoder="resnet18"), heads=("untrained",), seeds=1)
    assert grid.measure(scores) == grid.measure(scores)


def test_cells_settings_and_step_sizes_of_each_figure() -> None:
    grid = replace(BY_ID["deep-fusion-temperature"].grid, recipe=TINY, seeds=2)
    assert len(grid.cells()) == len({str(grid.key(cell)) for cell in grid.cells()}) == 7 * 2 * 2
    assert {cell["at"] for cell in grid.cells()} == set(grid.values)
    figure = BY_ID["deep-fusion-cifar"]
    for name in ("cifar10", "cifar10-jpeg"):
        recipe = figure.settings(name).recipe
        assert (recipe.dataset, recipe.encoder, recipe.epochs) == (name, "resnet20", 10)
        assert recipe.limit is None
    quick = figure.settings("cifar10-jpeg", quick=True)
    assert (quick.recipe.epochs, quick.recipe.limit, quick.seeds) == (1, 2, 1)
    figure = BY_ID["deep-fusion-graphs"]
    cora, facebook = (figure.settings(name, Path("x")) for name in ("Cora", "facebook"))
    assert len(cora.lrs) == 2 and facebook.lrs == (1e-3,) and facebook.dataset == "facebook"
    assert cora.root == Path("x") and "root" not in cora.key(cora.cells()[0])
