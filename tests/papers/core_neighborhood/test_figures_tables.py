from dataclasses import replace

import pytest

from graphtheory.bench.rows import Row
from graphtheory.papers.core_neighborhood.figures_tables import FIGURES, diagnosis
from graphtheory.papers.figure import Figure

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
