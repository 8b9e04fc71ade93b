"""Figure 6.5: which neurons are removed, and up to where nothing is lost."""

from dataclasses import replace

import pytest
import torch

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.figures_mechanism import neuron_rows
from graphtheory.papers.icl.figures_pruning import FIGURES, Pruned, free_rate, pruned_errors
from graphtheory.papers.icl.pruning import RULES
from graphtheory.papers.icl.training import Learner
from graphtheory.papers.icl.world import PromptTest, world

SMALL = Learner(steps=4, batch_size=8, width=20, length=5)
TEST = PromptTest(0.8, 6, 1.2)


def test_pruning_takes_the_rows_that_the_rule_names() -> None:
    rates = (0.0, 0.5, 1.0)
    rows = Pruned((SMALL,), (TEST,), prompts=200, seeds=2, rates=rates).measure(pruned_errors)
    errors = {
        (rule, rate): [
            r["error"]
            for r in rows
            if r["kind"] == "error" and (r["rule"], r["rate"]) == (rule, rate)
        ]
        for rule in RULES
        for rate in rates
    }
    assert errors["random", 0.0] == errors["smallest first", 0.0] == errors["largest first", 0.0]
    assert errors["random", 1.0] == [1.0, 1.0]  # an output of 0 is an error
    given = world(6, 0)
    model = icl.train(SMALL, given, 2, 0)
    norm = neuron_rows(model).norm(dim=2)
    with torch.no_grad():
        kept = norm.sort(1).indices[:, :10]
        model.W_O.scatter_(1, kept[..., None].expand(-1, -1, 60), 0.0)
    found = icl.outcomes(model, given.test(TEST), 200, TEST.seed(0))
    assert errors["smallest first", 0.5] == [o.error for o in found]
    norms = [r["norm"] for r in rows if r["kind"] == "norm" and r["seed"] == 1]
    assert norms == sorted(norms) and norms[-1] == pytest.approx(float(norm[1].max()))


def test_up_to_where_nothing_is_lost() -> None:
    start = [0.01, 0.02, 0.03]
    worse = [error + 0.02 for error in start]
    assert free_rate({0.0: start, 0.5: start, 0.7: worse, 0.9: start}) == 0.5
    noisy = [0.01, 0.02, 0.06]  # a mean gap of 0.01 with a standard error of 0.01
    assert free_rate({0.0: start, 0.5: noisy}) == 0.5
    assert free_rate({0.0: [0.01], 0.5: [0.02]}) == 0.0


@pytest.mark.parametrize("better", [True, False])
def test_the_verdict_of_figure_6_5b(better: bool) -> None:
    figure = FIGURES[1]
    grid = replace(figure.grid, seeds=3)
    errors = {0.4: 0.3, 0.6: 0.2, 0.8: 0.1 if better else 0.25}
    rows = [
        {"kind": "error", "width": 200, "rule": RULES[0], "rate": rate, "alpha": alpha,
         "domain": "out of domain", "seed": seed, "error": error + rate * rate / 10}
        for alpha, error in errors.items()
        for rate in (0.0, 0.1, 0.5)
        for seed in range(3)
    ] + [
        {"kind": "norm", "width": 200, "seed": seed, "rank": 0.5, "norm": 1.0, "small": 0.31}
        for seed in range(3)
    ]  # fmt: skip
    found = figure.report(grid, rows)
    assert "below 0.25 of the largest): 31 % at m = 200; claimed about 15 %" in found.verdict
    assert (
        f"at {3 if better else 0} of 3 rates: {'holds' if better else 'not found'}" in found.verdict
    )
    told = "alpha' = 0.4: nothing is lost up to 0 %, less far than the small neurons reach"
    assert told in found.verdict
    first, *_, last = found.rows
    assert list(first.parameters) == ["width", "rate", "alpha"]
    assert last.name == "fig-6-5b share of small neurons" and last.value == pytest.approx(0.31)
