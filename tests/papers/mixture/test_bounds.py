import math

import pytest
import torch
from scipy.integrate import quad
from torch import Generator

from graphtheory.papers.mixture.bounds import bounds, rho, risk, shift, weight_error
from graphtheory.papers.mixture.data import GaussianMixture

TEACHER = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.3, 0.3]])


def mixture(deviation: float = 1.0, mean: float = 1.0) -> GaussianMixture:
    return GaussianMixture.isotropic((0.5, 0.5), ((mean, mean, mean), (0, 0, 0)), (deviation, 1.0))


def test_error_takes_the_best_order_of_columns() -> None:
    off = torch.randn(4, 5, 3, 2, generator=Generator().manual_seed(0)) * 0.01
    shuffled = (TEACHER + off).flip(-1)
    torch.testing.assert_close(weight_error(shuffled, TEACHER), off.flatten(2).norm(dim=2))
    lost = torch.stack([TEACHER, TEACHER * torch.nan])
    assert torch.equal(weight_error(lost, TEACHER).isnan(), torch.tensor([False, True]))
    three = torch.eye(3)
    assert float(weight_error(three[:, [2, 0, 1]], three)) == 0


def test_risk_of_the_teacher_is_least_and_its_entropy() -> None:
    def always(p: float) -> torch.Tensor:
        return torch.full((5,), p)

    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert float(risk(always(0.3), always(0.3))) == pytest.approx(entropy)
    assert float(risk(always(0.4), always(0.3))) > entropy
    assert float(risk(always(1.0), always(1.0))) == pytest.approx(0, abs=1e-5)


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


@pytest.mark.parametrize("sigma", [50.0, 101.0, 3000.0, 1e5])
def test_rho_of_long_neurons(sigma: float) -> None:
    """The parts of phi' that count lie closer together than the places of the density."""

    def mean(power: int, q: int, m: float) -> float:
        def inside(t: float) -> float:
            z = t / sigma
            return slope(t) ** power * z**q * math.exp(-((z - m) ** 2) / 2) / sigma

        return (
            2
            * quad(lambda t: (inside(t) + inside(-t)) / 2, 0, 100, epsabs=0, limit=500)[0]
            / (math.sqrt(2 * math.pi))
        )

    found = [
        mean(2, 2, m) - mean(1, 2, m) ** 2 / (m**2 + 1) for m in (0.0, 0.1)
    ]  # the first terms are far larger
    u = torch.tensor([0.0, 0.1], dtype=torch.float64)
    assert rho(u, sigma) == pytest.approx(min(found), rel=1e-4)


def test_what_rho_and_bounds_refuse() -> None:
    for sigma in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"sigma: got {sigma}, expected 0 or more"):
            rho(torch.zeros(2), sigma)
    with pytest.raises(ValueError, match=r"u: got \[0.0, nan\], expected finite"):
        rho(torch.tensor([0.0, math.nan]), 1.0)
    for teacher in (torch.ones(3, 2), torch.ones(3, 4)):
        with pytest.raises(ValueError, match="of rank 1, expected rank K"):
            bounds(mixture(), teacher)
    with pytest.raises(ValueError, match=r"teacher: shape .* expected finite"):
        bounds(mixture(), TEACHER * math.nan)


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


def test_bounds_have_the_powers_of_tau_kappa_and_eta() -> None:
    """Two groups around 0 of spreads 1 and 3, singular values 4, 2 and 1."""
    two = GaussianMixture.isotropic((0.5, 0.5), ((0.0,) * 3,) * 2, (1.0, 3.0))
    found = bounds(two, torch.diag(torch.tensor([4.0, 2.0, 1.0])))
    tau, kappa, eta, spread = 3, 4, 8, 5
    flat = 0.5 * rho(torch.zeros(3), 1.0) + 0.5 * 9 * rho(torch.zeros(3), 3.0)
    below = tau**3 * kappa**2 * eta
    assert found.gamma == pytest.approx(flat / (below * 9), rel=1e-6)
    assert found.rate == pytest.approx(flat / (below * spread), rel=1e-6)
    assert found.samples == pytest.approx(12**2 * tau**12 * (flat / (eta * 9)) ** -2, rel=1e-5)
    assert found.groups == pytest.approx([spread**0.5 * s / flat for s in (1, 3)], rel=1e-6)
