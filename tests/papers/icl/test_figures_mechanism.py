"""Figure 6.2: what is measured on the way, and what it says of the claims."""

from dataclasses import replace

import pytest
import torch

from graphtheory.papers.icl.figures_mechanism import (
    FIGURES,
    Dynamics,
    looks,
    mass_by_kind,
    neuron_alignment,
    projection,
)
from graphtheory.papers.icl.training import Learner, PromptTest


def test_attention_is_shared_out_by_kind() -> None:
    pattern = torch.tensor([[0, 1, 2, 0, 0], [2, 2, 0, 1, 0], [1, 2, 1, 2, 0]])
    task = torch.tensor([[0, 1], [1, 0], [0, 1]])
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25] * 4])
    found = mass_by_kind(weights, pattern, task)  # the last prompt cannot hit its pattern
    assert found["same"] == pytest.approx((0.5 + 0.2) / 2)
    assert found["rival"] == pytest.approx((0.2 + 0.1) / 2)
    assert found["other"] == pytest.approx((0.3 + 0.7) / 2)
    assert found["uniform same"] == pytest.approx((0.5 + 0.25) / 2)
    twice = mass_by_kind(torch.stack([weights, weights]), pattern, task)
    assert twice == pytest.approx(found)
    with pytest.raises(ValueError, match="no prompt has a context"):
        mass_by_kind(weights[2:], pattern[2:], task[2:])


def test_shares_along_the_pattern_and_what_neurons_point_at() -> None:
    weight = torch.zeros(4, 3)
    weight[0, 0], weight[3, 0], weight[1, 1] = 2.0, 1.5, 5.0
    columns = torch.tensor([[3.0, 0.0, 9.0], [3.0, 0.1, 0.0]])
    found = projection(weight, columns, 3 * torch.eye(2), torch.tensor([0, 0]))
    assert found.along == pytest.approx(6)
    assert found.across == pytest.approx(0.25)
    assert found.whole == pytest.approx((7.5 + (7.5**2 + 0.25) ** 0.5) / 2)
    with pytest.raises(ValueError, match="directions: d_x = 5, expected at most m_a = 4"):
        projection(weight, columns, torch.eye(5), torch.tensor([0, 0]))
    mean, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    rows = torch.tensor([[3.0, 0.0, 0.0, -4.0], [0.0, 1.0, 0.0, 1.0], [0.0] * 4])
    found = neuron_alignment(rows, torch.tensor([-0.1, -0.1, 0.1]), mean, q)
    assert found.input_norm.tolist() == [3, 1, 0] and found.label_norm.tolist() == [4, 1, 0]
    assert found.input_cosine.tolist() == [1, 0, 0]
    assert found.label_cosine.tolist() == [1, -1, 0]


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
