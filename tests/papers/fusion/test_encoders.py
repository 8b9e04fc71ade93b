import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.papers.fusion.encoders import GCNEncoder, ResNetFeatures, image_encoder


@pytest.mark.parametrize("name", ["cnn", "resnet20", "vit"])
def test_an_image_becomes_features(name: str) -> None:
    model = image_encoder(name, 1, 8)
    images = torch.rand(3, 1, 8, 8)
    assert model(images).shape == (3, model.out_channels)
    model(images).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_small_stem_keeps_the_map_and_resnet_20_has_its_parameters() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    model = ResNetFeatures(18, 1)
    seen = model.network.embedder(torch.zeros(2, 1, 16, 16))
    assert seen.shape == (2, 64, 16, 16)
    count = sum(p.numel() for p in model.parameters())
    assert count == 11_176_512 - 64 * 3 * 7 * 7 + 64 * 1 * 3 * 3  # torchvision's without classes
    model = image_encoder("resnet20", 3, 32)
    count = sum(p.numel() for p in model.parameters()) + 64 * 10 + 10  # and the last map
    projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert count - projections == 269_722  # 0.27 M in table 6 of He et al. (2016)
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert sum(layer.kernel_size == (3, 3) for layer in layers) == 19


def test_a_node_becomes_features_and_bad_names_are_named() -> None:
    x = torch.randn(5, 6).relu()
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 3]]), 5)
    model = GCNEncoder(6, 4)
    torch.testing.assert_close(model(x.to_sparse_csr(), nb), model(x, nb))
    with pytest.raises(ValueError, match="unknown backbone 'lenet'"):
        image_encoder("lenet", 1, 8)
    with pytest.raises(ValueError, match="depth: got 34"):
        ResNetFeatures(34)
