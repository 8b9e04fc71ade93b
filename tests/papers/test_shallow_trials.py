import math
from types import SimpleNamespace
from typing import Any

import pytest

from graphtheory.papers.shallow_trials import (
    Boundary,
    Curves,
    Phases,
    Speed,
    attention_claims,
    ends,
)


def cell(value: float, labels: int, hinges: list[float], setting: str = "v") -> list[dict]:
    return [
        {"case": "GT", setting: value, "labels": labels, "seed": seed, "hinge": hinge}
        for seed, hinge in enumerate(hinges)
    ]


def grid(seeds: int, **options: Any) -> Phases:
    case = SimpleNamespace(name="GT")
    return Phases(cases=(case,), setting="v", seeds=seeds, values=(), labels=(), **options)


def test_counts_of_successes_at_what_is_shown_of_a_value() -> None:
    rows = [
        *cell(0.0, 4, [0, 0, 1]), *cell(0.0, 8, [0, 0, 0]),
        *cell(0.2, 4, [1, 1, 1e-3]), *cell(0.2, 8, [1, 1, 9e-4]),
    ]  # fmt: skip
    law = Boundary("v", (-2,), letter="1 - v", shown=lambda v: 1 - v)
    found = law.successes(grid(3), rows)["GT"]
    assert found.values.tolist() == [1.0, 0.8] and found.labels.tolist() == [4, 8]
    assert found.counts.tolist() == [[2, 3], [0, 1]]
    shown = law.show(grid(3), rows)
    assert list(shown.table.columns)[:3] == ["case", "1 - v = 1", "1 - v = 0.8"]
    share = [row for row in shown.rows if row.name == "share of successes"]
    assert [row.value for row in share] == pytest.approx([2 / 3, 1, 0, 1 / 3])
    assert share[-1].parameters == {"case": "GT", "1 - v": 0.8, "labels": 8}
    loss = [row for row in shown.rows if row.name == "test hinge loss"]
    assert loss[-1].median == 1 and loss[-1].repeats == 3


def test_the_law_of_the_labels_at_which_half_succeed() -> None:
    law = Boundary("v", (-1,))
    rows = [
        row
        for value in (0.2, 0.4, 0.8)
        for labels in (4, 8, 16, 32)
        for row in cell(value, labels, [float(labels * value < 3)] * 20)
    ]
    found = law.claim.find(law.successes(grid(20), rows)["GT"])
    assert found is not None and found.exponent == pytest.approx(-1, abs=0.2)
    shown = law.show(grid(20), rows)
    (line,) = shown.table.rows
    assert 8 < float(line[1]) < 16 and line[-2:] == [str(found), "-1"]
    assert shown.rows[-1].name == "exponent of the labels, upper end"
    assert len(law.picture(grid(20), rows, "title").axes) == 2  # a panel and the shades
    assert "claimed -1: not found" in law.claim(grid(20), rows).text  # no trial contradicts -0.99


def test_a_quick_form_has_the_ends() -> None:
    assert ends((1, 2, 3)) == (1, 3) and ends((1,)) == (1,) and ends(()) == ()


CASE = SimpleNamespace(name="GT")
GRID = Curves(cases=(CASE,), setting="v", values=(0.2, 0.4, 0.8), labels=8, every=2, first=5)


def curve(value: float, seed: int, *points: tuple[int, float], key: str = "hinge") -> list[dict]:
    about = {"case": "GT", "v": value, "seed": seed}
    return [about | {"step": step, key: measure} for step, measure in points]


@pytest.mark.parametrize(("until_learned", "ends"), [(True, [False, True]), (False, [False] * 2)])
def test_looks_at_some_steps_end_where_all_have_learned(
    until_learned: bool, ends: list[bool]
) -> None:
    grid = Curves(
        cases=(CASE,), setting="v", values=(), labels=8, every=2, first=5,
        until_learned=until_learned,
    )  # fmt: skip
    model: Any = None
    losses = iter([[0.0, 1.0], [0.0, 0.0]])
    watch, rows = grid.watch(CASE, 0.4, lambda _: [{"hinge": h} for h in next(losses)])
    assert [watch(0, model), watch(1, model), watch(2, model)] == [ends[0], False, ends[1]]
    assert rows == [
        {"case": "GT", "v": 0.4, "step": step, "seed": seed, "hinge": hinge}
        for step, seed, hinge in ((0, 5, 0.0), (0, 6, 1.0), (2, 5, 0.0), (2, 6, 0.0))
    ]


def test_speed_leaves_out_where_a_trial_never_arrives() -> None:
    law = Speed("v", (-1,), (0.1001,))
    rows = []
    for value, last in ((0.2, 1), (0.4, 40), (0.8, 20)):
        for seed in range(3):
            low = 1.0 if value == 0.2 and seed else 0.1
            rows += curve(value, seed, (0, 1.0), (last * (1 + seed / 100), low))
    shown = law.show(GRID, rows)
    (line,) = shown.table.rows
    assert line[:2] == ["GT, loss below 0.1001", "none"] and line[-1] == "-1"
    parts = {row.name: row for row in reversed(shown.rows)}
    assert parts["exponent of the steps"].value == pytest.approx(-1, abs=0.01)
    assert parts["exponent of the steps"].parameters == {"case": line[0]}
    share = parts["share of trials that get there"]
    assert share.value == pytest.approx(1 / 3)
    assert share.parameters == {"case": "GT", "loss": 0.1001, "v": 0.2}
    assert parts["steps of those"].value < 1.01 < math.inf
    (claim,) = law.claims
    assert "steps ~ (v)^-1.00" in claim(GRID, rows).text and "holds" in claim(GRID, rows).text
    assert law.picture(GRID, rows, "title") is not None
    assert law.picture(GRID, [row for row in rows if row["v"] == 0.2], "title") is None


def test_attention_at_the_end_and_over_the_steps() -> None:
    def told(last: float) -> list[str]:
        rows = [
            row
            for seed in range(3)
            for row in curve(
                0.5, seed, *((s, m + seed / 100) for s, m in ((0, 0.2), (10, 0.5), (20, last))),
                key="mass",
            )
        ]  # fmt: skip
        return [claim(GRID, rows).text for claim in attention_claims("relevant nodes")]

    close, rises = told(0.96)
    assert close.startswith("GT: attention on relevant nodes is 0.970 [0.96") and "holds" in close
    assert "rises with the steps (1.00 [1.00, 1.00])" in rises and "holds" in rises
    close, rises = told(0.6)
    assert "at step = 20, claimed at least 0.95: not found" in close and "holds" in rises
    assert "falls with the steps" in told(0.1)[1] and "not found" in told(0.1)[1]
