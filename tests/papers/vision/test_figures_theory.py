"""Lemmas 2 and 3 of k-NN attention, and the recovery of centers."""

import math
from dataclasses import replace

import pytest
import torch

from graphtheory.papers.vision import figures_theory as theory
from graphtheory.papers.vision.figures_theory import Clusters, Recovered, Relevant


def test_attention_and_the_bound_of_lemma_2_by_hand() -> None:
    query, x = torch.randn(3, 4), torch.randn(7, 4)
    logits = 0.5 * query @ x.t()
    assert torch.allclose(theory.attend(query, x, 0.5), logits.softmax(1) @ x, atol=1e-6)
    barred = logits.masked_fill(logits < logits.topk(2).values[:, -1:], -torch.inf)
    assert torch.allclose(theory.attend(query, x, 0.5, 2), barred.softmax(1) @ x, atol=1e-6)
    grid = Clusters(dim=400, gain=0.1, delta=0.05)
    psi = 2 * 0.1 * math.sqrt(2 * math.log(20)) + 2 * 0.1 * math.log(8000)
    g = math.exp((psi - 0.1) / 20)
    spread = 4 * math.exp(psi / 20) * math.sqrt(2 / 4000 * math.log(16000))
    found = theory.lemma_2(grid, 10, 1.0, 0.5, 0.3)
    assert found == pytest.approx(spread + (8 * g - (7 + g) / 2) * 0.3)
    with pytest.raises(ValueError, match="gain: got 9"):
        theory.lemma_2(replace(grid, gain=9.0), 10, 1.0, 0.5, 0.3)


def test_purity_error_and_relevant_keys_follow_clusters_and_dimensions() -> None:
    grid = Clusters(ks=(1, 16, 128), noises=(0.5,), seeds=2)
    rows = {row["k"]: row for row in grid.measure(theory.center_errors) if row["seed"] == 0}
    assert [rows[k]["purity"] for k in (1, 16, 128)] == pytest.approx([1, 1, 1 / 8], abs=0.02)
    assert rows[16]["error"] < rows[1]["error"] and rows[16]["error"] < rows[128]["error"]
    assert all(row["of the bound"] < 1 for row in rows.values())
    grid = Relevant(dims=(4, 256), relevant=(4,), seeds=5)
    others = {dim: [] for dim in grid.dims}
    for row in grid.measure(theory.keys_needed):
        others[row["dim"]].append(row["others"])
    assert max(others[256]) < 0.01 < min(others[4])


def test_a_step_of_attention_moves_estimates_to_the_centers() -> None:
    for row in Recovered(dims=(32, 64), errors=(0.5,), seeds=2).measure(theory.recovered):
        assert row["after"] < row["before"] / 4
        assert row["of the rate"] == pytest.approx(
            row["after"] * row["dim"] * row["gap"] / math.log(8 * row["dim"])
        )
