import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind_from_stats

from graphtheory.lab.bench import recipes
from graphtheory.lab.bench.benchmark import named_task
from graphtheory.lab.bench.graph_task import GraphRunConfig
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.recipes import RECIPES, Recipe, Verdict, run_recipe, verdicts
from graphtheory.lab.bench.rows import MEASURES
from graphtheory.lab.datasets import catalogue, graphs
from graphtheory.lab.zoo import graph_models, node_models
from tests.conftest import case

KARATE = Recipe(
    "own/karate/gcn", "a paper", "a file", "karate", "accuracy", "gcn", (90.0, 2.0), epochs=3,
    runs=2, split="random-60-20-20", split_seed=5, options={"hidden": 8, "output": "linear"},
)  # fmt: skip
OPEN = [recipe for recipe in RECIPES.values() if not recipe.missing]


def test_the_table_is_whole() -> None:
    assert len(RECIPES) > 200 and len(OPEN) > 40
    for name, recipe in RECIPES.items():
        assert name == recipe.name and recipe.paper and recipe.code
        assert recipe.metric in {*MEASURES, "mrr"}
        mean, std = recipe.published
        assert mean is None or math.isfinite(mean)
        assert std is None or (mean is not None and 0 < std < mean)


def test_every_open_recipe_can_be_built() -> None:
    for recipe in OPEN:
        with case(recipe.name):
            info = catalogue.describe(recipe.dataset)
            assert info.known_split(recipe.split) and info.metric == recipe.metric
            assert recipe.epochs and not recipe.read
            kind = named_task(recipe.dataset, recipe.split).config_kind(recipe.model)
            config: Any = kind.of(recipe.model, **recipe.options)
            if isinstance(config, NodeRunConfig):
                config.check_options(recipe.options)
                node_models.build(recipe.model, config.network, num_features=6, num_classes=3)
            elif isinstance(config, GraphRunConfig):
                sizes = {"node_in": (5, 3), "edge_in": (4,), "num_outputs": 2}
                graph_models.build(recipe.model, config.network, **sizes)


def test_a_recipe_is_the_command_that_was_published() -> None:
    found = RECIPES["tunedgnn/photo/gat"]  # --hidden_channels 64 --local_layers 3 --ln --res ...
    of = dict(found.options)
    assert (of.pop("row_scale"), of.pop("heads"), of.pop("bias")) == (True, 1, False)
    assert of == {
        "output": "linear", "activation": "relu", "self_loops": True, "input_dropout": 0.0,
        "layers": 3, "hidden": 64, "dropout": 0.5, "layer_norm": True, "linear_residual": True,
        "lr": 0.001, "weight_decay": 5e-5,
    }  # fmt: skip
    assert (found.epochs, found.runs, found.patience) == (1000, 3, None)
    assert (found.split, found.split_seed) == ("random-60-20-20-by-numpy", 12)
    assert found.published == [96.60, 0.33] and found.scores == pytest.approx((0.966, 0.0033))
    assert RECIPES["ogb/molesol/gin-vn"].scores == (0.998, 0.066)  # an error has a unit


@pytest.mark.parametrize(
    ("name", "outputs", "published"),
    [  # numbers of parameters: of OGB's leaderboard of molhiv, of table 10 of the paper of GNN+
        ("ogb/molesol/gcn", 1, 527_701), ("ogb/molesol/gin", 1, 1_885_206),
        ("ogb/molesol/gcn-vn", 1, 1_978_801), ("ogb/molesol/gin-vn", 1, 3_336_306),
        ("gnnplus/peptides-func/gcn+", 10, 507e3), ("gnnplus/peptides-func/gin+", 10, 506e3),
        ("gnnplus/peptides-struct/gin+", 11, 518e3),
    ],
)  # fmt: skip
def test_networks_have_the_published_sizes(name: str, outputs: int, published: float) -> None:
    recipe = RECIPES[name]
    config = GraphRunConfig.of(recipe.model, **recipe.options)
    chirality = 4 if name.startswith("ogb") else 5  # as ogb had it then
    atoms, bonds = (119, chirality, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)
    sizes = {"node_in": atoms, "edge_in": bonds, "num_outputs": outputs}
    model = graph_models.build(recipe.model, config.network, **sizes)
    found = sum(p.numel() for p in model.parameters())
    assert found == published or round(found / 1000) == published / 1000


@pytest.mark.parametrize(("metric", "published", "scores", "expected"), [
    ("accuracy", (90.0, 1.0), [], "not run"),
    ("accuracy", (90.0, 1.0), [0.9], "yes"),
    ("accuracy", (90.0, 1.0), [0.89], "one run"),
    ("accuracy", (90.0, 1.0), [0.895, 0.90, 0.89], "within noise"),
    ("accuracy", (90.0, 1.0), [0.85, 0.855, 0.852], "no"),
    ("accuracy", (90.0, None), [0.89, 0.89, 0.89], "no"),
    ("accuracy", (None, None), [0.89], "no score published"),
    ("rmse", (1.0, 0.1), [0.8, 0.9], "yes"),
    ("rmse", (1.0, 0.01), [1.4, 1.41], "no"),
])  # fmt: skip
def test_verdicts(
    metric: str, published: tuple[float | None, float | None], scores: list[float], expected: str
) -> None:
    recipe = replace(KARATE, metric=metric, published=published, runs=3)
    assert Verdict(recipe, scores).reproduced == expected
    missing = Verdict(replace(recipe, missing="a model"), [])
    assert missing.reproduced == "read and checked, not run" and missing.cells()[2] == "-"


def test_the_interval_is_that_of_welch() -> None:
    found = Verdict(replace(KARATE, runs=3), [0.88, 0.91, 0.86, 0.87])
    assert found.difference == pytest.approx(-0.02)
    for shift, outside in ((0.9999, False), (1.0001, True)):  # of the edge of the interval
        mean = 0.9 - found.interval * shift
        sample = (0.021602468994692866, 4)
        test = ttest_ind_from_stats(mean, *sample, 0.9, 0.02, 3, equal_var=False)
        assert (test.pvalue < 0.05) == outside
    cells = ("90.00 ± 2.00", "88.00 ± 2.16", "-2.00 ± 4.16", "4 of 3", "within noise")
    assert found.cells() == (KARATE.name, *cells)


def test_runs_are_rows_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "RECIPES", {KARATE.name: KARATE})
    said: list[str] = []
    first = run_recipe(KARATE, tmp_path, seeds=1, finished=said.append)
    (line,) = (tmp_path / "recipes.csv").read_text().splitlines()[1:]
    told = "recipe=own/karate/gcn; seed=0; split=random-60-20-20 5; epochs=3; best epoch="
    assert line.startswith(f"test accuracy,{told}") and len(said) == 1
    with pytest.raises(ValueError, match="holds 1 runs of own/karate/gcn; --resume"):
        run_recipe(KARATE, tmp_path)
    both = run_recipe(KARATE, tmp_path, resume=True, finished=said.append)
    assert len(both.runs) == 2 and both.runs[0] == first.runs[0] and len(said) == 2
    (found,) = verdicts(tmp_path)
    assert list(found.runs) == list(both.runs)
    with pytest.raises(ValueError, match="own/karate/gcn cannot be run: a layer"):
        run_recipe(replace(KARATE, missing="a layer"), tmp_path, resume=True)


def test_every_run_has_the_split_of_the_recipe() -> None:
    task, config = KARATE.prepared(None)
    expected = graphs.load("karate", split="random-60-20-20", seed=5).train_mask
    masks = [task.prepare(config, seed)[1].data.train_mask for seed in (0, 1)]
    assert all(mask.equal(expected) for mask in masks)
    weights = [task.prepare(config, seed)[0].model.output.weight for seed in (0, 1)]
    assert not weights[0].equal(weights[1])
