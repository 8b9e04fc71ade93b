import torch

from graphtheory.vision.nn import PeriodicPositions, SinusoidalPositions


def test_sines_turn_and_a_period_begins_again() -> None:
    """The dot product of two places depends on their distance alone; each wave turns as it says."""
    e = SinusoidalPositions(6)(torch.arange(50)).double()
    dots = e @ e.t()
    for gap in (1, 7):
        torch.testing.assert_close(dots.diagonal(gap), dots[0, gap].expand(50 - gap))
    waves = torch.tensor([1.0, 1e4 ** (-1 / 3), 1e4 ** (-2 / 3)], dtype=torch.float64)
    torch.testing.assert_close(dots[0, 1], waves.cos().sum())
    vectors = torch.randn(3, 5)
    found = PeriodicPositions(vectors)(torch.tensor([0, 4, 5, 8]))
    assert torch.equal(found, vectors[[0, 1, 2, 2]])
