import math

import pytest
import torch
from scipy.integrate import quad
from torch import Generator

from graphtheory.data.mixture import GaussianMixture
from graphtheory.metrics import bounds, rho, risk, shift, weight_error

TEACHER = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.3, 0.3]])


def mixture(deviation: float = 1.0, mean: float = 1.0) -> GaussianMixture:
    return GaussianMixture.isotropic((0.5, 0.5), ((mean, mean, mean), (0, 0, 0)), (deviation, 1.0))


def test_error_takes_the_best_order_of_columns() -> None:
    off = torch.randn(4, 5, 3, 2, generator=Generator().manual_seed(0)) * 0.01
    shuffled = (TEACHER + off).flip(-1)
    torch.testing.assert_close(weight_error(shuffled, TEACHER), off.flatten(2).norm(dim=2))
    three = torch.eye(3)
    assert float(weight_error(three[:, [2, 0, 1]], three)) == 0


def test_risk_of_the_teacher_is_least_and_its_entropy() -> None:
    def always(p: float):
        return lambda x: torch.full(x.shape[:-1], p)

    x = torch.zeros(5, 2)
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert float(risk(always(0.3), always(0.3), x)) == pytest.approx(entropy)
    assert float(risk(always(0.4), always(0.3), x)) > entropy
    assert float(risk(always(1.0), always(1.0), x)) == pytest.approx(0, abs=1e-5)


def slope(z: float) -> float:
    return 0.25 / math.cosh(z / 2) ** 2


@pytest.mark.parametrize(("u", "sigma"), [((0.4, -1.0, 2.0), 1.5), ((0.0, 0.0), 0.7)])
def test_rho_is_its_definition(u: tuple[float, ...], sigma: float) -> None:
    def mean(power: int, q: int, m: float) -> float:
        def inside(z: float) -> float:
            return slope(sigma * z) ** power * z**q * math.exp(-((z - m) ** 2) / 2)

        return quad(inside, m - 12, m + 12)[0] / math.sqrt(2 * math.pi)

    found = [
        value
        for i, m in enumerate(u)
        for j, other in enumerate(u)
        if i != j
        for value in (
            (other**2 + 1) * (mean(2, 0, m) - mean(1, 0, m) ** 2),
            mean(2, 2, m) - mean(1, 2, m) ** 2 / (m**2 + 1),
        )
    ]
    assert rho(torch.tensor(u), sigma) == pytest.approx(min(found), rel=1e-4)


def test_rho_is_small_at_both_ends() -> None:
    zero = torch.zeros(2)
    middle = rho(zero, 1.5)
    # (C.39) prints sigma^4 / 128; the variance of sigma^2 z^2 / 16 is 2 sigma^4 / 256, the same
    assert rho(zero, 0.05) == pytest.approx(0.05**4 / 128, rel=0.05)
    assert rho(zero, 30.0) < middle and rho(torch.full((2,), 6.0), 1.5) < middle


def test_bounds_are_worst_where_the_corollary_says() -> None:
    def of(**letters: float):
        return bounds(mixture(**letters), TEACHER)

    middle = of()
    for other in (of(deviation=6.0), of(mean=4.0)):
        assert other.samples > middle.samples and other.rate < middle.rate
        assert other.weights > middle.weights and other.average > middle.average
        assert all(a > b for a, b in zip(other.groups, middle.groups, strict=True))
    assert 0 < middle.gamma < 1 and 0 < middle.rate < 1


def test_shift_by_hand() -> None:
    assert shift(mixture(deviation=2.0), 3) == pytest.approx((((3**0.5) / 2 + 1) ** 3 + 1) / 2)


def test_bounds_by_hand() -> None:
    """One group, unit spread, orthonormal weights: kappa = eta = tau = 1."""
    alone = GaussianMixture.isotropic((1.0,), ((0.0, 0.0),), (2.0,))
    found, curve = bounds(alone, torch.eye(2)), rho(torch.zeros(2), 2.0)
    assert found.gamma == pytest.approx(curve, rel=1e-6)
    assert found.rate == pytest.approx(curve, rel=1e-6)
    assert found.weights == pytest.approx(2 / (4 * curve), rel=1e-6)
    assert found.average == pytest.approx(4 / (4 * curve), rel=1e-6)
    assert found.groups == pytest.approx((4 / (4 * curve),), rel=1e-6)
    assert found.samples == pytest.approx(4 * curve**-2, rel=1e-6)
