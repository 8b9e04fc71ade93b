from dataclasses import replace

import torch

from graphtheory.papers.mixture.image_groups import Grouped
from graphtheory.papers.mixture.image_training import Recipe, errors, learn


def test_a_network_learns_and_errors_are_of_each_group() -> None:
    y = torch.arange(64) % 2
    x = torch.where(y == 1, 1.0, -1.0)[:, None, None, None].expand(64, 1, 4, 4).contiguous()
    examples = Grouped(x, y, torch.arange(64) // 32)
    recipe = replace(Recipe(), epochs=20, batch_size=20, widths=(8,))
    net = learn(examples, recipe, 0)
    assert errors(net, examples) == [0, 0]
    wrong = examples._replace(y=torch.where(examples.group == 1, 1 - y, y))
    assert errors(net, wrong) == [0, 1]
