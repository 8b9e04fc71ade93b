from dataclasses import replace
from typing import Any

import pytest

from graphtheory.models import zoo
from graphtheory.papers.study import Row
from graphtheory.papers.topology import sampling_study
from graphtheory.papers.topology.sampling_study import (
    FULL,
    MLP,
    NAMES,
    Candidate,
    Plan,
    SamplingStudy,
    choose,
    summary,
)

PLAN = Plan(epochs=4, patience=4, search_epochs=2, seeds=2, first=0, tried=({}, {"lr": 0.5}))


def row(sampler: str, seed: int, test: float, **more: Any) -> Row:
    return {
        "stage": "result", "sampler": sampler, "variant": "", "tried": 0, "budget": 0.1,
        "seed": seed, "val": test, "test": test, "star": None, "heard": 0.1, "edges": 0.1,
        "epochs": 1,
    } | more  # fmt: skip


def test_rows_of_a_small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sampling_study.PLANS, "karate", PLAN)
    study = SamplingStudy("karate", samplers=(FULL, MLP, "degree groups"), budgets=(0.3, 0.5))
    rows = study.run()
    searched = [r for r in rows if r["stage"] == "search"]
    assert [r["sampler"] for r in searched] == [FULL] * 4 + ["degree groups"] * 8
    assert {r["epochs"] for r in searched} == {2}
    results = [(r["sampler"], round(r["budget"], 1), r["seed"]) for r in rows[len(searched) :]]
    names = ((FULL, 1.0), (MLP, 1.0), ("degree groups", 0.3), ("degree groups", 0.5))
    assert results == [(*name, seed) for name in names for seed in (0, 1)]
    (sampled,) = (r for r in rows[-1:])
    assert sampled["star"] == sampled["test"]  # p* is 1
    assert 0.2 < sampled["heard"] < 0.9 and sampled["epochs"] == 4
    assert replace(study, seeds=1).run()[-1]["seed"] == 0


def test_options_are_those_of_the_gcn_but_for_the_change() -> None:
    first, second = (Candidate("LADIES", tried=place).trial("Cora") for place in (0, 1))
    assert second.network == replace(first.network, dropout=0.5)
    assert second.optimizer == replace(first.optimizer, weight_decay=5e-4)
    for name in NAMES:
        zoo.build(Candidate(name).trial("Cora").model, zoo.NetworkConfig(), num_features=3,
                  num_classes=2)  # fmt: skip


def test_what_is_chosen_is_best_on_validation_whatever_the_test() -> None:
    rows = [
        row("LADIES", 0, 0.9, val=0.5), row("LADIES", 1, 0.9, val=0.6),
        row("LADIES", 0, 0.1, val=0.7, tried=1), row("LADIES", 1, 0.1, val=0.5, tried=1),
    ]  # fmt: skip
    given = [Candidate("LADIES", tried=place, budget=0.1) for place in (0, 1)]
    assert choose([*given, Candidate(MLP)], rows) == [given[1], Candidate(MLP)]


def test_differences_are_paired_and_judged_by_one_point() -> None:
    rows = [
        row(FULL, 0, 0.80), row(FULL, 1, 0.90),
        row("LADIES", 1, 0.91), row("LADIES", 0, 0.78),
        row("FastGCN", 0, 0.78), row("FastGCN", 1, 0.885),
        row("FastGCN", 0, 0.99, stage="search"),
    ]  # fmt: skip
    _, ladies, fastgcn = summary(rows)
    assert ladies["gap"] == pytest.approx(-0.005) and ladies["within"]
    assert ladies["s.e."] == pytest.approx(0.015)
    assert fastgcn["gap"] == pytest.approx(-0.0175) and not fastgcn["within"]
    assert fastgcn["gaps"] == pytest.approx([-0.02, -0.015])
