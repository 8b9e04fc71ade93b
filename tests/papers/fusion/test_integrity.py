from math import inf

import pytest
import torch

from graphtheory.papers.fusion.integrity import (
    Subspaces,
    _search,
    class_mass,
    cluster_integrity,
    fusion_weights,
    growth_bound,
    noise_bounds,
    sharpness,
    sharpness_of_means,
)


def test_samples_lie_in_their_subspace_on_both_sides_or_one_and_noise_is_bounded(
    generator: torch.Generator,
) -> None:
    found = Subspaces(10, 3, 2, 5, noise=0.2).sample(generator)
    for k in range(3):
        mine, basis = found.clean[found.y == k], found.bases[k]
        torch.testing.assert_close(mine @ basis @ basis.t(), mine)
    for x in (found.x, found.clean):
        torch.testing.assert_close(x.norm(dim=1), torch.ones(15, dtype=torch.float64))
    torch.testing.assert_close((found.x * found.clean).sum(1).min(), torch.tensor(0.8).double())
    found = Subspaces(4, 2, 1, 20, half_space=False).sample(generator)
    sides = (found.x[:20] @ found.bases[0][:, 0]).sign()
    assert set(sides.tolist()) == {-1.0, 1.0}
    turned = Subspaces(4, 2, 1, 20).sample(generator)
    assert len((turned.x[:20] @ turned.bases[0][:, 0]).sign().unique()) == 1


def test_bad_sizes_are_named() -> None:
    with pytest.raises(ValueError, match=r"dim: got 4, expected above \(clusters - 1\) \* rank"):
        Subspaces(4, 3, 2, 1)
    with pytest.raises(ValueError, match="noise: got 2"):
        Subspaces(4, 2, 1, 1, noise=2)


def parts(of: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    same = y[:, None] == y
    return of[same], of[~same]


@pytest.mark.parametrize("shape", [(4, 2, 1), (20, 4, 3)])
def test_theorem_1_is_exact_on_half_space_data(
    shape: tuple[int, int, int], generator: torch.Generator
) -> None:
    x, y, _, _ = Subspaces(*shape, per_cluster=6).sample(generator)
    found = fusion_weights(x, y)
    torch.testing.assert_close(found.weights.norm(dim=0), torch.ones(len(y)).double())
    attention = (x @ found.weights) @ (x @ found.weights).t()
    bound = 6 * found.rho[y] ** 2
    assert (parts(attention, y)[1].abs() < 1e-12).all()
    same = y[:, None] == y
    assert (torch.where(same, attention, torch.inf).min(1).values >= bound * (1 - 1e-9)).all()
    assert (found.rho > 0).all()


def test_without_the_sign_condition_attention_within_a_cluster_is_negative(
    generator: torch.Generator,
) -> None:
    x, y, _, _ = Subspaces(20, 4, 3, 12, half_space=False).sample(generator)
    with pytest.raises(ValueError, match=r"no direction .* all samples of cluster 0 on one side"):
        fusion_weights(x, y)
    directions = cluster_integrity(x, y, generator, own=True).directions.t()[:, y]  # |x^T w| large
    within, between = parts((x @ directions) @ (x @ directions).t(), y)
    assert (between.abs() < 1e-12).all() and within.min() < 0


def test_the_search_finds_what_the_exact_problem_has_by_several_starts(
    generator: torch.Generator,
) -> None:
    x, y, _, _ = Subspaces(12, 3, 2, 5).sample(generator)
    exact = fusion_weights(x, y).rho  # signed: of one side, so |.| allows at least as much
    found = cluster_integrity(x, y, generator, own=True, steps=800, step_size=0.03)
    assert (found.rho > 0.5 * exact).all()
    reached = torch.stack([(x[y == k] @ u).abs().min() for k, u in enumerate(found.directions)])
    torch.testing.assert_close(found.rho, reached)
    angles = torch.tensor([0.1, 0.7, 1.2]).double()
    cluster = torch.stack([angles.cos(), angles.sin(), 0 * angles, 0 * angles], 1)
    other = torch.eye(4).double()[2:]
    x, y = torch.cat([cluster, other]), torch.tensor([0, 0, 0, 1, 1])
    exact = float(fusion_weights(x, y).rho[0])
    assert exact == pytest.approx(torch.cos(torch.tensor(0.55)).item(), abs=1e-4)
    for _ in range(5):
        assert float(cluster_integrity(x, y, generator, own=True).rho[0]) > 0.95 * exact
    one = [cluster_integrity(x, y, generator, own=True, starts=1).rho[0] for _ in range(10)]
    assert min(one) < 0.5 * exact
    with pytest.raises(ValueError, match="starts: got 0, expected at least 1"):
        cluster_integrity(x, y, generator, starts=0)


def test_integrity_of_a_known_case_and_of_more_clusters_and_the_sign_of_its_step(
    generator: torch.Generator,
) -> None:
    angle = torch.tensor(0.5, dtype=torch.float64)  # two lines: u is the normal of the other
    x = torch.stack([torch.tensor([1.0, 0.0]).double(), torch.stack([angle.cos(), angle.sin()])])
    found = cluster_integrity(x, torch.tensor([0, 1]), generator)
    assert found.rho.tolist() == pytest.approx([float(angle.sin())] * 2)
    assert float(found.rho.min()) == pytest.approx(float(angle.sin()))
    # From here the paper's step, +x whatever the sign, leads down to the lesser peak of 0.6.
    samples = torch.tensor([[0, 0.6, 0.8], [0, 0.6, -0.8]]).double()
    barred, u = (
        torch.tensor([[1.0], [0], [0]]).double(),
        torch.tensor([[0.0], [0.7], [0.71]]).double(),
    )
    assert _search(samples, barred, u, 2000, 0.01)[0] > 0.78
    x, y, _, _ = Subspaces(6, 3, 2, 4).sample(generator)
    paper = cluster_integrity(x, y, generator)
    attention = (x @ paper.directions.t()[:, y]) @ (x @ paper.directions.t()[:, y]).t()
    assert parts(attention, y)[1].abs().max() > 0.01  # not block-diagonal


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
