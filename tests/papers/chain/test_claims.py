import math

import pytest

from graphtheory.papers.chain import claims
from graphtheory.papers.chain.metrics import MASSES


def curve(value: float, needed: float, seed: int) -> list[dict]:
    """Errors that fall as the length to the power -2 and are the threshold at `needed`."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": claims.ENOUGH * (needed / n) ** 2}
        for n in (5, 10, 20, 40, 80, 160)
    ]  # fmt: skip


def test_the_exponent_of_what_is_needed() -> None:
    rows = [
        row
        for value in (0.2, 0.4, 0.8)
        for seed in range(3)
        for row in curve(value, 3 * value**-1.5 * (1 + seed / 10), seed)
    ]
    found = claims.growth(rows)["CoT"]
    assert found["needed"][0.2] == pytest.approx([3 * 0.2**-1.5 * f for f in (1, 1.1, 1.2)])
    assert found["falls"] and found["found"] is not None
    # 0.8 is enough at once with 5 examples, so that two values are left
    assert found["found"].exponent == pytest.approx(-1.5)
    never = claims.growth([r | {"error": 0.5} for r in rows])["CoT"]
    assert never["found"] is None and not never["falls"]
    assert never["needed"][0.2] == [math.inf] * 3


def look(step: int, seed: int, head: int, *mass: float) -> dict:
    own = {"own columns": 1 - sum(mass)}
    where = {"step": step, "seed": seed, "layer": 1, "head": head}
    return where | own | dict(zip(MASSES, mass, strict=True))


def test_stages_and_the_best_head() -> None:
    rows = [
        look(0, 0, 1, 0.2, 0.2, 0.3, 0.3), look(0, 0, 2, 0.25, 0.25, 0.25, 0.25),
        look(9, 0, 1, 0.3, 0.6, 0.05, 0.0), look(9, 0, 2, 0.1, 0.1, 0.4, 0.4),
    ]  # fmt: skip
    later = look(20, 0, 1, 0.98, 0.02, 0.0, 0.0)
    first = [row for row in rows if row["head"] == 1]
    assert claims.stages(first) == {0: (9, math.inf)}  # 0.05 of 0.6 is less than a tenth
    assert claims.stages([*first, later]) == {0: (9, 20)}  # 0.02 / 1 of 0.2 / 0.4
    pattern_first = look(9, 0, 1, 0.49, 0.01, 0.25, 0.25)
    assert claims.stages([first[0], pattern_first]) == {0: (math.inf, 9)}
    best = claims.best_heads(rows)[1]
    assert best == {"start": 0.2, "end": 0.3, "leads": 0, "seeds": 1}
    assert claims.best_heads([*rows, later])[1]["leads"] == 1
    own_columns = look(20, 0, 1, 0.3, 0.2, 0.0, 0.0)
    assert claims.best_heads([*rows, own_columns])[1]["leads"] == 0
