import pytest
import torch
from torch import nn

from graphtheory.vision.integrations.weights import load_renamed

RULES = (("w(\\d)", r"weight#\1"), ("b", "bias"), ("seen", ""))


def state() -> dict[str, torch.Tensor]:
    return {
        "w1": torch.full((1, 1, 3), 2.0), "w0": torch.ones(1, 3),
        "b": torch.zeros(2), "seen": torch.zeros(9),
    }  # fmt: skip


def test_parts_are_joined_in_order_and_leading_axes_dropped() -> None:
    model = nn.Linear(3, 2)
    load_renamed(model, state(), RULES)
    assert model.weight[:, 0].tolist() == [1, 2] and not model.bias.any()


def test_everything_that_does_not_fit_is_named_and_nothing_is_loaded() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    wrong = {k: t for k, t in state().items() if k not in ("w1", "b")} | {"x": torch.zeros(1)}
    with pytest.raises(ValueError) as error:
        load_renamed(model, wrong, RULES)
    assert str(error.value) == (
        "state: does not fit Linear; missing: bias; unexpected: x; "
        "other shapes: weight (1, 3) for (2, 3)"
    )
    assert torch.equal(model.weight, before)
