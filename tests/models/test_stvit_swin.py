import torch

from graphtheory.metrics import count_macs
from graphtheory.models import stvit_r_swin_base, stvit_r_swin_small
from graphtheory.models.stvit_swin import stvit_r_swin


def test_sizes_are_published() -> None:
    with torch.device("meta"):
        models = [stvit_r_swin_small(), stvit_r_swin_base()]
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    assert [round(n / 1e6, 3) for n in sizes] == [49.626, 87.813]  # the log of B says 87.812
    rates = [models[0].stages[2].units[i].blocks[4].drop_path.p for i in range(3)]
    assert rates == [0.3 * i / 23 for i in (9, 15, 21)]


def test_cost_is_published_but_for_norms() -> None:
    """5.826 G in the authors' log, of which 3.312 G in stage 3; their counter counts norms."""
    model, image = stvit_r_swin_small().requires_grad_(False), torch.zeros(1, 3, 224, 224)
    found = count_macs(model, image)
    units = sum(found.by_module[f"stages.2.units.{i}"] for i in range(3))
    assert round(units / 1e9, 3) == 3.301
    assert 0.99 * 5.826 < found.total / 1e9 < 5.826


def test_images_of_any_size_and_maps_of_each_layer() -> None:
    model = stvit_r_swin(8, 1, units=2, window=4, side=2, out_channels=3).eval()
    images = torch.randn(2, 3, 100, 130)
    out = model(images)
    assert out.shape == (2, 3)
    torch.testing.assert_close(model(images[1:]), out[1:])
    sizes = [(grid.height, grid.width) for _, grid in model.features(images)]
    assert sizes == [(13, 17), (7, 9), (4, 5), (4, 5)]
    maps = model.attention_maps(images)
    assert len(maps) == 18
    for found in maps:
        nb = found.neighborhood
        total = torch.zeros(nb.num_dst, found.weights.size(1))
        total = total.index_add(0, nb.receivers(), found.weights)
        torch.testing.assert_close(total, torch.ones_like(total))


def test_gradients_reach_every_parameter() -> None:
    model = stvit_r_swin(8, 1, units=1, window=2, side=1, tokens=4, drop_path=0.0)
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
