from graphtheory.papers.fusion.subspace_report import theorem_1
from graphtheory.papers.fusion.subspace_study import SubspaceStudy


def test_theorem_1_holds_on_every_half_space_and_theorem_2_says_nothing() -> None:
    study = SubspaceStudy(shapes=((4, 2, 1, 2), (20, 4, 3, 8)), noises=(1e-3, 0.1), seeds=3)
    rows = study.run()
    exact = [r for r in rows if r["kind"] == "exact"]
    assert len(exact) == 2 * 2 * 3 and len(rows) == 24
    for r in exact:
        assert r["between"] < 1e-12
        assert r["ratio"] >= 1 - 1e-6 if r["half_space"] else True
    assert min(r["least"] for r in exact if not r["half_space"]) < 0
    assert not any(r["bound"] and r["bound"]["factor"] > 1 for r in rows if r["kind"] == "noisy")
    report = theorem_1(study, rows)
    assert "Theorem 1 holds in 6 of 6 draws" in report.verdict
    assert "squares a negative number" in report.verdict or "no draw is" in report.verdict
    assert len(report.table.rows) == 4
