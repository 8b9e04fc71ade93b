from dataclasses import replace
from typing import Any

import pytest
import torch

from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.papers.core_neighborhood import figures_core
from graphtheory.papers.core_neighborhood.figures_core import (
    BALL,
    FIGURES,
    NETWORKS,
    ONE_HOP,
    PLAIN,
    WIDER,
    WIDER_PLAIN,
    CoreDistance,
    by_network,
    chosen,
    gains,
    on_dataset,
    peaks,
    scores,
)
from tests.lab.bench.conftest import Listen

(FIGURE,) = FIGURES
SMALL = CoreDistance("karate", distances=(1, 2), farthest=2, budget=2, epochs=2, seeds=2)


def row(network: str, z: int, seed: int, test: float, **more: Any) -> dict[str, Any]:
    about = {"network": network, "z": z, "seed": seed, "test": test}
    return about | {"labeled": 10, "ties": 3, "empty": 1, "trial": {}} | more


def test_balls_and_depths_follow_the_distance() -> None:
    options = NodeRunConfig.of("gt", hidden=8, layers=2, neighbors="1", lr=0.5, residual=True)
    networks = [network.trial(options, 3).network for network in NETWORKS]
    assert [(n.layers, n.neighbors) for n in networks] == [
        (1, "3"), (1, "3"), (1, "4"), (1, "4"), (3, "1"), (3, "1"), (3, "1"), (3, "1")
    ]  # fmt: skip
    assert all(n.residual and n.hidden == 8 for n in networks)
    assert ONE_HOP[-1].trial(options, 1).network.layers == 2  # one layer would have no hidden one
    assert BALL.trial(options, 3).optimizer.lr == 0.5


def test_cells_of_a_small_grid(listen: Listen) -> None:
    trained = listen(figures_core)
    chosen.cache_clear()
    rows = SMALL.measure(scores)
    assert len(SMALL.cells()) == 32 and len(rows) == 28  # no ball of 3 hops
    # Two candidates of each of 14 cases are judged on the first seed, the better one trains twice.
    assert len(trained) == 14 * (2 + 2)
    assert {(r["z"], len(r["b"])) for r in rows if "b" in r} == {(1, 2), (1, 3), (2, 3)}
    assert all(r["labeled"] + r["ties"] + r["empty"] == 34 for r in rows)
    for one in rows:
        if "b" in one:
            assert sum(one["b"]) == pytest.approx(0, abs=1e-5)
    assert {r["network"] for r in rows if r["z"] == 2} == {
        n.name for n in NETWORKS if n.beyond != 1
    }


def test_candidates_are_judged_on_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen.cache_clear()
    judged = []

    class Outcome:
        def __init__(self, val: float) -> None:
            self.fit = type("Fit", (), {"val": val, "test": 1 - val})

    def run(trial: Any, data: Any, *, seed: int, **_: Any) -> Outcome:
        assert seed == 0
        judged.append(trial)
        return Outcome([0.2, 0.9, 0.1, 0.3][len(judged) - 1])

    monkeypatch.setattr(figures_core, "train_nodes", run)
    cell = replace(SMALL, distances=(2,), networks=(BALL,), budget=4, seeds=1)
    assert chosen(cell) is judged[1] and len(judged) == 4
    chosen.cache_clear()


def test_every_network_gets_as_many_candidates_of_the_same_options() -> None:
    draw = figures_core.candidates
    tried = {n.name: [n.trial(t, 2) for t in draw(n.model, 4)] for n in NETWORKS}
    assert {len(set(map(repr, trials))) for trials in tried.values()} == {4}
    for trials in tried.values():
        assert {(t.network.hidden, t.network.residual) for t in trials} == {(32, True)}


def test_gains_are_paired_by_seed_and_peaks_are_counted() -> None:
    rows = [
        *(row(BALL.name, z, s, 0.9 + s / 100) for z in (1, 2) for s in (0, 1)),
        *(row(PLAIN.name, z, s, 0.8 + s / 50) for z in (1, 2) for s in (0, 1)),
        row(WIDER.name, 2, 0, 0.9),
    ]
    found = gains(SMALL, rows)
    assert list(found) == ["ball of z"] and list(found["ball of z"]) == [2]
    assert found["ball of z"][2] == pytest.approx([10, 9])
    rows = [
        row(BALL.name, 1, 0, 0.9, b=[-1.0, 1.0]),
        row(BALL.name, 2, 0, 0.9, b=[-1.0, 3.0, 1.0]),
        row(WIDER.name, 1, 0, 0.9, b=[0.0, 2.0, 1.0]),
    ]
    verdict = peaks(replace(SMALL, seeds=5), rows)
    assert "gt, ball of z: b is largest at distance z in 1 of 2 networks" in verdict.text
    assert "claimed in all: not found" in verdict.text
    assert "gt, ball of z + 1: b is largest at distance z in 1 of 1" in verdict.text
    assert [one.value for one in verdict.rows] == [0.5, 1.0]


def test_report_of_a_small_grid() -> None:
    learned = {BALL: {"b": [0.0, 1.0, 2.0]}}
    rows = [
        row(n.name, z, s, 0.9 if n is BALL else 0.7, **learned.get(n, {}))
        for n in (BALL, PLAIN, ONE_HOP[0])
        for z in (2, 3)
        for s in (0, 1, 2)
        if not (n is ONE_HOP[0] and z == 3)
    ]  # fmt: skip
    made = FIGURE.report(replace(SMALL, seeds=3), rows)
    assert made.table.rows[0][0] == BALL.name and made.table.rows[2][2] == ""
    assert "20.0 [20.0, 20.0] at z = 2" in made.verdict and "at least 5: holds" in made.verdict
    assert "z = 2: 3 ties, 1 without a node there, 10 left" in made.table.note
    names = {r.name for r in made.rows}
    assert names >= {"core-distance test accuracy", "core-distance gain", "core-distance learned b"}
    assert made.picture is not None
    assert [len(axes.lines) for axes in made.picture.axes] == [2, 1, 2]
    assert WIDER_PLAIN.name not in by_network(rows)


def test_large_graphs_have_nearer_distances_and_the_encoding_pays_on_the_embedded_one() -> None:
    assert on_dataset(CoreDistance(), "Actor", None).distances == (1, 2)
    assert on_dataset(CoreDistance(), "Cora", None).distances == (1, 2, 3, 4, 5)
    quick = replace(FIGURE.settings("core-distance", quick=True), networks=(BALL, PLAIN))
    torch.manual_seed(0)
    rows = quick.measure(scores)
    assert gains(quick, rows)["ball of z"][2][0] > 10
    assert max(range(3), key=rows[0]["b"].__getitem__) == 2
