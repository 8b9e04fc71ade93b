import math

import pytest
import torch

from graphtheory.papers.mixture.descent import convergence


def test_a_rate_is_that_of_a_straight_line() -> None:
    gap = 3 * torch.tensor([0.9**t for t in range(0, 200, 2)])
    found = convergence(list(range(0, 200, 2)), gap.double())
    assert found["rate"] == pytest.approx(0.9, abs=1e-4)
    assert found["straight"] == pytest.approx(1, abs=1e-4)
    assert math.isnan(convergence([0, 1], torch.tensor([1.0, 0.5]))["rate"])
