from dataclasses import replace

import pytest

from graphtheory.papers.shallow_vit.figures import FIGURES, Case, Sparsified, losses
from graphtheory.papers.shallow_vit.training import NOISE, RANDOM, RELEVANT, Learner, TokenPatterns
from tests.papers.conftest import Reproduced

CASE = Case(Learner(steps=4, batch_size=4, width=12), TokenPatterns(10, 0.4, 0.1))
(FIGURE,) = FIGURES


def test_rows_of_sparsifiers() -> None:
    grid = Sparsified(CASE, (RELEVANT, RANDOM), (10, 5), 6, 2)
    rows = grid.measure(losses)
    share = {(r["rule"], r["kept"]): r["alpha_star"] for r in rows}
    assert share[RELEVANT, 10] == share[RANDOM, 10] == pytest.approx(0.4)
    assert share[RELEVANT, 5] == pytest.approx(0.8) and len(rows) == 8


def test_every_rule_but_a_random_one_is_claimed_to_help() -> None:
    rows = [
        {"rule": rule, "kept": kept, "seed": seed, "hinge": kept + seed}
        for rule in (RANDOM, NOISE)
        for kept in (50, 40, 30)
        for seed in range(3)
    ]
    told = [claim(FIGURE.grid, rows).text for claim in FIGURE.claims]
    assert told[0].startswith("at random: ") and told[0].endswith("does not rise: not found.")
    assert told[1].startswith("noisiest first: ") and told[1].endswith("claimed: rises: holds.")


def test_the_command_prints_and_draws(reproduced: Reproduced) -> None:
    def small(grid: Sparsified) -> Sparsified:
        learner = replace(grid.case.learner, steps=20, width=20)
        case = replace(grid.case, learner=learner, data=replace(grid.case.data, tokens=10))
        return replace(grid, case=case, kept=(10, 6), labels=6, seeds=2)

    assert "at random: the loss" in reproduced("fig-2-5", small)
    assert len(FIGURE.quick(FIGURE.grid).cells()) < len(FIGURE.grid.cells())
