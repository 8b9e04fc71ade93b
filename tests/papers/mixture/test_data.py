import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from graphtheory.papers.mixture.data import GaussianMixture

MEANS = torch.tensor([[1.0, 0.0], [-2.0, 1.0]])
SPREAD = torch.tensor([[[1.0, 0.5], [0.5, 2.0]], [[0.5, 0.0], [0.0, 3.0]]])
MIXTURE = GaussianMixture(torch.tensor([0.7, 0.3]), MEANS, SPREAD)


def drawn(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def test_groups_have_their_share_mean_and_covariance() -> None:
    x, group = MIXTURE.sample(40_000, drawn())
    assert float(group.float().mean()) == pytest.approx(0.3, abs=0.01)
    for index in range(2):
        for mine in (x[group == index], MIXTURE.of_group(index, 40_000, drawn(1))):
            torch.testing.assert_close(mine.mean(0), MEANS[index], atol=0.06, rtol=0)
            torch.testing.assert_close(mine.t().cov(), SPREAD[index], atol=0.12, rtol=0)


def test_labels_follow_the_teacher() -> None:
    def teacher(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] > 0, 0.9, 0.2)

    x, y, group = MIXTURE.labeled(20_000, teacher, drawn())
    assert float(y[x[:, 0] > 0].mean()) == pytest.approx(0.9, abs=0.015)
    assert float(y[x[:, 0] <= 0].mean()) == pytest.approx(0.2, abs=0.015)
    again = MIXTURE.labeled(20_000, teacher, drawn())
    assert torch.equal(again.y, y) and torch.equal(again.group, group)


def test_posterior_and_slopes_are_of_the_density() -> None:
    x = torch.randn(6, 2, generator=drawn()).requires_grad_()
    each = MultivariateNormal(MEANS, SPREAD).log_prob(x[:, None])
    joint = each + MIXTURE.weights.log()
    torch.testing.assert_close(MIXTURE.posterior(x), joint.softmax(1))
    for index in range(2):
        (slope,) = torch.autograd.grad(each[:, index].sum(), x, retain_graph=True)
        torch.testing.assert_close(MIXTURE.slopes(x)[index], -slope)


def test_symmetry_and_step() -> None:
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
