"""Contrastive training without labels: its loss, recipe, measures and files."""

import math
import os
import runpy
import socket
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from battery.forked import start
from graphtheory import Neighborhood
from graphtheory.lab.train import fit
from graphtheory.papers.fusion import recipe as recipes
from graphtheory.papers.fusion import subspaces
from graphtheory.papers.fusion.contrastive import Infomax, SGDOptions, _shuffled, nt_xent
from graphtheory.papers.fusion.recipe import image_encoder, make_head, prepare, recipe_for
from graphtheory.papers.fusion.subspaces import Subspaces, class_mass, cluster_integrity, sharpness
from tests.papers.conftest import refuses


def definition(first: Tensor, second: Tensor, tau: float) -> float:
    z = normalize(torch.cat([first, second]), dim=1).tolist()
    count, total = len(z) // 2, 0.0
    for i in range(2 * count):
        similar = [math.exp(sum(a * b for a, b in zip(z[i], z[k], strict=True)) / tau)
                   for k in range(2 * count)]  # fmt: skip
        total -= math.log(similar[(i + count) % (2 * count)] / (sum(similar) - similar[i]))
    return total / (2 * count)


def test_the_loss_is_its_definition() -> None:
    first, second = torch.randn(2, 5, 4).double()
    loss = nt_xent(first, second, 0.3)
    assert loss.item() == pytest.approx(definition(first, second, 0.3))


def test_one_sample_has_no_loss_and_bad_input_is_named() -> None:
    assert nt_xent(torch.ones(1, 2), torch.ones(1, 2)) == 0
    with pytest.raises(ValueError, match="temperature: got 0"):
        nt_xent(torch.ones(2, 2), torch.ones(2, 2), temperature=0.0)
    with pytest.raises(ValueError, match=r"second: shape \(3, 2\)"):
        nt_xent(torch.ones(2, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="lr, momentum, weight_decay: got 0"):
        SGDOptions(lr=0.0)


@pytest.mark.skipif(os.name != "posix", reason="forks processes")
def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script, processes = str(Path(__file__).with_name("contrast_of_a_process.py")), []
    for rank, world in ((0, 1), (0, 2), (1, 2)):
        given = {"options": {"rank": rank, "world": world, "port": port, "folder": str(tmp_path)}}
        processes.append(start(runpy.run_path, script, given, "__main__"))
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    one, *others = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for other in others:
        torch.testing.assert_close(other["after"], one["after"])
    assert not any(torch.allclose(t, one["before"][name]) for name, t in one["after"].items())


def test_infomax_shuffles_rows_of_any_kind_and_learns() -> None:
    x, nb = torch.randn(5, 3).relu(), Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 5)
    torch.manual_seed(3)
    dense, _ = _shuffled(x, nb)
    torch.manual_seed(3)
    sparse, _ = _shuffled(x.to_sparse_csr(), nb)
    assert torch.equal(sparse.to_dense(), dense) and not torch.equal(dense, x)
    x, nb = torch.randn(40, 3), Neighborhood.from_edge_index(torch.tensor([[0], [1]]), 40)
    task = Infomax(Encoder(3, 4), 4, x, nb)
    loss = task.training_step(None, 0)
    loss.backward()
    assert loss.isfinite() and all(p.grad is not None for p in task.parameters())


class Encoder(nn.Linear):
    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return super().forward(x)


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
    assert subspaces.sharpness_of_means(attention, Y) == pytest.approx((7 * 0.4 + 0.05) / 8 / 0.1)
    assert sharpness(blocks(0.5, 0.0, 0.5), Y) == inf
    assert sharpness(blocks(0.0, 0.0, 1.0), Y) == 0
    assert class_mass(blocks(0.5, 0.0, 0.5), Y) == pytest.approx((1.0, 1 / 3))
    assert class_mass(blocks(0.1, 0.1, 0.7), Y).mass == pytest.approx(1 / 3)
    refuses(
        (lambda: class_mass(blocks(0.0, 0.0, 1.0), Y), "nothing off the diagonal"),
        (lambda: class_mass(blocks(0.5, -0.1, 0.0), Y), "negative entries"),
        (lambda: sharpness(-blocks(1.0, 1.0, 1.0), Y), "negative entries"),
        (lambda: sharpness(blocks(1.0, 1.0, 1.0), torch.zeros(4)), "one class"),
    )


def test_no_weights_are_refused_and_too_large_a_bound_is_infinite() -> None:
    for measure in (sharpness, subspaces.sharpness_of_means, class_mass):
        with pytest.raises(ValueError, match="not finite"):
            measure(torch.full((4, 4), torch.nan), Y)
    assert subspaces.sharpness_of_means(torch.eye(4), Y) == sharpness(torch.eye(4), Y) == 0
    assert subspaces.growth_bound(1000, 5.0, 1.0).factor == inf


@pytest.mark.parametrize(
    ("count", "delta", "Delta", "factor"),
    [(4, 0.0, 0.9, 1.9e-3), (4, 0.1, 0.5, 0.054), (64, 0.0, 0.9, 4e-25)],
)
def test_theorem_2_has_a_factor_below_1(count: int, delta: float, Delta: float, factor) -> None:
    found = subspaces.growth_bound(count, delta, Delta)
    assert found.factor == pytest.approx(factor, rel=0.15) and found.squares_negative


def test_theorem_2_and_separability_under_noise() -> None:
    for count, delta, more in product((3, 8, 64, 2048), (0.0, 0.05, 0.3), (0.01, 0.3, 0.6)):
        assert subspaces.growth_bound(count, delta, delta + more).factor < 1
    assert subspaces.noise_bounds(0.0, 0.5) == (0.0, 0.5, True)
    delta, kept, separable = subspaces.noise_bounds(0.05, 0.5)
    assert delta > kept and not separable


def test_samples_lie_in_their_subspace_on_both_sides_or_one_and_noise_is_bounded(generator) -> None:
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
    refuses(
        (lambda: Subspaces(4, 3, 2, 1), r"dim: got 4, expected above \(clusters - 1\) \* rank"),
        (lambda: Subspaces(4, 2, 1, 1, noise=2), "noise: got 2"),
        (lambda: subspaces.noise_bounds(1.5, 0.5), r"noise: got 1.5"),
    )


def parts(of: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    same = y[:, None] == y
    return of[same], of[~same]


@pytest.mark.parametrize("shape", [(4, 2, 1), (20, 4, 3)])
def test_theorem_1_is_exact_on_half_space_data(shape: tuple[int, int, int], generator) -> None:
    x, y, _, _ = Subspaces(*shape, per_cluster=6).sample(generator)
    found = subspaces.fusion_weights(x, y)
    torch.testing.assert_close(found.weights.norm(dim=0), torch.ones(len(y)).double())
    attention = (x @ found.weights) @ (x @ found.weights).t()
    bound = 6 * found.rho[y] ** 2
    assert (parts(attention, y)[1].abs() < 1e-12).all()
    same = y[:, None] == y
    assert (torch.where(same, attention, torch.inf).min(1).values >= bound * (1 - 1e-9)).all()
    assert (found.rho > 0).all()


def test_without_the_sign_condition_attention_within_a_cluster_is_negative(generator) -> None:
    x, y, _, _ = Subspaces(20, 4, 3, 12, half_space=False).sample(generator)
    with pytest.raises(ValueError, match=r"no direction .* all samples of cluster 0 on one side"):
        subspaces.fusion_weights(x, y)
    directions = cluster_integrity(x, y, generator, own=True).directions.t()[:, y]  # |x^T w| large
    within, between = parts((x @ directions) @ (x @ directions).t(), y)
    assert (between.abs() < 1e-12).all() and within.min() < 0


def test_the_search_finds_what_the_exact_problem_has_by_several_starts(generator) -> None:
    x, y, _, _ = Subspaces(12, 3, 2, 5).sample(generator)
    exact = subspaces.fusion_weights(x, y).rho  # signed: of one side, |.| allows at least as much
    found = cluster_integrity(x, y, generator, own=True, steps=800, step_size=0.03)
    assert (found.rho > 0.5 * exact).all()
    reached = torch.stack([(x[y == k] @ u).abs().min() for k, u in enumerate(found.directions)])
    torch.testing.assert_close(found.rho, reached)
    angles = torch.tensor([0.1, 0.7, 1.2]).double()
    cluster = torch.stack([angles.cos(), angles.sin(), 0 * angles, 0 * angles], 1)
    other = torch.eye(4).double()[2:]
    x, y = torch.cat([cluster, other]), torch.tensor([0, 0, 0, 1, 1])
    exact = float(subspaces.fusion_weights(x, y).rho[0])
    assert exact == pytest.approx(torch.cos(torch.tensor(0.55)).item(), abs=1e-4)
    for _ in range(5):
        assert float(cluster_integrity(x, y, generator, own=True).rho[0]) > 0.95 * exact
    one = [cluster_integrity(x, y, generator, own=True, starts=1).rho[0] for _ in range(10)]
    assert min(one) < 0.5 * exact
    with pytest.raises(ValueError, match="starts: got 0, expected at least 1"):
        cluster_integrity(x, y, generator, starts=0)


def test_integrity_of_a_known_case_and_of_more_clusters_and_the_sign_of_its_step(generator) -> None:
    angle = torch.tensor(0.5, dtype=torch.float64)  # two lines: u is the normal of the other
    x = torch.stack([torch.tensor([1.0, 0.0]).double(), torch.stack([angle.cos(), angle.sin()])])
    found = cluster_integrity(x, torch.tensor([0, 1]), generator)
    assert found.rho.tolist() == pytest.approx([float(angle.sin())] * 2)
    assert float(found.rho.min()) == pytest.approx(float(angle.sin()))
    # From here the paper's step, +x whatever the sign, leads down to the lesser peak of 0.6.
    samples = torch.tensor([[0, 0.6, 0.8], [0, 0.6, -0.8]]).double()
    barred, u = torch.tensor([[[1.0], [0], [0]], [[0], [0.7], [0.71]]]).double()
    assert subspaces._search(samples, barred, u, 2000, 0.01)[0] > 0.78
    x, y, _, _ = Subspaces(6, 3, 2, 4).sample(generator)
    paper = cluster_integrity(x, y, generator)
    attention = (x @ paper.directions.t()[:, y]) @ (x @ paper.directions.t()[:, y]).t()
    assert parts(attention, y)[1].abs().max() > 0.01  # not block-diagonal


@pytest.mark.parametrize("name", ["cnn", "resnet20", "vit"])
def test_an_image_becomes_features(name: str) -> None:
    model = image_encoder(name, 1, 8)
    images = torch.rand(3, 1, 8, 8)
    assert model(images).shape == (3, model.out_channels)
    model(images).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_the_small_stem_keeps_the_map_and_resnet_20_has_its_parameters() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    model = recipes.ResNetFeatures(18, 1)
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
    model = recipes.GCNEncoder(6, 4)
    torch.testing.assert_close(model(x.to_sparse_csr(), nb), model(x, nb))
    with pytest.raises(ValueError, match="unknown backbone 'lenet'"):
        image_encoder("lenet", 1, 8)
    with pytest.raises(ValueError, match="depth: got 34"):
        recipes.ResNetFeatures(34)


SMALL = recipes.ContrastiveRecipe(depth=2, width=32, heads=2, batch_size=32, epochs=1, limit=2)


def count(head: torch.nn.Module) -> int:
    return sum(p.numel() for p in head.parameters())


@pytest.mark.parametrize("depth", [2, 5])
def test_an_mlp_has_the_parameters_of_the_transformer(depth: int) -> None:
    recipe = recipes.ContrastiveRecipe(depth=depth)
    heads = (recipes.TRANSFORMER, recipes.MLP)
    ours, theirs = (make_head(replace(recipe, head=head), 128) for head in heads)
    assert abs(count(theirs) / count(ours) - 1) < 0.01
    for name in recipes.IMAGE_HEADS:
        assert make_head(replace(recipe, head=name), 128)(torch.randn(3, 128)).shape == (3, 128)
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
    small = {"width": 8, "depth": 2, "heads": 2, "epochs": 3, "batch_size": 16}
    run = prepare(replace(recipes.GRAPH, dataset="karate", head=head, **small), 0)
    before = run.score()
    assert fit(run.task, run.data, epochs=3, progress=False).epochs == 3
    assert run.data.count == 1 and all(0 <= s <= 1 for s in (*before, *run.score()))


def test_recipes_by_name() -> None:
    assert not recipe_for("digits", None).graph and recipe_for("Cora", None).graph
    assert recipe_for("MNIST", None).dataset == "mnist"
