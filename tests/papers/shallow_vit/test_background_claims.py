import math

import pytest

from graphtheory.papers.shallow_vit import background_claims as claims


def row(alpha: float, labels: int, accuracy: float, seed: int = 0) -> dict[str, float]:
    return {"alpha_star": alpha, "labels": labels, "seed": seed, "accuracy": accuracy}


def test_images_needed_lie_on_a_line_in_the_logarithm() -> None:
    rows = [row(0.5, 100, 0.2), row(0.5, 400, 0.6), row(1.0, 100, 0.5), row(1.0, 400, 0.7),
            row(0.6, 100, 0.1), row(0.6, 400, 0.3)]  # fmt: skip
    found = claims.needed(rows, 0.4)
    assert found[0.5] == [pytest.approx(200)] and found[1.0] == [0.0]
    assert found[0.6] == [math.inf]
    assert claims.growth(found) is None


def test_an_exponent_is_found_again() -> None:
    law = claims.growth({a: [100 * a**-2, 102 * a**-2] for a in (0.5, 0.7, 1.0)})
    assert law is not None and law.exponent == pytest.approx(-2) and law.low <= -2 <= law.high


def test_gains_and_directions() -> None:
    rows = [row(a, 100, a / 2 + s / 10, s) for a in (0.6, 0.8, 1.0) for s in (0, 1)]
    assert claims.gains(rows, "alpha_star") == [pytest.approx(0.2)] * 2
    assert claims.direction(rows, "alpha_star").direction == "rises"
