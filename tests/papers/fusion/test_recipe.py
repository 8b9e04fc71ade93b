from dataclasses import replace

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.lab.train import fit
from graphtheory.papers.fusion.recipe import (
    GRAPH,
    IMAGE_HEADS,
    MLP,
    TRANSFORMER,
    ContrastiveRecipe,
    GCNEncoder,
    ResNetFeatures,
    image_encoder,
    make_head,
    prepare,
    recipe_for,
)


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


SMALL = ContrastiveRecipe(depth=2, width=32, heads=2, batch_size=32, epochs=1, limit=2)


def count(head: torch.nn.Module) -> int:
    return sum(p.numel() for p in head.parameters())


@pytest.mark.parametrize("depth", [2, 5])
def test_an_mlp_has_the_parameters_of_the_transformer(depth: int) -> None:
    recipe = ContrastiveRecipe(depth=depth)
    ours, theirs = (make_head(replace(recipe, head=h), 128) for h in (TRANSFORMER, MLP))
    assert abs(count(theirs) / count(ours) - 1) < 0.01
    assert all(
        make_head(replace(recipe, head=h), 128)(torch.randn(3, 128)).shape == (3, 128)
        for h in IMAGE_HEADS
    )
    with pytest.raises(ValueError, match="head: got 'deep'"):
        make_head(replace(recipe, head="deep"), 8)


def test_a_run_is_a_function_of_its_seed_and_leaves_test_images_out() -> None:
    one, other = prepare(SMALL, 1), prepare(SMALL, 1)
    assert torch.equal(one.data.samples, other.data.samples) and 1285 < len(one.data.samples) < 1300
    runs = [fit(run.task, run.data, epochs=1, progress=False) for run in (one, other)]
    losses = [run.history[0]["train_loss"] for run in runs]
    assert losses[0] == losses[1] and one.score() == other.score()
    assert all(0 <= score <= 1 for score in one.score())
    assert len(one.embed()[1]) == 360
    assert not torch.equal(prepare(SMALL, 2).data.samples, one.data.samples)


@pytest.mark.parametrize("head", ["transformer", "none", "dgi"])
def test_nodes_of_a_graph_are_learned_alike(head: str) -> None:
    recipe = replace(GRAPH, dataset="karate", head=head, width=8, depth=2, heads=2, epochs=3)
    run = prepare(replace(recipe, batch_size=16), 0)
    before = run.score()
    assert fit(run.task, run.data, epochs=3, progress=False).epochs == 3
    assert run.data.count == 1 and all(0 <= s <= 1 for s in (*before, *run.score()))


def test_recipes_by_name() -> None:
    assert not recipe_for("digits", None).graph and recipe_for("Cora", None).graph
    assert recipe_for("MNIST", None).dataset == "mnist"
