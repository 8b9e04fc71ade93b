import math

import pytest
import torch

from graphtheory.papers.icl.data import Patterns, section_6_5, unmet_conditions

DRAW = torch.Generator()


def test_patterns_of_the_thesis(generator: torch.Generator) -> None:
    inside = Patterns.orthogonal(generator=generator)
    both = torch.cat([inside.relevant, inside.irrelevant])
    torch.testing.assert_close(both @ both.t(), 9 * torch.eye(30), atol=1e-4, rtol=0)
    outside = inside.combined(section_6_5(1.1))
    torch.testing.assert_close(
        outside.relevant @ outside.relevant.t(), 9 * torch.eye(3), atol=1e-4, rtol=0
    )
    assert torch.equal(outside.irrelevant, inside.irrelevant[:3]) and outside.spread == 5
    a, b = section_6_5(1.1)[0, 4:].tolist()
    assert a + b == pytest.approx(1.1) and a**2 + b**2 + 2 * 0.3**2 == pytest.approx(1)


def test_conditions_that_a_theorem_asks_for() -> None:
    most = math.sqrt(2 * 0.82)
    assert all(not unmet_conditions(section_6_5(total)) for total in (1.0, 1.2, most))
    assert unmet_conditions(section_6_5(0.9)) == ["S_1 = 0.9, expected at least 1"]
    skewed = torch.tensor([[2.0, 0.0], [1.0, 0.5]])
    told = unmet_conditions(skewed)
    assert "pattern 1 has the norm 2 beta, expected beta" in told
    assert "patterns 1 and 2 are not orthogonal" in told


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Patterns(torch.zeros(1, 3), torch.zeros(0, 3)), "relevant: shape"),
        (lambda: Patterns(torch.zeros(2, 3), torch.zeros(2, 4)), "irrelevant: shape"),
        (lambda: Patterns(torch.zeros(2, 3), torch.zeros(2, 3), -1), "spread: got -1"),
        (lambda: section_6_5(1.3), "total: got 1.3, expected at most 1.2806"),
        (
            lambda: Patterns.orthogonal(norm=-1.0, generator=DRAW),
            "norm: got -1.0, expected above 0",
        ),
        (
            lambda: Patterns.orthogonal(irrelevant=-1, generator=DRAW),
            "irrelevant: got -1, expected",
        ),
        (lambda: Patterns.orthogonal(20, 20, generator=torch.Generator()), "M1 \\+ M2 = 40"),
    ],
)
def test_what_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
