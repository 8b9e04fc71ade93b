import math

import pytest
import torch
from torch import Generator

from graphtheory.papers.mixture import model as one_hidden
from graphtheory.papers.mixture.model import OneHidden, risk, weight_error

TEACHER = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.3, 0.3]])


def drawn(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def test_each_network_is_the_formula_and_risk_cross_entropy() -> None:
    net, x = OneHidden(3, 2, trials=4, starts=5, generator=drawn()), torch.randn(4, 6, 3)
    out = net(x)
    assert out.shape == (4, 5, 6)
    by_hand = sum(1 / (1 + (-(x[2, 1] @ net.W[2, 3, :, j])).exp()) for j in range(2)) / 2
    torch.testing.assert_close(out[2, 3, 1], by_hand)
    net, x = OneHidden(3, 2, trials=2, starts=2, generator=drawn()), torch.randn(2, 6, 3)
    y = (torch.rand(2, 6, generator=drawn(1)) < 0.5).float()
    h = net(x)[1, 0]
    by_hand = -(y[1] * h.log() + (1 - y[1]) * (1 - h).log()).mean()
    torch.testing.assert_close(net.risk(x, y)[1, 0], by_hand)


@pytest.mark.parametrize("together", [8, 2**17])
def test_gradient_is_that_of_autograd(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hidden, "_TOGETHER", together)
    net = OneHidden(3, 2, trials=4, starts=2, dtype=torch.float64, generator=drawn())
    x = torch.randn(4, 7, 3, dtype=torch.float64, generator=drawn(1))
    y = (torch.rand(4, 7, generator=drawn(2)) < 0.5).double()
    (slope,) = torch.autograd.grad(net.risk(x, y).sum(), [net.W])
    torch.testing.assert_close(net.gradient(x, y), slope)


@pytest.mark.parametrize("together", [8, 2**17])
def test_hessian_is_that_of_autograd(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hidden, "_TOGETHER", together)
    net = OneHidden(3, 2, trials=2, starts=2, dtype=torch.float64, generator=drawn())
    x = torch.randn(2, 7, 3, dtype=torch.float64, generator=drawn(1))
    y = (torch.rand(2, 7, generator=drawn(2)) < 0.5).double()

    def one(flat: torch.Tensor) -> torch.Tensor:
        h = (x[1] @ flat.view(3, 2)).sigmoid().mean(1)
        return torch.nn.functional.binary_cross_entropy(h, y[1])

    wanted = torch.autograd.functional.hessian(one, net.W.detach()[1, 0].flatten())
    torch.testing.assert_close(net.hessian(x, y)[1, 0], wanted)


def test_a_sure_network_is_finite_and_bad_numbers_are_named() -> None:
    net = OneHidden.of(torch.full((1, 1, 1, 2), 200.0))
    x, y = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[1.0, 1.0]])
    assert bool(net.risk(x, y).isfinite()) and bool(net.gradient(x, y).isfinite().all())
    weights = torch.randn(2, 1, 3, 4, generator=drawn())
    net = OneHidden.of(weights)
    net.reset_parameters(drawn(1))
    assert not torch.equal(net.W, weights)
    with pytest.raises(ValueError, match="neurons: got 0"):
        OneHidden(3, 0)


def test_error_takes_the_best_order_and_risk_of_the_teacher_is_least() -> None:
    off = torch.randn(4, 5, 3, 2, generator=Generator().manual_seed(0)) * 0.01
    shuffled = (TEACHER + off).flip(-1)
    torch.testing.assert_close(weight_error(shuffled, TEACHER), off.flatten(2).norm(dim=2))
    lost = torch.stack([TEACHER, TEACHER * torch.nan])
    assert torch.equal(weight_error(lost, TEACHER).isnan(), torch.tensor([False, True]))
    three = torch.eye(3)
    assert float(weight_error(three[:, [2, 0, 1]], three)) == 0

    def always(p: float) -> torch.Tensor:
        return torch.full((5,), p)

    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert float(risk(always(0.3), always(0.3))) == pytest.approx(entropy)
    assert float(risk(always(0.4), always(0.3))) > entropy
    assert float(risk(always(1.0), always(1.0))) == pytest.approx(0, abs=1e-5)
