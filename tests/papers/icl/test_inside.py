import pytest
import torch

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.errors import Exam, matching
from graphtheory.papers.icl.inside import RULES, MechanismStudy, PruneStudy, neuron_rows
from graphtheory.papers.icl.training import Learner

SMALL = Learner(steps=4, batch_size=8, width=20, length=5)
TESTS = (Exam(0.8, 6), Exam(0.8, 6, 1.2))


def test_looks_before_and_after() -> None:
    rows = MechanismStudy(SMALL, TESTS, every=3, prompts=20, seeds=2, first=1).run()
    assert sorted({r["step"] for r in rows}) == [0, 3, 4]
    looks = matching(rows, kind="look", step=0)
    assert [(r["seed"], r["domain"]) for r in looks] == [
        (1, "in domain"), (2, "in domain"), (1, "out of domain"), (2, "out of domain"),
    ]  # fmt: skip
    for row in looks:  # W_Q = W_K = delta, and a pattern has length 3
        assert row["query along"] == pytest.approx(0.3, rel=1e-3)
        assert row["key whole"] >= row["key along"] - 1e-4
        assert row["same"] + row["rival"] + row["other"] == pytest.approx(1, rel=1e-3)
    neurons = matching(rows, kind="neuron", step=4)
    assert [r["sign"] for r in neurons] == [1] * 5 + [-1] * 5
    assert len(matching(rows, kind="neurons", step=4)) == 2


def test_pruning_takes_the_rows_that_the_rule_names() -> None:
    rates = (0.0, 0.5, 1.0)
    study = PruneStudy((SMALL,), TESTS[1:], RULES, rates, prompts=200, seeds=2)
    rows = study.run()
    errors = {
        (rule, rate): [r["error"] for r in matching(rows, kind="error", rule=rule, rate=rate)]
        for rule in RULES
        for rate in rates
    }
    assert errors["random", 0.0] == errors["smallest first", 0.0] == errors["largest first", 0.0]
    assert errors["random", 1.0] == [1.0, 1.0]  # an output of 0 is an error
    given = icl.world(SMALL, 0)
    model = icl.train(SMALL, given, 2, 0)
    norm = neuron_rows(model).norm(dim=2)
    with torch.no_grad():
        model.W_O[norm < norm.median(1, keepdim=True).values] = 0.0
        kept = norm.sort(1).indices[:, :10]
        model.W_O.scatter_(1, kept[..., None].expand(-1, -1, 60), 0.0)
    found = icl.outcomes(model, given.source(0.8, 6, 1.2), 200, TESTS[1].seed(0))
    assert errors["smallest first", 0.5] == [o.error for o in found]
    norms = [r["norm"] for r in matching(rows, kind="norm", seed=1)]
    assert norms == sorted(norms) and norms[-1] == pytest.approx(float(norm[1].max()))
