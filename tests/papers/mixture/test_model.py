import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from graphtheory.papers.mixture import model as one_hidden
from graphtheory.papers.mixture import tensor_init
from graphtheory.papers.mixture import training as mix
from graphtheory.papers.mixture.model import GaussianMixture, OneHidden, risk, weight_error
from graphtheory.papers.mixture.tensor_init import TensorInit, _magnitude, directions, first, second
from graphtheory.papers.mixture.training import Learner, Setting, convergence
from tests.papers.conftest import drawn

DOUBLE = torch.float64
TEACHER = torch.tensor([[1.0, 0.5], [-0.5, 2.0], [0.3, 0.3]])


def test_each_network_is_the_formula_and_risk_cross_entropy() -> None:
    net, x = OneHidden(torch.randn(4, 5, 3, 2, generator=drawn())), torch.randn(4, 6, 3)
    out = net(x)
    assert out.shape == (4, 5, 6)
    by_hand = sum(1 / (1 + (-(x[2, 1] @ net.W[2, 3, :, j])).exp()) for j in range(2)) / 2
    torch.testing.assert_close(out[2, 3, 1], by_hand)
    net, x = OneHidden(torch.randn(2, 2, 3, 2, generator=drawn())), torch.randn(2, 6, 3)
    y = (torch.rand(2, 6, generator=drawn(1)) < 0.5).float()
    h = net(x)[1, 0]
    by_hand = -(y[1] * h.log() + (1 - y[1]) * (1 - h).log()).mean()
    torch.testing.assert_close(net.risk(x, y)[1, 0], by_hand)


@pytest.mark.parametrize("together", [8, 2**17])
def test_gradient_and_hessian_are_those_of_autograd(together: int, monkeypatch) -> None:
    monkeypatch.setattr(one_hidden, "_TOGETHER", together)
    net = OneHidden(torch.randn(4, 2, 3, 2, dtype=DOUBLE, generator=drawn()))
    x = torch.randn(4, 7, 3, dtype=DOUBLE, generator=drawn(1))
    y = (torch.rand(4, 7, generator=drawn(2)) < 0.5).double()
    (slope,) = torch.autograd.grad(net.risk(x, y).sum(), [net.W])
    torch.testing.assert_close(net.gradient(x, y), slope)

    def one(flat: torch.Tensor) -> torch.Tensor:
        h = (x[1] @ flat.view(3, 2)).sigmoid().mean(1)
        return torch.nn.functional.binary_cross_entropy(h, y[1])

    wanted = torch.autograd.functional.hessian(one, net.W.detach()[1, 0].flatten())
    torch.testing.assert_close(net.hessian(x, y)[1, 0], wanted)


def test_a_sure_network_is_finite() -> None:
    net = OneHidden(torch.full((1, 1, 1, 2), 200.0))
    x, y = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[1.0, 1.0]])
    assert bool(net.risk(x, y).isfinite()) and bool(net.gradient(x, y).isfinite().all())


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


MEANS = torch.tensor([[1.0, 0.0], [-2.0, 1.0]])
SPREAD = torch.tensor([[[1.0, 0.5], [0.5, 2.0]], [[0.5, 0.0], [0.0, 3.0]]])
MIXTURE = GaussianMixture(torch.tensor([0.7, 0.3]), MEANS, SPREAD)


def test_groups_have_their_moments_and_labels_follow_the_teacher() -> None:
    x, group = MIXTURE.sample(40_000, drawn())
    assert float(group.float().mean()) == pytest.approx(0.3, abs=0.01)
    for index in range(2):
        for mine in (x[group == index], MIXTURE.of_group(index, 40_000, drawn(1))):
            torch.testing.assert_close(mine.mean(0), MEANS[index], atol=0.06, rtol=0)
            torch.testing.assert_close(mine.t().cov(), SPREAD[index], atol=0.12, rtol=0)

    def teacher(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] > 0, 0.9, 0.2)

    x, y, group = MIXTURE.labeled(20_000, teacher, drawn())
    assert float(y[x[:, 0] > 0].mean()) == pytest.approx(0.9, abs=0.015)
    assert float(y[x[:, 0] <= 0].mean()) == pytest.approx(0.2, abs=0.015)
    again = MIXTURE.labeled(20_000, teacher, drawn())
    assert all(torch.equal(one, other) for one, other in zip(again, (x, y, group), strict=True))


def test_posterior_slopes_symmetry_and_step() -> None:
    x = torch.randn(6, 2, generator=drawn()).requires_grad_()
    each = MultivariateNormal(MEANS, SPREAD).log_prob(x[:, None])
    joint = each + MIXTURE.weights.log()
    torch.testing.assert_close(MIXTURE.posterior(x), joint.softmax(1))
    for index in range(2):
        (slope,) = torch.autograd.grad(each[:, index].sum(), x, retain_graph=True)
        torch.testing.assert_close(MIXTURE.slopes(x)[index], -slope)
    assert not MIXTURE.symmetric
    pair = GaussianMixture.isotropic((0.25, 0.5, 0.25), ((1, 2), (0, 0), (-1, -2)), (1, 3, 1))
    assert pair.symmetric
    assert not GaussianMixture.isotropic((0.3, 0.7), ((1, 2), (-1, -2)), (1, 1)).symmetric
    # 0.5 (2 + 1)^2 + 0.5 (0 + 3)^2
    assert pair.step_bound == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights", lambda: GaussianMixture(torch.tensor([0.7, 0.7]), MEANS, SPREAD)),
        ("weights", lambda: GaussianMixture(torch.tensor([1.0]), MEANS, SPREAD)),
        ("means", lambda: GaussianMixture(MIXTURE.weights, MEANS[0], SPREAD)),
        ("covariances", lambda: GaussianMixture(MIXTURE.weights, MEANS, -SPREAD)),
        ("covariances", lambda: GaussianMixture(MIXTURE.weights, MEANS, SPREAD.triu())),
        ("count: got 0, expected at least 1", lambda: MIXTURE.sample(0, drawn())),
    ],
)
def test_bad_input_is_named(name: str, change) -> None:
    with pytest.raises(ValueError, match=name):
        change()


SKEW = GaussianMixture(
    torch.tensor([0.6, 0.4], dtype=DOUBLE),
    torch.tensor([[0.5, 0.0], [-1.0, 0.5]], dtype=DOUBLE),
    torch.tensor([[[1.0, 0.3], [0.3, 1.0]], [[2.0, 0.0], [0.0, 1.0]]], dtype=DOUBLE),
)


def test_moments_are_the_derivatives_of_the_density() -> None:
    """Each score at single points, against derivatives of the density by autograd."""
    basis = torch.linalg.qr(torch.randn(2, 2, dtype=DOUBLE, generator=drawn(1)))[0]
    alpha = torch.tensor([0.3, -0.8], dtype=DOUBLE)
    normal = torch.distributions.MultivariateNormal(SKEW.means, SKEW.covariances)

    def density(x: Tensor) -> Tensor:
        return (normal.log_prob(x).exp() * SKEW.weights).sum()

    for x in torch.randn(4, 2, dtype=DOUBLE, generator=drawn()):
        one, p = torch.ones(1, dtype=DOUBLE), density(x)
        slope = torch.autograd.functional.jacobian(density, x)
        bend = torch.autograd.functional.hessian(density, x)
        bends = partial(torch.autograd.functional.hessian, density, create_graph=True)
        cube = torch.autograd.functional.jacobian(bends, x)
        torch.testing.assert_close(first(SKEW, x[None], one), -slope / p)
        torch.testing.assert_close(second(SKEW, x[None], one), bend / p)
        along = tensor_init.third_along(SKEW, x[None], one, alpha)
        torch.testing.assert_close(along, -cube @ alpha / p)
        wanted = -torch.einsum("ijk,ia,jb,kc->abc", cube, basis, basis, basis) / p
        torch.testing.assert_close(tensor_init.third(SKEW, x[None], one, basis), wanted)


def test_directions_of_a_tensor_that_is_not_orthogonal() -> None:
    columns = torch.randn(3, 3, dtype=DOUBLE, generator=drawn(2))
    columns = torch.nn.functional.normalize(columns, dim=0)
    size = torch.tensor([2.0, -1.0, 0.5], dtype=DOUBLE)
    cube = torch.einsum("a,ia,ja,ka->ijk", size, columns, columns, columns)
    found = directions(cube, drawn())
    cosine = (found.t() @ columns).abs()
    torch.testing.assert_close(cosine.amax(0), torch.ones(3, dtype=DOUBLE))
    assert sorted(cosine.argmax(0).tolist()) == [0, 1, 2]


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_the_start_is_near_the_teacher(mean: float) -> None:
    """With a mean of 0 the mixture is symmetric, and Q_2 is nothing."""
    teacher = torch.tensor([[1.5, 0.2], [0.3, -1.2], [0.0, 0.4]])
    means = (mean,) * 3, (mean / 2, mean, 0.0)
    mixture = GaussianMixture.isotropic((0.5, 0.5), means, (1.0, 1.5))
    assert mixture.symmetric == (mean == 0)
    x, y, _ = mixture.labeled(200_000, lambda x: (x @ teacher).sigmoid().mean(1), drawn())
    errors = {
        name: float(weight_error(start(mixture, x, y, drawn(1)), teacher) / teacher.norm())
        for name, start in (("printed", TensorInit.printed(2)), ("ours", TensorInit(2)))
    }
    assert errors["ours"] < 0.25 and errors["printed"] > 0.5


@pytest.mark.parametrize("mean", [0.0, 3.0, 5.0, 8.0])
def test_the_magnitude_is_the_smaller_one_that_solves_for_it(mean: float) -> None:
    """With a mean along w the left side rises up to z = 1.5 / mean or so, then it falls."""
    s = torch.randn(20_000, dtype=DOUBLE, generator=drawn()) + mean

    def left(z: float) -> float:
        return float(z * (z * s).sigmoid().mul((-z * s).sigmoid()).mean())

    for z in (0.05, 0.1, 0.15):
        assert _magnitude(s, left(z)) == pytest.approx(z, rel=1e-6)
        assert _magnitude(s, -left(z)) == pytest.approx(-z, rel=1e-6)
    if mean:
        other = _magnitude(s, left(1.0))
        assert other < 0.4 and left(other) == pytest.approx(left(1.0))
        most = _magnitude(s, 1.0)  # nowhere that large
        assert left(most) == pytest.approx(max(left(i / 100) for i in range(100)), rel=1e-2)


def test_the_start_is_near_the_teacher_and_takes_no_more_neurons_than_features() -> None:
    teacher = torch.tensor([[0.2], [0.2], [0.1]])
    means = ((5.0, 0.0, 0.0), (4.0, 0.0, 0.0))
    mixture = GaussianMixture.isotropic((0.5, 0.5), means, (1.0, 1.0))
    x, y, _ = mixture.labeled(60_000, lambda x: (x @ teacher).sigmoid().mean(1), drawn())
    found = TensorInit(1, third=True)(mixture, x, y, drawn(1))
    assert float(weight_error(found, teacher) / teacher.norm()) < 0.25
    with pytest.raises(ValueError, match="neurons: got 3, expected at most d = 2"):
        TensorInit(3)(SKEW, torch.zeros(9, 2), torch.zeros(9), drawn())
    with pytest.raises(ValueError, match="tries: got 0"):
        TensorInit(2, tries=0)


def test_settings_share_teacher_and_numbers_and_turn_their_mixture() -> None:
    near, far = (mix.draw(Setting(means=(m, -1.0)), 50, 3) for m in (1.0, 4.0))
    assert torch.equal(near.teacher, far.teacher)
    off = far.x - near.x
    assert bool(((off.abs() < 1e-5) | ((off - 3).abs() < 1e-5)).all()) and bool((off > 2).any())
    assert not torch.equal(near.x, mix.draw(Setting(), 50, 4).x)
    small = mix.draw(Setting(size=0.1), 5, 0).teacher
    assert float(small.abs().max()) <= 0.1 and small.shape == (5, 3)
    setting = Setting(turned=True, deviations=(2.0, 1.0))
    spread = mix.draw(setting, 5, 0, DOUBLE).mixture.covariances
    wanted = torch.tensor([1, 1.1, 1.2, 1.3, 1.4], dtype=DOUBLE)
    torch.testing.assert_close(torch.linalg.eigvalsh(spread[1]), wanted)
    torch.testing.assert_close(spread[0], 4 * spread[1])
    assert setting.stretch == 1.4


def test_starts_fill_the_ball_and_step_sizes_follow_the_bound_or_not() -> None:
    teacher = torch.zeros(1, 2)
    starts = mix.near(teacher, 0.5, 4000, Generator().manual_seed(0))
    size = starts.flatten(1).norm(dim=1)
    assert float(size.max()) <= 0.5
    assert float((size < 0.25).float().mean()) == pytest.approx(0.25, abs=0.03)
    trials = [mix.draw(Setting(deviations=(s, s)), 5, 0) for s in (1.0, 3.0)]
    sizes = Learner(factor=2.0).step_sizes(trials)
    torch.testing.assert_close(sizes, torch.tensor([2 / 4, 2 / 16]))
    fixed = Learner(factor=2.0, fixed=True)
    assert fixed.step_sizes(trials).tolist() == [2, 2]
    assert fixed.name != replace(fixed, fixed=False).name


def test_descent_ends_at_the_critical_point_and_not_at_a_saddle() -> None:
    setting = Setting(dim=2, neurons=1, means=(0.0, 0.0))
    trials = [mix.draw(setting, 400, seed, DOUBLE) for seed in range(2)]
    learner = Learner(factor=4.0, steps=400)
    net = learner.run(learner.start(trials, 2, 0), trials)
    first = learner.start(trials, 2, 0)
    found, ended = mix.critical_point(first, trials)
    assert bool(ended.all())
    torch.testing.assert_close(found.W, net.W, atol=1e-6, rtol=0)
    x, y = mix.examples(trials)
    assert float(found.gradient(x, y).abs().max()) < 1e-9
    torch.testing.assert_close(first.W, learner.start(trials, 2, 0).W)
    # Two neurons that start alike stay alike: a critical point whose Hessian is not positive.
    trials = [mix.draw(Setting(dim=2, neurons=2, means=(1.0, 0.0)), 2000, 1, DOUBLE)]
    teacher = trials[0].teacher
    same = teacher.mean(1, keepdim=True).expand(2, 2)
    net = OneHidden(same[None, None].contiguous())
    net = Learner(factor=8.0, steps=300).run(net, trials)
    found, ended = mix.critical_point(net, trials)
    assert not bool(ended.any()) and torch.equal(found.W, net.W)


def test_risks_by_group_and_the_rate_of_a_straight_line() -> None:
    trial = mix.draw(Setting(weights=(0.8, 0.2), deviations=(1.0, 4.0)), 5, 0)
    found = mix.risks(trial.teacher, trial, 0, tested=20_000)
    assert found.excess == 0 == found.excess_groups[0]
    assert found.average == pytest.approx(0.8 * found.groups[0] + 0.2 * found.groups[1])
    other = mix.risks(trial.teacher + 1, trial, 0, tested=20_000)
    assert min(other.excess_groups) > 0
    assert other.excess == pytest.approx(other.average - found.average)
    gap = 3 * torch.tensor([0.9**t for t in range(0, 200, 2)])
    found = convergence(list(range(0, 200, 2)), gap.double())
    assert found["rate"] == pytest.approx(0.9, abs=1e-4)
    assert found["straight"] == pytest.approx(1, abs=1e-4)
    assert math.isnan(convergence([0, 1], torch.tensor([1.0, 0.5]))["rate"])
