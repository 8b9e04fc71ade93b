"""Theorems 1 and 2."""

from graphtheory.papers.fusion.figures_theorem import FIGURES, Theorems, draws, subspaces

(FIGURE,) = FIGURES


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
    report = FIGURE.report(grid, rows)
    assert "Theorem 1 holds in 6 of 6 draws" in report.verdict
    assert "squares a negative number" in report.verdict or "no draw is" in report.verdict
    assert len(report.table.rows) == 4
    assert {row.name.split()[0] for row in report.rows} == {"theorem-1", "theorem-2"}
