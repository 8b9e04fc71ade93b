"""Figures of projection heads, of their attention and of Theorems 1 and 2."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphtheory.lab.cli import main
from graphtheory.papers.figure import Figure
from graphtheory.papers.fusion import figures_attention
from graphtheory.papers.fusion.figures import FIGURES, Heads, ahead_of_others, chosen, gains, scores
from graphtheory.papers.fusion.figures_attention import FIGURES as OF_ATTENTION
from graphtheory.papers.fusion.figures_attention import Depths, attention, attention_by_depth
from graphtheory.papers.fusion.figures_theorem import FIGURES as OF_THEOREMS
from graphtheory.papers.fusion.figures_theorem import Theorems, draws, subspaces
from graphtheory.papers.fusion.recipe import ContrastiveRecipe, prepare
from tests.papers.conftest import entries

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
    grid = Heads(replace(TINY, encoder="resnet20"), heads=("untrained",), seeds=1)
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


def test_attention_by_depth_draws_a_panel_a_map_and_a_measure() -> None:
    alike = {"labels": [0, 0, 1, 1], "weights": np.full((4, 4), 0.25)}
    maps = [alike | {"layer": layer} for layer in (1, 3)]
    rows = [
        {"series": series, "layer": layer, "mass": 0.1 * layer, "means": 1.0, "uniform": 1 / 3}
        for series, layer in product(("after", "before"), (1, 2, 3))
    ]
    figure = attention_by_depth(maps, rows, {"mass": "mass", "means": "means"}, title="t")
    titles = [axes.get_title(loc="left") for axes in figure.get_axes()]
    assert titles[:2] == ["layer 1", "layer 3"]
    lower = [axes for axes in figure.get_axes() if axes.get_xlabel() == "layer"]
    assert [axes.get_ylabel() for axes in lower] == ["mass", "means"]
    assert [len(axes.get_lines()) for axes in lower] == [3, 2]  # uniform beside the mass
    with pytest.raises(ValueError, match="maps: no rows"):
        attention_by_depth([], rows, {"mass": "mass"})


def test_attention_is_measured_before_and_after_and_drawn_in_order_of_class() -> None:
    rows = Depths(TINY, seeds=1, samples=40).measure(attention)
    measured = [r for r in rows if r["kind"] != "map"]
    assert entries(measured, "kind", "layer") == [*product(("drawn", "learned"), (1, 2))]
    assert measured[0]["mass"] != measured[2]["mass"]
    maps = [r for r in rows if r["kind"] == "map"]
    assert [r["layer"] for r in maps] == [1, 2]
    assert maps[0]["labels"] == sorted(maps[0]["labels"])
    assert sum(maps[0]["weights"][3]) == pytest.approx(1, abs=1e-3)
    growth = measured[3]["mass"] - measured[2]["mass"]
    assert figures_attention.slopes(rows, "learned", "mass") == [pytest.approx(growth)]


def test_digits_are_learned_for_longer_than_larger_images() -> None:
    digits, mnist = (OF_ATTENTION[0].settings(name).recipe for name in ("digits", "mnist"))
    assert (digits.epochs, mnist.epochs) == (160, 20)
    assert digits.depth == mnist.depth == 10 and mnist.limit == 20


@pytest.mark.parametrize("figure", OF_ATTENTION[1:], ids=lambda figure: figure.id)
def test_the_long_ones_take_as_many_updates_on_every_set(figure: Figure) -> None:
    batches = prepare(figure.settings("digits").recipe, 0).data.count
    digits, mnist = (figure.settings(name).recipe for name in ("digits", "mnist"))
    assert batches * digits.epochs == mnist.limit * mnist.epochs == 10_000
    assert digits.norm_first == mnist.norm_first == (not figure.id.endswith("post-norm"))


@pytest.mark.parametrize(
    ("slope", "found"), [(0.1, "found"), (-0.1, "not found: it falls"), (0.0, "not decided")]
)
def test_the_verdict_of_growth(slope: float, found: str) -> None:
    rows = [
        {"kind": kind, "seed": seed, "layer": layer, "uniform": 0.1, "sharpness": 2.0, "means": 1.0,
         "mass": 0.5 + slope * layer * (1 + seed / 10) + seed / 100}
        for kind in ("learned", "drawn") for seed in range(3) for layer in (1, 2, 3)
    ]  # fmt: skip
    (claim,) = OF_ATTENTION[0].claims
    text = claim(OF_ATTENTION[0].grid, rows).text
    assert f"growth with depth: {found}." in text and "at most 2: above 1." in text


(THEOREMS,) = OF_THEOREMS


def test_theorem_1_holds_on_every_half_space_and_theorem_2_says_nothing() -> None:
    grid = Theorems(subspaces(((4, 2, 1, 2), (20, 4, 3, 8)), (1e-3, 0.1)), seeds=3)
    rows = grid.measure(draws)
    exact = [r for r in rows if r["kind"] == "exact"]
    assert len(exact) == 2 * 2 * 3 and len(rows) == 24
    for r in exact:
        assert r["between"] < 1e-12
        assert r["ratio"] >= 1 - 1e-6 if r["half_space"] else True
    assert min(r["least"] for r in exact if not r["half_space"]) < 0
    assert not any(r["bound"] and r["bound"]["factor"] > 1 for r in rows if r["kind"] == "noisy")
    report = THEOREMS.report(grid, rows)
    assert "Theorem 1 holds in 6 of 6 draws" in report.verdict
    assert "squares a negative number" in report.verdict or "no draw is" in report.verdict
    assert len(report.table.rows) == 4
    assert {row.name.split()[0] for row in report.rows} == {"theorem-1", "theorem-2"}


@pytest.mark.usefixtures("few_images")
def test_train_learns_without_labels_and_resumes(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--task", "contrastive", "--head", "mlp", "--epochs", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "cnn with mlp head on digits" in said and "1-nearest neighbor" in said
    folder = tmp_path / "runs/contrastive-digits-cnn-mlp-0"
    kept = json.loads((folder / "result.json").read_text())
    assert len(kept["result"]["history"]) == 2 and kept["recipe"]["head"] == "mlp"
    assert main(words) == 2 and "add --resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    again = json.loads((folder / "result.json").read_text())
    assert again["result"]["probe"] == kept["result"]["probe"]
