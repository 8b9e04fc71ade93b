from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets.graphs import load_known
from graphtheory.papers.core_neighborhood.figures_tables import FIGURES, diagnosis
from graphtheory.papers.figure import Figure
from graphtheory.structure import discriminative_nodes

BY_ID = {figure.id: figure for figure in FIGURES}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_every_table_has_the_rows_that_it_is_made_of(figure: Figure) -> None:
    grid = replace(figure.grid, max_distance=2, dataset="karate")
    (cell,) = grid.cells()
    measured = diagnosis(grid, **cell)
    shown = figure.show(grid, measured)
    (claim,) = figure.claims
    assert {row.name for row in shown.rows} == set(claim.__self__.wanted)
    assert not figure.random and len(figure.data.only) > 0


def test_a_table_without_features_measures_none() -> None:
    grid = BY_ID["table-b-6"].settings("karate", quick=True)
    names = {row["name"] for row in diagnosis(grid)}
    assert names.isdisjoint({"margin", "discriminative share"}) and grid.max_distance == 3


def test_found_beside_printed() -> None:
    figure = BY_ID["table-b-8"]
    rows = [
        Row.of("class size", 818.0, "nodes", dataset="Cora", group=1),
        Row.of("balance mean", 386.857, "nodes", dataset="Cora"),
        Row.of("balance largest_gap", 400.0, "nodes", dataset="Cora"),
    ]
    measured = [vars(row) for row in rows]
    made = figure.report(figure.settings("Cora"), measured)
    assert made.rows == rows  # as `graphtheory diagnose` writes them
    assert made.table.title == "Table B.8 on Cora: beside the printed numbers"
    assert "mean (nodes): 386.86, thesis 386.86, found; " in made.verdict
    assert "largest gap (nodes): 400.00, thesis 431.14, off by 31.14." in made.verdict
    assert made.picture is not None


def test_shares_of_the_nodes_whose_features_are_at_hand(data_root: Path) -> None:
    if (data_root / "Planetoid/PubMed/raw/ind.pubmed.allx").exists():
        pytest.skip("needs a PubMed without ind.pubmed.allx")
    figure = BY_ID["table-b-2"]
    grid = figure.settings("PubMed", data_root)
    made = figure.report(grid, diagnosis(grid))
    known = load_known("PubMed", data_root)
    found = discriminative_nodes(known.x, known.y)
    shares = [100 * float(found[known.y == c].double().mean()) for c in range(3)]
    uncentered = [r.value for r in made.rows if r.parameters.get("moment") == "uncentered"]
    assert uncentered == pytest.approx(shares)
    assert "Of the 1,060 nodes whose features are at hand." in made.verdict
    assert ("nodes with features", 1060) in {(row.name, row.value) for row in made.rows}


def test_sizes_need_no_features(data_root: Path) -> None:
    figure = BY_ID["table-b-6"]
    grid = figure.settings("PubMed", data_root)
    verdict = figure.report(grid, diagnosis(grid)).verdict
    assert "edges: 44324, thesis 44324, found" in verdict and "at hand" not in verdict
    assert figure.data.read("PubMed", data_root) is not None
