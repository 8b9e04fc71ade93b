from dataclasses import replace

import pytest

from graphtheory.data.pattern_graph import CoreNeighborhoodGraph
from graphtheory.papers.core_neighborhood import study as studies
from graphtheory.papers.core_neighborhood import training as core
from graphtheory.papers.core_neighborhood.study import Case, CurveStudy, PhaseStudy
from graphtheory.papers.core_neighborhood.training import GCN, Learner
from tests.bench.conftest import nearly

LEARNER = Learner(steps=4, batch_size=4, width=12, embedding=18, samples=5)
CASES = (Case(LEARNER, "regular"), Case(replace(LEARNER, network=GCN), "regular"))


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def capped(graph: CoreNeighborhoodGraph) -> CoreNeighborhoodGraph:
        return replace(graph, num_nodes=80, degree=8)

    monkeypatch.setattr(core, "capped", capped)


def test_rows_of_phases() -> None:
    study = PhaseStudy("gamma_d", (0.3, 0.5), (4, 8), CASES, (-2, -4), seeds=2)
    rows = study.run()
    assert [(r["case"], r["labels"], r["seed"], r["gamma_d"]) for r in rows] == [
        (case.name, labels, seed, value)
        for case in CASES
        for labels in (4, 8)
        for seed in (0, 1)
        for value in (0.3, 0.5)
    ]
    assert study.run() == nearly(rows)


def test_rows_of_curves() -> None:
    study = CurveStudy("eps_0", (0.0, 0.2), CASES[:1], labels=10, every=2, seeds=2)
    rows = study.run()
    assert [(r["eps_0"], r["step"], r["seed"]) for r in rows] == [
        (value, step, seed) for value in (0.0, 0.2) for step in (0, 2, 4) for seed in (0, 1)
    ]
    assert all(0 < r["mass"] < 1 and r["hinge"] > 0 for r in rows)


@pytest.mark.parametrize("figure", [*studies.PHASES, *studies.CURVES])
def test_every_figure_has_a_claim_for_each_case(figure: str) -> None:
    study = studies.study(figure)
    assert len(study.claims) in (0, len(study.cases))
    assert len({case.name for case in study.cases}) == len(study.cases)
    assert len(studies.quick(study).steps()) < len(study.steps()) or figure == "fig-3-5"
