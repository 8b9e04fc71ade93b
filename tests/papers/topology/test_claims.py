from typing import Any

import pytest

from graphtheory.papers.topology import claims
from graphtheory.papers.topology.claims import Best, best_sampler, best_target
from graphtheory.papers.topology.study import SAMPLERS


def row(**entries: Any) -> dict[str, Any]:
    return {"name": "a", "norm": 1.0, "labels": 10, "width": 5, "seed": 0} | entries


def of_norms(errors: dict[tuple[float, int], tuple[float, ...]]) -> list[dict[str, Any]]:
    """Rows of graphs by norm and number of labels; the error itself goes the other way."""
    return [
        row(name=f"norm {norm}", norm=norm, labels=labels, seed=seed, error=error, mse=-error)
        for (norm, labels), of in errors.items()
        for seed, error in enumerate(of)
    ]


def test_curves_and_norms_by_hand() -> None:
    rows = of_norms({
        (1.0, 10): (0.9, 0.8, 0.7), (1.0, 20): (0.5, 0.4, 0.3),
        (3.0, 10): (0.9, 0.8, 0.7), (3.0, 20): (0.95, 0.6, 0.9),
        (2.0, 10): (0.2, 0.1, 0.3), (2.0, 20): (0.6, 0.5, 0.4),
    })  # fmt: skip
    assert claims.averages(rows, "labels")["norm 1.0"] == pytest.approx({10: 0.8, 20: 0.4})
    falling = claims.falling(rows, "labels")
    assert list(falling) == ["norm 1.0", "norm 3.0", "norm 2.0"]
    words = [one.direction for one in falling.values()]
    assert words == ["falls", "no trend", "rises"]
    assert str(claims.over_norm(rows, "labels")) == "1.00 [1.00, 1.00]"  # 0.4, 0.5, 0.82
    assert claims.over_norm(rows, "labels", "mse").direction == "falls"


def test_seeds_of_a_graph_stay_together_whatever_the_order_of_the_rows() -> None:
    """Seeds differ by more than graphs: only differences within a seed tell the trend."""
    rows = of_norms({(norm, 20): tuple(norm / 10 + s for s in range(3)) for norm in (1.0, 2.0)})
    found = claims.over_norm(rows[::-1], "labels")
    assert (found.rho, found.low, found.high) == (1, 1, 1)


def test_a_network_that_diverged_is_the_worst() -> None:
    inf = float("inf")
    rows = of_norms({(1.0, 20): (0.1, 0.2, 0.1), (2.0, 20): (0.1, inf, 0.1)})
    assert claims.over_norm(rows, "labels").rho == 1


def test_best_target_and_best_sampler_by_hand() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    errors = {(a, a): (0.2, 0.5), (a, b): (0.3, 0.3), (b, a): (0.1, 9.0), (b, b): (0.2, 0.2)}
    rows = [
        row(learner=f"{p}", sampler=SAMPLERS[0], p_star=list(p), p_hat=list(q), seed=s, error=error)
        for (p, q), both in errors.items()
        for s, error in enumerate(both)
    ]
    lost = row(learner="F", sampler=SAMPLERS[1], p_star=[1, 1], p_hat=list(b), error=float("inf"))
    found = best_target([*rows, lost])
    assert {name: (best.at, best.seeds, best.of) for name, best in found.items()} == {
        f"{a}": (b, 1, 2), f"{b}": (b, 1, 2), "F": (None, 0, 1),
    }  # fmt: skip
    assert found[f"{a}"].share == pytest.approx(0.75, abs=0.05)  # not of the first seed alone
    assert found["F"].share == 0 and not found[f"{a}"].holds(b)
    by_target = best_sampler([*rows, lost])
    assert (by_target[a].at, by_target[a].seeds) == (a, 1)
    assert by_target[b] == Best(b, 2, 2, 1.0)
    assert by_target[b].holds(b) and not by_target[b].holds(a)


def test_of_several_numbers_of_labels_the_best_is_of_the_largest() -> None:
    a, b = (0.9, 0.1), (0.5, 0.5)
    rows = [
        row(learner="L", sampler=SAMPLERS[0], p_star=list(q), p_hat=list(q), seed=s, labels=labels,
            error=error)
        for labels, errors in ((20, {a: 0.3, b: 0.2}), (10, {a: 0.1, b: 0.9}))
        for q, error in errors.items()
        for s in range(3)
    ]  # fmt: skip
    assert best_target(rows) == {"L": Best(b, 3, 3, 1.0)}
    assert best_sampler(rows) == {a: Best(a, 3, 3, 1.0), b: Best(b, 3, 3, 1.0)}
