from pathlib import Path

import pytest

from graphtheory.lab.bench.diagnose import Diagnosis
from graphtheory.lab.bench.rows import Row
from graphtheory.papers.core_neighborhood.figures_tables import PRINTED, Compared, verdicts


def cora(moment: str, shift: float) -> list[Row]:
    """Rows of a Cora whose shares are off by `shift`, in rings at distance 1 and 2."""
    where = {"dataset": "Cora", "moment": moment}
    rows = [
        Row.of("discriminative share", share + shift * (-1) ** c, "%", **where, group=c)
        for c, share in enumerate(PRINTED["Cora"]["share"], 1)
    ]
    ring = where | {"region": "ring"}
    for z, (margin, reach) in enumerate([(0.5, 100), (0.6, 80), (0.9, 10)], 1):
        rows.append(Row.of("normalized margin", margin, "1", **ring, distance=z))
        rows.append(Row.of("reach", reach, "%", **ring, distance=z))
    for nodes, share in (("all", 90.0), ("hearing", 95.0 + shift)):
        rows.append(Row.of("positive margin", share, "%", **ring, distance=1, nodes=nodes))
    return rows


ROWS = [
    *cora("uncentered", 1.0),
    *cora("covariance", 30.0),
    Row.of("balance mean", 386.857, "nodes", dataset="Cora"),
    Row.of("balance largest_gap", 400.0, "nodes", dataset="Cora"),
]


def found(table: str, what: str = "") -> list[Compared]:
    return [v for v in verdicts(ROWS) if v.table == table and what in v.what]


def test_shares_are_compared_class_by_class() -> None:
    near, far = found("B.1")
    assert near.difference == pytest.approx(1.0)  # though the means nearly agree
    assert far.difference == pytest.approx(30.0)
    assert (near.closest, far.closest) == (True, False)
    assert (near.stated, far.stated) == (False, True)


def test_every_definition_of_table_b5_is_listed_and_one_is_closest() -> None:
    shares = found("B.5")
    assert len(shares) == 4
    assert [v.what for v in shares if v.closest] == [
        "margin > 0 (%), uncentered, N_z, z = 1, nodes that reach a discriminative one"
    ]
    assert [v.stated for v in shares] == [True, False, True, False]
    assert shares[0].difference == pytest.approx(5.68)


def test_balance_has_found_printed_and_difference() -> None:
    mean, gap = found("B.8")
    assert (mean.found, mean.thesis) == ("386.86", "386.86")
    assert gap.difference == pytest.approx(31.14)


def test_figure_is_read_where_half_of_the_nodes_reach() -> None:
    core, shape = found("fig. B.5", "uncentered")
    assert (core.found, core.thesis, core.difference) == ("2", "1", 1)
    assert shape.found == "0.500..0.600, falls in 0 of 1 steps"
    assert shape.difference is None


def shape(dataset: str, curve: list[float]) -> str:
    where = {"dataset": dataset, "moment": "covariance", "region": "ring"}
    rows = [
        Row.of(name, value, "1", **where, distance=z)
        for z, margin in enumerate(curve, 1)
        for name, value in (("normalized margin", margin), ("reach", 100.0))
    ]
    share = PRINTED[dataset]["share"]
    rows += [
        Row.of("discriminative share", s, "%", dataset=dataset, moment="covariance", group=c)
        for c, s in enumerate(share, 1)
    ]
    return next(v.verdict for v in verdicts(rows) if v.table == "fig. B.5" and v.difference is None)


def test_shapes_of_the_margin_have_verdicts() -> None:
    assert shape("PubMed", [0.5, 0.3, 0.2]) == "holds"
    told = shape("PubMed", [0.5, 0.3, 0.2, 0.3, 0.1])
    assert told == "in part, it falls at every step up to z = 3"
    assert shape("PubMed", [0.3, 0.5, 0.2]) == "not found"
    assert shape("PascalVOC-SP-1G", [0.3, 0.5, 0.2]) == ""


def test_nearly_flat_is_a_gap_of_a_twentieth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRINTED, "PubMed", PRINTED["PubMed"] | {"shape": "nearly flat"})
    assert shape("PubMed", [0.02, 0.01, 0.05]) == "holds"
    assert shape("PubMed", [0.02, 0.01, 0.07]) == "not found"


def test_other_graphs_have_nothing_to_compare() -> None:
    assert verdicts(Diagnosis("karate", max_distance=2).run()) == []
    assert verdicts([]) == []


@pytest.mark.parametrize("name", ["Cora", "Actor"])
def test_real_graphs_are_near_the_printed_tables(data_root: Path, name: str) -> None:
    listed = verdicts(Diagnosis(name, data_root).run())
    best = {v.table: v.difference for v in listed if v.closest}
    share = best["B.1" if name == "Cora" else "B.3"]
    assert share is not None and share < 1.0
    exact = [v.difference for v in listed if v.table in ("B.6", "B.8")]
    assert all(gap is not None and gap < 0.01 for gap in exact)


def test_topology_of_pubmed_is_compared_without_features(data_root: Path) -> None:
    sizes = [v for v in verdicts(Diagnosis("PubMed", data_root).run()) if v.table == "B.6"]
    assert {v.what: v.difference for v in sizes}["edges"] == 0
