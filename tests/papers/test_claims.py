import math

import pytest

from graphtheory.papers.claims import Crossing

CLAIM = Crossing("examples", "contexts")


def curve(value: float, needed: float, seed: int) -> list[dict]:
    """Errors that fall as the length to the power -2 and are the threshold at `needed`."""
    return [
        {"panel": "CoT", "series": f"tau = {value}", "value": value, "seed": seed, "contexts": n,
         "error": CLAIM.threshold * (needed / n) ** 2}
        for n in (5, 10, 20, 40, 80, 160)
    ]  # fmt: skip


def test_the_exponent_of_the_size_that_is_needed() -> None:
    rows = [
        row
        for value in (0.2, 0.4, 0.8)
        for seed in range(3)
        for row in curve(value, 3 * value**-1.5 * (1 + seed / 10), seed)
    ]
    needed = CLAIM.needed(rows)
    assert needed[0.2] == pytest.approx([3 * 0.2**-1.5 * f for f in (1, 1.1, 1.2)])
    found = CLAIM.fit(needed, 5)  # at 0.8 the 5 examples are enough, so that two values are left
    assert found is not None and found.exponent == pytest.approx(-1.5)
    verdict = CLAIM(None, rows)
    assert "fewer with every larger value: holds" in verdict.text
    assert any(row.name == "exponent" for row in verdict.rows)


def test_what_is_never_reached_has_no_exponent() -> None:
    rows = [row | {"error": 0.5} for v in (0.2, 0.4) for s in range(3) for row in curve(v, 9, s)]
    assert CLAIM.needed(rows)[0.2] == [math.inf] * 3
    verdict = CLAIM(None, rows)
    assert "needs more, more examples" in verdict.text and "not found" in verdict.text
    assert [row.value for row in verdict.rows] == [0, 0]
