import pytest
import torch

from graphtheory.papers.fusion.subspaces import (
    Subspaces,
    _search,
    cluster_integrity,
    fusion_weights,
)


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
