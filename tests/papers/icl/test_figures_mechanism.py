"""Figure 6.2: what is measured on the way, and what it says of the claims."""

from dataclasses import replace

import pytest

from graphtheory.papers.icl.figures_mechanism import FIGURES, Dynamics, looks
from graphtheory.papers.icl.training import Learner, PromptTest

SMALL = Learner(steps=4, batch_size=8, width=20, length=5)
TESTS = (PromptTest(0.8, 6), PromptTest(0.8, 6, 1.2))


def test_looks_before_and_after() -> None:
    rows = Dynamics((SMALL,), TESTS, every=3, prompts=20, seeds=2, first=1).measure(looks)
    assert sorted({r["step"] for r in rows}) == [0, 3, 4]
    seen = [r for r in rows if r["kind"] == "look" and r["step"] == 0]
    assert [(r["seed"], r["domain"]) for r in seen] == [
        (1, "in domain"), (2, "in domain"), (1, "out of domain"), (2, "out of domain"),
    ]  # fmt: skip
    for row in seen:  # W_Q = W_K = delta, and a pattern has length 3
        assert row["query along"] == pytest.approx(0.3, rel=1e-3)
        assert row["key whole"] >= row["key along"] - 1e-4
        assert row["same"] + row["rival"] + row["other"] == pytest.approx(1, rel=1e-3)
    neurons = [r for r in rows if r["kind"] == "neuron" and r["step"] == 4]
    assert [r["sign"] for r in neurons] == [1] * 5 + [-1] * 5
    assert sum(r["kind"] == "neurons" and r["step"] == 4 for r in rows) == 2


def test_claims_compare_the_ends() -> None:
    figure = FIGURES[0]
    grid = replace(figure.grid, learners=(SMALL,), tests=TESTS, every=4, prompts=20, seeds=3)
    rows = grid.measure(looks)
    for row in rows:
        if row["kind"] == "look" and row["step"] == 4:
            row |= {"same": 0.96 if row["domain"] == "in domain" else 0.9}
            row |= {"query along": 0.9, "query whole": 1.0, "key along": 0.1, "key whole": 1.0}
    told = figure.report(grid, rows).verdict
    assert "pattern in domain: 0.960, claimed near 1: holds" in told
    assert "pattern out of domain: 0.900, claimed near 1: not found" in told
    queries, keys = told.split("of a query")[1].split("of a key")
    assert "0.90 after training" in queries and ": grows." in queries
    assert "0.10 after training" in keys and ": does not grow." in keys
