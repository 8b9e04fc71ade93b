from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.bench.node_config import NodeRunConfig, load, task_of, tuned_config
from graphtheory.lab.bench.task import trainable
from graphtheory.lab.datasets import graphs
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.core_neighborhood import figures_distance, figures_labels
from graphtheory.papers.core_neighborhood.figures_distance import Network, printed, values
from graphtheory.papers.core_neighborhood.figures_labels import MODELS, fewer_labels, parameters
from tests.lab.bench.conftest import Listen
from tests.lab.test_plot import lines
from tests.papers.conftest import entries

SETTINGS: dict[str, Any] = {"seeds": 1, "samples": 3, "num_buckets": 4, "epochs": 2}
SMALL = figures_distance.Distances("karate", networks=figures_distance.up_to(2), **SETTINGS)
FIGURE, DISTANCES, LABELS = figures_distance.FIGURES


def rows_of(kind: str, values: dict[int, float], seed: int = 0) -> list[dict[str, Any]]:
    return [{"kind": kind, "z": z, "seed": seed, "value": v} for z, v in values.items()]


def test_rows_of_a_small_study() -> None:
    told: list[tuple[str, int, int]] = []
    rows = SMALL.measure(values, lambda *args: told.append(args))
    pairs = [(kind, z) for z in (1, 2) for kind in ("model", "control")]
    first = [("majority", -1), *(("b", z) for z in range(4))]
    assert [(r["kind"], r["z"]) for r in rows] == first + pairs
    names = ["learned bias", *(f"{kind} at distance {z}" for kind, z in pairs)]
    assert told == [(f"seed 0, {name}", i, 5) for i, name in enumerate(names)]
    data = load("karate", None, None, 0, degree=False)
    common = data.y[data.train_mask].mode().values
    share = (data.y[data.test_mask] == common).float().mean()
    assert rows[0]["value"] == pytest.approx(float(share))
    assert SMALL.measure(values) == rows


def test_only_the_control_has_a_frozen_query(listen: Listen) -> None:
    trained = listen(figures_distance)
    replace(SMALL, networks=(SMALL.networks[0], *SMALL.networks[3:])).measure(values)
    networks = [trial.network for trial, _ in trained]
    found = [(n.neighbors, n.frozen_query) for n in networks]
    assert found == [("all:3", False), ("=2:3", False), ("=2:3", True)]
    for n in networks:  # one layer of one head that has nothing but its neighbors
        assert (n.layers, n.heads, n.root_weight, n.num_buckets) == (1, 1, False, 4)


def test_a_curve_gathers_seeds_and_a_flat_one_has_no_trend() -> None:
    rows = rows_of("model", {1: 0.5, 2: 0.4}) + rows_of("model", {1: 0.7}, seed=1)
    found = figures_distance.curve(rows + rows_of("b", {1: 9.0}), "model")
    assert found == {1: [0.5, 0.7], 2: [0.4]}
    rows = rows_of("majority", {-1: 0.3}) + rows_of("b", {1: 2.0, 2: 1.0})
    rows += rows_of("model", {1: 0.5, 2: 0.5}) + rows_of("control", {1: 0.1, 2: 0.2})
    assert torch.tensor(figures_distance.summary(rows)["model"]["spearman"]).isnan()


def test_summary_by_hand() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {0: 5.0, 1: 2.0, 2: 1.0, 3: 0.0}),
        *rows_of("model", {1: 0.7, 2: 0.5, 3: 0.6}),
        *rows_of("model", {1: 0.9, 2: 0.7, 3: 0.6}, seed=1),
        *rows_of("control", {1: 0.1, 2: 0.2, 3: 0.3}),
    ]
    found = figures_distance.summary(rows)
    assert found["majority"] == pytest.approx(0.3)
    assert found["b"] == {1: 2.0, 2: 1.0, 3: 0.0} and found["b_peak"] == 1  # z = 0 has no model
    assert found["model"]["accuracy"] == pytest.approx({1: 0.8, 2: 0.6, 3: 0.6})
    assert found["model"]["peak"] == 1
    # Ranks of 0.8, 0.6, 0.6 are 3, 1.5, 1.5 beside 3, 2, 1.
    assert found["model"]["spearman"] == pytest.approx(3**0.5 / 2)
    assert found["control"]["spearman"] == pytest.approx(-1) and found["control"]["peak"] == 3


def test_a_graph_brings_the_scaling_that_the_search_chose() -> None:
    scaled = [FIGURE.settings(name).row_scale for name in ("Cora", "karate", "Actor")]
    assert scaled == [tuned_config(n, "gt")[0].row_scale for n in ("Cora", "karate", "Actor")]
    assert len(set(scaled)) == 2
    assert len(FIGURE.settings("Cora").cells()) == 3 * 13


def test_rows_for_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[figures_distance.Distances, int, str]] = []

    def run(
        grid: figures_distance.Distances, seed: int, network: figures_distance.Network
    ) -> list[dict[str, Any]]:
        asked.append((grid, seed, network.name))
        return [{"kind": network.kind, "z": network.z, "seed": seed, "value": 0.5}]

    monkeypatch.setattr(figures_distance, "values", run)
    rows = figures_distance.distance_rows("karate", None, 1, epochs=7)
    assert [row["kind"] for row in rows] == ["b", "model", "control"]
    assert {(grid.epochs, grid.dataset, seed) for grid, seed, _ in asked} == {(7, "karate", 0)}


def test_the_report_of_a_small_grid() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {0: 5.0, 1: 2.0, 2: 1.0, 3: 0.0}),
        *rows_of("model", {1: 0.7, 2: 0.5}),
        *rows_of("control", {1: 0.1, 2: 0.2}),
    ]
    made = FIGURE.report(replace(SMALL, seeds=1), rows)
    assert made.table.rows == [["1", "70.0", "10.0", "2.000"], ["2", "50.0", "20.0", "1.000"]]
    assert "model: Spearman's correlation of accuracy and b_z over z is 1.00" in made.verdict
    assert "alone gives 30.0 %" in made.verdict
    first = made.rows[0]
    assert first.name == "fig-3-8 test accuracy"
    assert first.parameters == {"dataset": "karate", "z": 1} and made.picture is not None


def test_parameters_are_those_of_the_network() -> None:
    data = load("karate", None, None, 0, **printed("gt").inputs)
    for model in MODELS:
        task, _ = task_of(printed(model), data, 0)
        assert parameters(printed(model), data) == trainable(task.model)


@pytest.mark.parametrize(("features", "classes"), [(500, 3), (932, 5), (14, 3)])
def test_the_gcn_is_larger_by_10_percent_at_most(features: int, classes: int) -> None:
    data = Data(x=torch.zeros(2, features), num_classes=classes)
    gt, gcn = printed("gt"), figures_labels.at_least_as_large(printed("gcn"), printed("gt"), data)
    least = parameters(gt, data)
    assert least <= parameters(gcn, data) <= 1.1 * least
    narrower = replace(gcn, network=replace(gcn.network, hidden=gcn.network.hidden - 1))
    assert parameters(narrower, data) < least


def test_networks_have_the_printed_sizes(listen: Listen) -> None:
    trained = listen(figures_distance)
    grid = replace(
        DISTANCES.settings("karate"), seeds=1, epochs=1,
        networks=(Network("b"), Network("control", 0), Network("model", 3)),
    )  # fmt: skip
    rows = grid.measure(values)
    networks = [trial.network for trial, _ in trained]
    assert [n.neighbors for n in networks] == ["all:20", "=0:20", "=3:20"]
    assert {(n.layers, n.heads, n.num_buckets) for n in networks} == {(4, 4, 20)}
    assert [r["z"] for r in rows if r["kind"] == "b"] == list(range(20))


def test_the_control_depends_on_no_other_node() -> None:
    grid = figures_distance.PrintedDistances("karate")
    trial = grid.trial(Network("control", 0))
    data = load("karate", None, None, 0, **trial.inputs)
    task, batches = task_of(trial, data, 0)
    task.model.eval()
    batch = batches.train_batch(epoch=0)
    x = batch.x.to_dense() if batch.x.layout != torch.strided else batch.x
    before = task.model(x, batch.neighborhood)
    x = x.clone()
    x[1:] += 1
    after = task.model(x, batch.neighborhood)
    assert torch.allclose(before[0], after[0]) and not torch.allclose(before[1], after[1])


def distances(accuracy: Any, seeds: int = 3) -> list[dict[str, Any]]:
    rows = []
    for seed in range(seeds):
        found = [("majority", -1, 0.3), ("control", 0, 0.5)]
        found += [("b", z, 3.0 - z) for z in range(4)]
        found += [("model", z, accuracy(z) + seed / 1e3) for z in (1, 2, 3)]
        rows += [{"kind": k, "z": z, "seed": seed, "value": value} for k, z, value in found]
    return rows


def test_trend_and_peak_by_hand() -> None:
    grid = DISTANCES.settings("karate")
    made = DISTANCES.report(grid, distances(lambda z: 0.9 - z / 10))
    assert "over z is 1.00 (p = 0), claimed to have the same trend: holds" in made.verdict
    assert "z = 1, b_z at z = 1, claimed at the same: holds" in made.verdict
    assert "that of the node alone 50.0 %" in made.verdict
    assert made.table.rows[0] == ["1", "80.1", "2.000"] and made.table.note
    assert made.table.title.startswith("Figure 3.8 printed on karate")
    assert made.rows[0].parameters == {"dataset": "karate"} and made.picture is not None
    rows = distances(lambda z: {1: 0.6, 2: 0.5, 3: 0.55}[z])  # the order of one pair is wrong
    told = DISTANCES.report(grid, rows).verdict
    assert "over z is 0.50 (p = 0.33), claimed to have the same trend: not found" in told
    other = DISTANCES.report(grid, distances(lambda z: 0.5 + z / 10)).verdict
    assert "same trend: not found" in other and "claimed at the same: not found" in other


def test_scores_of_the_printed_networks(listen: Listen) -> None:
    trained = listen(figures_labels)
    grid = LABELS.settings("karate", seeds=1)
    recipes = tuple(replace(recipe, epochs=1) for recipe in grid.recipes)
    rows = replace(grid, shares=(1.0,), recipes=recipes).measure(figures_distance.printed_scores)
    assert [row["model"] for row in rows] == list(MODELS)
    encoded, plain, gcn = (trial for trial, _ in trained)
    assert plain == replace(encoded, model="gt-plain")
    assert encoded == printed("gt") and gcn.network.layers == 4
    gt, _, of_gcn = (row["parameters"] for row in rows)
    assert gt <= of_gcn <= 1.1 * gt
    made = LABELS.report(grid, rows)
    assert f"Parameters: gt {gt:,}" in made.verdict and "more than gt." in made.verdict
    assert made.rows[-1].name == "fig-3-9-printed parameters"


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


def few(epochs: int) -> tuple[figures_labels.Recipe, ...]:
    return tuple(replace(recipe, epochs=epochs) for recipe in figures_labels.tuned("karate"))


def test_the_transformer_without_encoding_has_the_options_of_the_one_with_it(listen) -> None:
    trained = listen(figures_labels)
    grid = figures_labels.Labels("karate", seeds=1, shares=(1.0,), recipes=few(1))
    grid.measure(figures_labels.scores)
    encoded, plain, gcn = (trial for trial, _ in trained)
    assert plain == replace(encoded, model="gt-plain") != encoded
    assert (encoded.model, gcn.model) == ("gt", "gcn")


def test_gains_are_paired_and_drawn_for_each_share_in_order() -> None:
    # Differences 0.1, -0.1, 0.3: mean 0.1, standard deviation 0.2.
    found = figures_labels.gain([0.8, 0.6, 0.9], [0.7, 0.7, 0.6])
    assert found == pytest.approx((0.1, 0.2 / 3**0.5))
    assert figures_labels.gain([0.5], [0.25]) == (0.25, 0.0)  # one seed has no spread
    figure = figures_labels.FIGURES[1]
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
    assert list(figures_labels.by_labels(rows)) == [0.5, 1.0]
    expected = {model: list(of) for model, of in values.items()}
    assert figures_labels.by_labels(rows)[0.5] == (10.5, expected)
    figure = figures_labels.FIGURES[0]
    made = figure.report(figure.settings("karate"), rows)
    assert made.table.rows[0][1:4] == ["85.0", "80.0", "80.0"]
    assert made.table.rows[0][4:] == ["+5.0 (5.0)", "+5.0 (15.0)"]
    assert "has the best mean at 2 of 2 label counts" in made.verdict
    (axes,) = made.picture.axes
    assert lines(axes)["gt"] == ([10], [pytest.approx(85)]) and "(%)" in axes.get_ylabel()


def test_cases_name_known_graphs_and_rows_are_those_of_a_small_grid() -> None:
    for name, (seeds, recipes) in figures_labels.CASES.items():
        assert name in {known.lower() for known in graphs.names("node")} and seeds > 0
        for recipe, model in product(recipes, MODELS[:2]):
            zoo.build(model, recipe.trial.network, num_features=5, num_classes=3)
    grid = figures_labels.Labels("karate", seeds=2, shares=(0.2, 1.0), recipes=few(2))
    rows = grid.measure(figures_labels.scores)
    assert entries(rows, "seed", "share", "model") == [*product((0, 1), (0.2, 1.0), MODELS)]
    data = load("karate", None, None, 0, degree=False)
    assert rows[-1]["labels"] == int(data.train_mask.sum())
    assert rows[0]["labels"] < rows[-1]["labels"]
    assert all(0 <= r["value"] <= 1 for r in rows)
    assert grid.measure(figures_labels.scores) == rows


def test_rows_with_and_without_the_encoding(listen: Listen) -> None:
    trial = NodeRunConfig.of("gt", hidden=8, heads=2, neighbors="2", bias_lr=0.05)
    trained = listen(figures_labels)
    recipes = (figures_labels.Recipe("club", trial, 3, 3),)
    grid = figures_labels.Encoding("karate", recipes=recipes, seeds=2)
    rows = grid.measure(figures_labels.with_and_without)
    cells = product((0, 1), ("gt", "gt-plain"))
    assert trained == [(replace(trial, model=model), seed) for seed, model in cells]
    assert [(r["case"], r["seed"]) for r in rows] == [("club", 0), ("club", 1)]
    assert all(0 <= r[m] <= 1 for r in rows for m in ("gt", "gt-plain"))
    assert replace(grid, seeds=1).measure(figures_labels.with_and_without) == rows[:1]
