"""Variants of k-NN attention and semantic tokens, their lemmas and the recovery of centers."""

import math
from dataclasses import replace

import pytest
import torch

from graphtheory.lab.zoo.image_models import ImageKind
from graphtheory.papers.vision import figures_theory as theory

KIND = ImageKind(size=8, channels=1, classes=10)
GRIDS = [figure.grid for figure in theory.FIGURES if isinstance(figure.grid, theory.Variants)]
VARIANTS = {v.name: v for grid in GRIDS for v in grid.variants}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_network_for_digits(name: str) -> None:
    model = VARIANTS[name].build(KIND)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 10)


def test_variants_differ_in_what_they_name() -> None:
    assert len(VARIANTS["3 before"].build(KIND).base) == 3
    assert VARIANTS["windows alone"].build(KIND).semantic.global_centers is None
    kinds = {type(VARIANTS[n].build(KIND)).__name__ for n in ("all", "1/2", "windows")}
    assert kinds == {"ViT", "STViT"}


@pytest.mark.usefixtures("few_images")
def test_a_run_tells_validation_of_every_epoch_and_repeats() -> None:
    grid = replace(GRIDS[0], epochs=2)
    (one,), (again,) = (theory.accuracies(grid, theory.Variant("1/2", 0.5), 0) for _ in range(2))
    assert one == again and {"epoch 1", "epoch 2", "test"} <= one.keys()


def test_attention_and_the_bound_of_lemma_2_by_hand() -> None:
    query, x = torch.randn(3, 4), torch.randn(7, 4)
    logits = 0.5 * query @ x.t()
    assert torch.allclose(theory.attend(query, x, 0.5), logits.softmax(1) @ x, atol=1e-6)
    barred = logits.masked_fill(logits < logits.topk(2).values[:, -1:], -torch.inf)
    assert torch.allclose(theory.attend(query, x, 0.5, 2), barred.softmax(1) @ x, atol=1e-6)
    grid = theory.Clusters(dim=400, gain=0.1, delta=0.05)
    psi = 2 * 0.1 * math.sqrt(2 * math.log(20)) + 2 * 0.1 * math.log(8000)
    g = math.exp((psi - 0.1) / 20)
    spread = 4 * math.exp(psi / 20) * math.sqrt(2 / 4000 * math.log(16000))
    found = theory.lemma_2(grid, 10, 1.0, 0.5, 0.3)
    assert found == pytest.approx(spread + (8 * g - (7 + g) / 2) * 0.3)
    with pytest.raises(ValueError, match="gain: got 9"):
        theory.lemma_2(replace(grid, gain=9.0), 10, 1.0, 0.5, 0.3)


def test_purity_error_and_relevant_keys_follow_clusters_and_dimensions() -> None:
    grid = theory.Clusters(ks=(1, 16, 128), noises=(0.5,), seeds=2)
    rows = {row["k"]: row for row in grid.measure(theory.center_errors) if row["seed"] == 0}
    assert [rows[k]["purity"] for k in (1, 16, 128)] == pytest.approx([1, 1, 1 / 8], abs=0.02)
    assert rows[16]["error"] < rows[1]["error"] and rows[16]["error"] < rows[128]["error"]
    assert all(row["of the bound"] < 1 for row in rows.values())
    grid = theory.Relevant(dims=(4, 256), relevant=(4,), seeds=5)
    others = {dim: [] for dim in grid.dims}
    for row in grid.measure(theory.keys_needed):
        others[row["dim"]].append(row["others"])
    assert max(others[256]) < 0.01 < min(others[4])


def test_a_step_of_attention_moves_estimates_to_the_centers() -> None:
    for row in theory.Recovered(dims=(32, 64), errors=(0.5,), seeds=2).measure(theory.recovered):
        assert row["after"] < row["before"] / 4
        rate = math.log(8 * row["dim"]) / (row["dim"] * row["gap"])
        assert row["of the rate"] == pytest.approx(row["after"] / rate)
