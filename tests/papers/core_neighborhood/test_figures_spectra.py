from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphtheory.papers.core_neighborhood import figures_tables
from graphtheory.papers.core_neighborhood.figures_tables import (
    FIGURES,
    PLACES,
    Spectra,
    eigenvalues,
    spectra,
)

FIGURE = FIGURES[0]


@pytest.mark.parametrize("shape", [(9, 4), (4, 9)])
def test_eigenvalues_are_those_of_the_moments(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape) + 3
    for centered, moment in (
        (True, np.cov(x.T, bias=True)), (False, x.T @ x / len(x)),
    ):  # fmt: skip
        expected = np.linalg.eigvalsh(moment)[::-1][: min(shape)]
        assert np.allclose(eigenvalues(x, centered=centered), expected)


def features(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.arange(len(x)) % 2
    monkeypatch.setattr(figures_tables, "load_known", lambda name, root: Data(x=x, y=y))


def test_few_directions_are_found(monkeypatch: pytest.MonkeyPatch, generator: object) -> None:
    low = torch.randn(60, 2) @ torch.randn(2, 20)
    features(low + 1e-3 * torch.randn(60, 20), monkeypatch)
    rows = spectra(Spectra())
    assert [(r["moment"], r["class"], r["nodes"]) for r in rows] == [
        (moment, c, 30) for moment in ("uncentered", "covariance") for c in (1, 2)
    ]
    assert all(r["held"] > 0.999 and r["needed"] <= 2 and r["above"] == 20 for r in rows)
    assert [place for place, _ in rows[0]["eigenvalues"]] == [p for p in PLACES if p <= 20]
    made = FIGURE.report(Spectra(), rows)
    assert made.verdict.count("holds.") == 2 and "Of 60 nodes with features." in made.verdict
    assert made.table.rows[0][:4] == ["uncentered", "1", "30", "100.0"]
    assert made.rows[1].name == "fig-b-1 share of the 3 largest eigenvalues"
    assert made.picture is not None


def test_as_many_directions_as_features_are_not_few(monkeypatch: pytest.MonkeyPatch) -> None:
    features(torch.randn(400, 20), monkeypatch)
    rows = spectra(replace(Spectra(), moments=("covariance",)))
    assert all(0.15 < r["held"] < 0.35 and r["needed"] > 10 for r in rows)
    made = FIGURE.report(Spectra(), rows)
    assert "not found" in made.verdict and "holds." not in made.verdict


def test_a_pubmed_without_allx_has_the_nodes_with_features(data_root: Path) -> None:
    figure = next(figure for figure in FIGURES if figure.id == "fig-b-2")
    if (data_root / "Planetoid/PubMed/raw/ind.pubmed.allx").exists():
        pytest.skip("needs a PubMed without ind.pubmed.allx")
    rows = spectra(figure.settings("PubMed", data_root))
    assert sum(r["nodes"] for r in rows if r["moment"] == "covariance") == 1060
