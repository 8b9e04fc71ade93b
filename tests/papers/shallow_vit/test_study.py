from dataclasses import replace

import pytest

from graphtheory.papers.shallow_vit import study as studies
from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.papers.shallow_vit.data import TokenPatterns
from graphtheory.papers.shallow_vit.study import Case, SparseStudy, TokenCurves, TokenPhases
from graphtheory.papers.shallow_vit.training import Learner
from tests.bench.conftest import nearly

LEARNER = Learner(steps=4, batch_size=4, width=12)
DATA = TokenPatterns(10, 0.4, 0.1)


def test_two_readings_of_the_confusion_share() -> None:
    kept = Case(LEARNER, DATA).at("alpha_star", 0.3)[1]
    rest = Case(LEARNER, DATA, others=0.5).at("alpha_star", 0.3)[1]
    assert (kept.alpha_star, kept.alpha_confusion) == (0.3, 0.1)
    assert rest.alpha_star == 0.3 and rest.alpha_confusion == pytest.approx(0.2)
    learner, data = Case(LEARNER, DATA).at("sigma", 0.7)
    assert learner.sigma == 0.7 and data == DATA


def test_rows_of_phases() -> None:
    study = TokenPhases("alpha_star", (0.3, 0.6), (4, 8), (Case(LEARNER, DATA),), (-2,), seeds=2)
    rows = study.run()
    assert [(r["alpha_star"], r["labels"], r["seed"]) for r in rows] == [
        (value, labels, seed) for value in (0.3, 0.6) for labels in (4, 8) for seed in (0, 1)
    ]
    assert study.run() == nearly(rows)


def test_rows_of_curves() -> None:
    study = TokenCurves((0.4,), (Case(LEARNER, DATA),), labels=10, every=2, seeds=2, first=5)
    rows = study.run()
    assert [(r["step"], r["seed"]) for r in rows] == [(s, t) for s in (0, 2, 4) for t in (5, 6)]
    assert all(0 < r["mass"] < 1 and r["hinge"] > 0 for r in rows)


def test_rows_of_sparsifiers() -> None:
    study = SparseStudy((10, 5), Case(LEARNER, DATA), (tokens.RELEVANT, tokens.RANDOM), 6, 2)
    rows = study.run()
    share = {(r["rule"], r["kept"]): r["alpha_star"] for r in rows}
    assert share[tokens.RELEVANT, 10] == share[tokens.RANDOM, 10] == pytest.approx(0.4)
    assert share[tokens.RELEVANT, 5] == pytest.approx(0.8) and len(rows) == 8


@pytest.mark.parametrize("figure", list(studies.STUDIES))
def test_every_figure_has_a_claim_for_each_case(figure: str) -> None:
    study = studies.STUDIES[figure]
    assert len(studies.quick(study).steps()) < len(study.steps()) or figure == "fig-2-4"
    if not isinstance(study, SparseStudy):
        assert len(study.claims) in (0, len(study.cases))
        assert len({case.name for case in study.cases}) == len(study.cases)
        assert all(replace(case).at("alpha_star", v) for case in study.cases for v in study.values
                   if study.axis == "alpha_star")  # fmt: skip
