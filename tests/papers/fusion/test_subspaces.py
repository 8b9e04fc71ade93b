import pytest
import torch

from graphtheory.papers.fusion.subspaces import Subspaces


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
