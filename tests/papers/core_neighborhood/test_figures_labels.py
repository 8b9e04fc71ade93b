from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from graphtheory.lab.bench.node_config import NodeRunConfig, load
from graphtheory.lab.datasets import graphs
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.core_neighborhood import figures_labels
from graphtheory.papers.core_neighborhood.figures_labels import (
    CASES,
    FIGURES,
    MODELS,
    Encoding,
    Labels,
    Recipe,
    by_labels,
    fewer_labels,
    gain,
    scores,
    tuned,
    with_and_without,
)
from tests.lab.bench.conftest import Listen
from tests.lab.test_plot import lines

Y = torch.tensor([0] * 20 + [1] * 10 + [2] * 10)
TRAIN = torch.arange(40) < 30  # class 2 has no training node


def test_shares_keep_every_class_are_subsets_and_follow_their_seeds() -> None:
    kept = fewer_labels(Y, TRAIN, 0.5, seed=0)
    assert not (kept & ~TRAIN).any()
    assert Y[kept].bincount(minlength=3).tolist() == [10, 5, 0]
    masks = [fewer_labels(Y, TRAIN, share, seed=3) for share in (0.01, 0.1, 0.4, 0.7, 1.0)]
    for small, large in pairwise(masks):
        assert not (small & ~large).any() and small.sum() < large.sum()
    assert torch.equal(masks[-1], TRAIN)
    assert Y[masks[0]].bincount(minlength=3).tolist() == [1, 1, 0]
    before = TRAIN.clone()
    a, b, again = (fewer_labels(Y, TRAIN, 0.3, seed=s) for s in (0, 1, 0))
    assert not torch.equal(a, b) and torch.equal(a, again)
    assert torch.equal(TRAIN, before)


def few(epochs: int) -> tuple[Recipe, ...]:
    return tuple(replace(recipe, epochs=epochs) for recipe in tuned("karate"))


def test_the_transformer_without_encoding_has_the_options_of_the_one_with_it(
    listen: Listen,
) -> None:
    trained = listen(figures_labels)
    Labels("karate", seeds=1, shares=(1.0,), recipes=few(1)).measure(scores)
    encoded, plain, gcn = (trial for trial, _ in trained)
    assert plain == replace(encoded, model="gt-plain") != encoded
    assert (encoded.model, gcn.model) == ("gt", "gcn")


def test_gains_are_paired_and_drawn_for_each_share_in_order() -> None:
    # Differences 0.1, -0.1, 0.3: mean 0.1, standard deviation 0.2.
    assert gain([0.8, 0.6, 0.9], [0.7, 0.7, 0.6]) == pytest.approx((0.1, 0.2 / 3**0.5))
    assert gain([0.5], [0.25]) == (0.25, 0.0)  # one seed has no spread
    figure = FIGURES[1]
    assert figure.settings("Minesweeper").seeds == 2 and figure.settings("Cora").seeds == 10
    rows = [
        {"case": case, "seed": seed, "gt": 0.8 + 0.01 * seed, "gt-plain": plain}
        for case, plains in (("a", (0.5, 0.5, 0.5)), ("b", (0.5, 0.9, 0.9)))
        for seed, plain in enumerate(plains)
    ]
    made = figure.report(figure.settings("Cora"), rows)
    assert made.verdict == "More than two standard errors from zero: a."
    assert made.table.rows[0] == ["a", "3", "81.0", "50.0", "+31.0 (0.6)"]
    assert [row.name for row in made.rows[:2]] == ["encoding gt", "encoding gt-plain"]
    values = {"gt": (0.8, 0.9), "gt-plain": (0.7, 0.9), "gcn": (0.9, 0.7)}
    rows = [
        {"model": model, "labels": 10 + seed, "share": share, "seed": seed, "value": value}
        for share in (1.0, 0.5)
        for model, of in values.items()
        for seed, value in enumerate(of)
    ]
    assert list(by_labels(rows)) == [0.5, 1.0]
    assert by_labels(rows)[0.5] == (10.5, {model: list(of) for model, of in values.items()})
    figure = FIGURES[0]
    made = figure.report(figure.settings("karate"), rows)
    assert made.table.rows[0][1:4] == ["85.0", "80.0", "80.0"]
    assert made.table.rows[0][4:] == ["+5.0 (5.0)", "+5.0 (15.0)"]
    assert "has the best mean at 2 of 2 label counts" in made.verdict
    (axes,) = made.picture.axes
    assert lines(axes)["gt"] == ([10], [pytest.approx(85)]) and "(%)" in axes.get_ylabel()


def test_cases_name_known_graphs_and_rows_are_those_of_a_small_grid() -> None:
    for name, (seeds, recipes) in CASES.items():
        assert name in {known.lower() for known in graphs.names("node")} and seeds > 0
        for recipe in recipes:
            for model in MODELS[:2]:
                zoo.build(model, recipe.trial.network, num_features=5, num_classes=3)
    grid = Labels("karate", seeds=2, shares=(0.2, 1.0), recipes=few(2))
    rows = grid.measure(scores)
    assert [(r["seed"], r["share"], r["model"]) for r in rows] == [
        (seed, share, model) for seed in (0, 1) for share in (0.2, 1.0) for model in MODELS
    ]
    data = load("karate", None, None, 0, degree=False)
    assert rows[-1]["labels"] == int(data.train_mask.sum())
    assert rows[0]["labels"] < rows[-1]["labels"]
    assert all(0 <= r["value"] <= 1 for r in rows)
    assert grid.measure(scores) == rows


def test_rows_with_and_without_the_encoding(listen: Listen) -> None:
    trial = NodeRunConfig.of("gt", hidden=8, heads=2, neighbors="2", bias_lr=0.05)
    trained = listen(figures_labels)
    grid = Encoding("karate", recipes=(Recipe("club", trial, 3, 3),), seeds=2)
    rows = grid.measure(with_and_without)
    assert trained == [
        (replace(trial, model=model), seed) for seed in (0, 1) for model in ("gt", "gt-plain")
    ]
    assert [(r["case"], r["seed"]) for r in rows] == [("club", 0), ("club", 1)]
    assert all(0 <= r[m] <= 1 for r in rows for m in ("gt", "gt-plain"))
    assert replace(grid, seeds=1).measure(with_and_without) == rows[:1]
