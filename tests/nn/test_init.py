import torch
from torch import nn

from graphtheory.nn.init import init_transformer


def test_maps_are_drawn_from_the_generator_and_norms_stay() -> None:
    def model(seed: int) -> nn.Module:
        made = nn.Sequential(nn.Conv2d(3, 40, 4), nn.LayerNorm(40), nn.Linear(40, 50))
        nn.init.constant_(made[1].bias, 3)
        init_transformer(made, torch.Generator().manual_seed(seed))
        return made

    first, again, other = model(0), model(0), model(1)
    assert torch.equal(first[2].weight, again[2].weight)
    assert not torch.equal(first[2].weight, other[2].weight)
    assert abs(first[0].weight.std() - 0.02) < 0.002 and not first[0].bias.any()
    assert (first[1].bias == 3).all()
