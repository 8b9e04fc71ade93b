from types import SimpleNamespace
from typing import Any

import pytest

from graphtheory.papers.shallow_trials import Boundary, Phases, ends


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
