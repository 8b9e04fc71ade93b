import pytest
import torch
from torch import nn

from graphtheory import Neighborhood
from graphtheory.papers.fusion.views import GraphViews, ImageViews, Strengths, columns_times


@pytest.mark.parametrize("channels", [1, 3])
def test_two_views_of_an_image_differ_and_stay_images(channels: int) -> None:
    pytest.importorskip("kornia", reason="kornia is not installed")
    augment = Strengths(flip=channels == 3).build(channels, 8)
    images = torch.randint(0, 256, (5, channels, 8, 8), dtype=torch.uint8)
    seen = ImageViews(nn.Flatten(), augment)
    torch.manual_seed(3)
    views = seen(images)
    assert views.shape == (10, channels * 64) and views.min() >= 0 and views.max() <= 1
    assert not torch.allclose(views[:5], views[5:])
    torch.manual_seed(3)
    assert torch.equal(seen(images), views)  # drawn from global state alone


class Seen(nn.Module):
    """What reaches the encoder: features, and the number of sources."""

    def forward(self, x: torch.Tensor, neighborhood: Neighborhood) -> torch.Tensor:
        dense = x.to_dense() if x.layout == torch.sparse_csr else x
        return torch.cat([dense, neighborhood.degree()[:, None].float()], 1)


def test_a_view_of_a_graph_drops_edges_and_whole_features() -> None:
    x, edges = torch.ones(50, 40), torch.randint(50, (2, 400))
    features = GraphViews(Seen(), x, edges, 0.5, 0.25)
    first, second = features(torch.arange(50)).chunk(2)
    for view in (first, second):
        assert ((view[:, :40] == 0) | (view[:, :40] == 1)).all()
        assert (view[:, :40] == view[:1, :40]).all()  # a feature is dropped at all nodes
        assert 120 < view[:, 40].sum() < 280 and 0 < (view[0, :40] == 0).sum() < 25
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    dense = features(torch.tensor([3, 7]))
    torch.manual_seed(0)
    sparse = GraphViews(Seen(), x.to_sparse_csr(), edges, 0.5, 0.25)(torch.tensor([3, 7]))
    assert torch.equal(sparse, dense) and dense.shape == (4, 41)


def test_columns_of_sparse_rows() -> None:
    x, factor = torch.randn(4, 3).relu(), torch.tensor([0.0, 1.0, 2.0])
    torch.testing.assert_close(columns_times(x.to_sparse_csr(), factor).to_dense(), x * factor)
