import pytest
import torch

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.topology.diagnosis import (
    SAMPLERS,
    SamplingDiagnosis,
    sampling_picture,
    sampling_tables,
)
from graphtheory.patterns import FastGCN

NAMES = ("nodes", "mean degree", "psi", "largest p*", "smallest share")


def named(rows: list[Row], name: str) -> list[float]:
    return [row.value for row in rows if row.name == name]


@pytest.mark.parametrize("sampling", SAMPLERS)
def test_every_sampler_has_its_report(sampling: str) -> None:
    rows = SamplingDiagnosis(sampling=sampling, draws=4).run()
    norms, groups, *nodes = sampling_tables(rows)
    assert len(groups.rows) == 3
    assert len(norms.rows) == (4 if sampling.endswith("symmetric") else 3)
    assert sum(named(rows, "group nodes")) == 34
    assert named(rows, "norm of A^s - A*")[0] > 0
    assert sampling_picture(rows).axes
    kept = named(rows, "group influence of A* over A")
    if sampling == "ladies-normalized":
        assert nodes[0].rows
    else:  # A* = A: of half of the karate club nobody comes for certain
        assert kept == pytest.approx([1, 1, 1]) and nodes == []
    if sampling == "ladies-normalized":
        assert "mean of 200 draws" in norms.rows[1][0] and "±" in norms.rows[1][1]


def test_biased_fastgcn_takes_from_the_largest_columns() -> None:
    rows = SamplingDiagnosis(sampling="fastgcn-biased", share=0.8).run()
    assert named(rows, "loses most")[0] < 1 < named(rows, "gains most")[0]
    hub = [r.parameters["node"] for r in rows if r.name == "loses most"]
    assert 33 in hub  # the node of the largest degree


def test_groups_are_those_of_the_formulas() -> None:
    p_star = (0.9, 0.5, 0.1)
    plain, both = (
        SamplingDiagnosis(sampling=name, p_star=p_star, draws=2).run()
        for name in ("degree-groups", "degree-groups-symmetric")
    )
    size, degree, psi, largest, share = (
        torch.tensor(named(plain, f"group {name}"), dtype=torch.float64) for name in NAMES
    )
    p = torch.tensor(p_star, dtype=torch.float64)
    torch.testing.assert_close(psi, (degree[2] * degree).sqrt() * size / (degree * size).sum())
    torch.testing.assert_close(largest, 1 / (3 * psi))
    torch.testing.assert_close(share, 1 / (1 + 0.1 / (3 * p * psi)))
    squared = torch.tensor(named(both, "group largest p*"), dtype=torch.float64)
    torch.testing.assert_close(squared, largest.square())
    assert named(plain, "group influence of A* over A") == pytest.approx(p_star)


def test_what_is_unknown_is_refused_and_the_seed_decides() -> None:
    with pytest.raises(ValueError, match="sampling: got 'no', expected one of"):
        SamplingDiagnosis(sampling="no").run()
    with pytest.raises(ValueError, match="p_star: 1 values, expected one for each of 3 groups"):
        SamplingDiagnosis(sampling="uniform", p_star=(1.0,)).run()
    with pytest.raises(ValueError, match="draws"):
        SamplingDiagnosis(draws=1).run()
    one, same, other = (SamplingDiagnosis(seed=s, draws=3).run() for s in (1, 1, 2))
    assert one == same and named(one, "norm of A^s - A*") != named(other, "norm of A^s - A*")


def test_what_is_used_stands_beside_what_is_admitted() -> None:
    rows = SamplingDiagnosis(share=1.0, p_star=(0.9, 0.01, 0.01), draws=2).run()
    assert named(rows, "group p*") == [0.9, 0.01, 0.01]
    assert named(rows, "group share drawn") == [1, 1, 1]
    norms, table, *_ = sampling_tables(rows)
    assert table.columns[-2:] == ("p*", "share drawn")
    large = named(rows, "group largest p*")[0] < 0.9
    assert table.note.endswith(
        "Outside: group 1: p* too large." if large else "All groups are inside."
    )
    few = SamplingDiagnosis(share=0.1, p_star=(0.9, 9.0, 0.01), draws=2).run()
    note = sampling_tables(few)[1].note
    assert "group 2: p* too large" in note and "group 2: share too small" in note
    assert "E[A^s]" not in str(norms.rows)


def test_symmetric_draws_and_nodes_of_an_estimate_beside_their_error() -> None:
    rows = SamplingDiagnosis(sampling="degree-groups-symmetric", draws=2).run()
    (off,) = named(rows, "norm of E[A^s] - A*")
    assert 0 < off < named(rows, "norm of A*")[0]
    assert sampling_tables(rows)[0].rows[3] == ("norm of E[A^s] - A*", f"{off:.4f}")
    rows = SamplingDiagnosis(sampling="ladies-normalized").run()
    listed = [r for r in rows if r.name in ("loses most", "gains most")]
    assert listed and all(abs(r.value - 1) > 3 * r.parameters["error"] > 0 for r in listed)
    assert all("±" in line[-1] for line in sampling_tables(rows)[2].rows)


def test_chance_alone_lists_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastGCN, "expected", lambda *_: None)  # A* = A, but only draws tell
    rows = SamplingDiagnosis(sampling="fastgcn", draws=4).run()
    assert named(rows, "loses most") == named(rows, "gains most") == []
    assert named(rows, "standard error of the norm of A*")[0] > 0
