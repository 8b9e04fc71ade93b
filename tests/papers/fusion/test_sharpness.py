from math import inf

import pytest
import torch

from graphtheory.papers.fusion.subspaces import (
    class_mass,
    growth_bound,
    noise_bounds,
    sharpness,
    sharpness_of_means,
)

Y = torch.tensor([0, 0, 1, 1])


def blocks(within: float, between: float, itself: float) -> torch.Tensor:
    same = Y[:, None] == Y
    return torch.where(same, within, between).fill_diagonal_(itself)


def test_the_diagonal_one_pair_and_the_ends_of_the_scale() -> None:
    attention = blocks(0.4, 0.1, 0.2)
    assert sharpness(attention, Y) == pytest.approx(4.0)
    attention = blocks(0.4, 0.1, 0.0)[None].repeat(2, 1, 1)
    attention[1, 0, 1] = 0.05
    assert sharpness(attention, Y) == pytest.approx(0.5)
    assert sharpness_of_means(attention, Y) == pytest.approx((7 * 0.4 + 0.05) / 8 / 0.1)
    assert sharpness(blocks(0.5, 0.0, 0.5), Y) == inf
    assert sharpness(blocks(0.0, 0.0, 1.0), Y) == 0
    assert class_mass(blocks(0.5, 0.0, 0.5), Y) == pytest.approx((1.0, 1 / 3))
    assert class_mass(blocks(0.1, 0.1, 0.7), Y).mass == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="nothing off the diagonal"):
        class_mass(blocks(0.0, 0.0, 1.0), Y)
    with pytest.raises(ValueError, match="negative entries"):
        sharpness(-blocks(1.0, 1.0, 1.0), Y)
    with pytest.raises(ValueError, match="one class"):
        sharpness(blocks(1.0, 1.0, 1.0), torch.zeros(4))


def test_no_weights_are_refused_and_too_large_a_bound_is_infinite() -> None:
    for measure in (sharpness, sharpness_of_means, class_mass):
        with pytest.raises(ValueError, match="not finite"):
            measure(torch.full((4, 4), torch.nan), Y)
    with pytest.raises(ValueError, match="negative entries"):
        class_mass(blocks(0.5, -0.1, 0.0), Y)
    assert sharpness_of_means(torch.eye(4), Y) == sharpness(torch.eye(4), Y) == 0
    assert growth_bound(1000, 5.0, 1.0).factor == inf


@pytest.mark.parametrize(
    ("count", "delta", "Delta", "factor"),
    [(4, 0.0, 0.9, 1.9e-3), (4, 0.1, 0.5, 0.054), (64, 0.0, 0.9, 4e-25)],
)
def test_theorem_2_has_a_factor_below_1(
    count: int, delta: float, Delta: float, factor: float
) -> None:
    found = growth_bound(count, delta, Delta)
    assert found.factor == pytest.approx(factor, rel=0.15) and found.squares_negative


def test_theorem_2_and_separability_under_noise() -> None:
    for count in (3, 8, 64, 2048):
        for delta in (0.0, 0.05, 0.3):
            for more in (0.01, 0.3, 0.6):
                assert growth_bound(count, delta, delta + more).factor < 1
    assert noise_bounds(0.0, 0.5) == (0.0, 0.5, True)
    delta, kept, separable = noise_bounds(0.05, 0.5)
    assert delta > kept and not separable
    with pytest.raises(ValueError, match=r"noise: got 1.5"):
        noise_bounds(1.5, 0.5)
