from dataclasses import replace

import pytest

from graphtheory.bench.spaces import make_trial
from graphtheory.data import graphs
from graphtheory.models import zoo
from graphtheory.papers.core_neighborhood import encoding_study
from graphtheory.papers.core_neighborhood.encoding_study import CASES, Case, EncodingStudy, gains
from tests.bench.conftest import Listen


def test_cases_name_known_graphs_and_can_be_built() -> None:
    for case in CASES.values():
        assert case.dataset.lower() in {name.lower() for name in graphs.names("node")}
        for model in ("gt", "gt-plain"):
            zoo.build(model, case.trial.network, num_features=5, num_classes=3)


def test_rows_of_a_small_study(monkeypatch: pytest.MonkeyPatch, listen: Listen) -> None:
    trial = make_trial("gt", hidden=8, heads=2, neighbors="2", bias_lr=0.05)
    monkeypatch.setitem(encoding_study.CASES, "club", Case("karate", trial, 2, 3, 3))
    trained = listen(encoding_study)
    rows = EncodingStudy(("club",)).run()
    assert trained == [
        (replace(trial, model=model), seed) for seed in (0, 1) for model in ("gt", "gt-plain")
    ]
    assert [(r["case"], r["seed"]) for r in rows] == [("club", 0), ("club", 1)]
    assert all(0 <= r[m] <= 1 for r in rows for m in ("gt", "gt-plain"))
    assert EncodingStudy(("club",), seeds=1).run() == rows[:1]


def test_unknown_case() -> None:
    with pytest.raises(ValueError, match="cases: got 'pubmed', expected some of cora-1-hop"):
        EncodingStudy(("cora-1-hop", "pubmed")).run()


def test_gains_are_paired() -> None:
    rows = [
        {"case": "a", "seed": 0, "gt": 0.8, "gt-plain": 0.7},
        {"case": "a", "seed": 1, "gt": 0.6, "gt-plain": 0.7},
        {"case": "a", "seed": 2, "gt": 0.9, "gt-plain": 0.6},
        {"case": "b", "seed": 0, "gt": 0.5, "gt-plain": 0.25},
    ]
    a, b = gains(rows)
    # Differences 0.1, -0.1, 0.3: mean 0.1, standard deviation 0.2.
    assert a == pytest.approx(
        {"case": "a", "gt": 2.3 / 3, "gt-plain": 2 / 3, "gain": 0.1, "s.e.": 0.2 / 3**0.5,
         "seeds": 3}
    )  # fmt: skip
    assert b["gain"] == pytest.approx(0.25) and b["s.e."] == 0.0 and b["seeds"] == 1
