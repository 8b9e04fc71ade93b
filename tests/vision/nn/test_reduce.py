import re

import pytest
import torch
from torch import Tensor

from graphtheory.vision.nn import unmerge
from graphtheory.vision.nn.reduce import Keep, Oracle, _pool_by_product, compose_slots, pool

SLOT = torch.tensor([[0, -1, 1, 1], [1, 0, -1, 0]])


def test_unmerge_gives_back_what_every_slot_has() -> None:
    values = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    assert unmerge(values, SLOT).squeeze(2).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]
    assert unmerge(values[..., 0], SLOT).tolist() == [[1, 0, 2, 2], [4, 3, 0, 3]]


def test_pool_is_its_transpose() -> None:
    values = torch.arange(8.0).view(2, 4)
    assert pool(values, SLOT, 2).tolist() == [[0, 5], [12, 4]]
    wide = torch.stack([values, -values], 2)
    assert torch.equal(pool(wide, SLOT, 2)[..., 1], -pool(values, SLOT, 2))


def test_slots_of_two_reductions_follow_each_other() -> None:
    later = torch.tensor([[1, 0], [-1, 0]])
    assert compose_slots(SLOT, later).tolist() == [[1, -1, 0, 0], [0, -1, -1, -1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": torch.ones(3, 4)}, "tokens: shape (3, 4), expected [B, 1 or more, dim]"),
        ({"received": torch.ones(1, 2)}, "received: shape (1, 2), expected (1, 3)"),
        ({"size": torch.ones(3)}, "size: shape (3,), expected (1, 3)"),
        ({"keys": torch.ones(1, 2, 4)}, "keys: shape (1, 2, 4), expected [1, 3, any]"),
        ({}, "score: not given, expected [B, T], which this rule reads"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Keep(1, Oracle())(**{"tokens": torch.ones(1, 3, 2), **arguments})


def test_pool_by_a_product_is_the_same() -> None:
    values = torch.randn(*SLOT.shape, 3, dtype=torch.float64, requires_grad=True)
    results = []
    for way in (pool, _pool_by_product):
        out = way(values, SLOT, 2)
        results.append((out, *torch.autograd.grad(out.square().sum(), values)))
    torch.testing.assert_close(*results)
