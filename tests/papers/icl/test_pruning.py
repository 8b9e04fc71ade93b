import pytest
import torch
from torch import nn

from graphtheory.papers.icl.pruning import kept_mask, removal_order, while_pruned
from graphtheory.papers.shallow import ShallowAttention


def test_order_of_removal(generator: torch.Generator) -> None:
    norms = torch.tensor([[5.0, 1.0], [1.0, 2.0]])
    assert removal_order("smallest first", norms).tolist() == [[1, 0], [0, 1]]
    assert removal_order("largest first", norms).tolist() == [[0, 1], [1, 0]]
    many = torch.zeros(3, 50)
    first = removal_order("random", many, generator)
    assert torch.equal(first.sort(1).values, torch.arange(50).expand(3, 50))
    assert not torch.equal(first, removal_order("random", many, generator))
    assert not torch.equal(first[0], first[1])
    assert kept_mask(first, 0.3).sum(1).tolist() == [35, 35, 35]
    with pytest.raises(ValueError, match=r"share: got 1.5"):
        kept_mask(first, 1.5)
    with pytest.raises(ValueError, match="rule: got 'last', expected one of smallest first"):
        removal_order("last", norms)


def test_a_pruned_layer_is_the_smaller_layer(generator: torch.Generator) -> None:
    first, second = nn.Linear(4, 6), nn.Linear(6, 2)
    order = removal_order("smallest first", first.weight.detach().norm(dim=1))
    kept = kept_mask(order, 1 / 3)
    x = torch.randn(5, 4, generator=generator)
    before = second(torch.relu(first(x)))
    hidden = torch.relu(x @ first.weight[kept].t() + first.bias[kept])
    wanted = hidden @ second.weight[:, kept].t() + second.bias
    with while_pruned(first.weight, kept), while_pruned(first.bias, kept):
        torch.testing.assert_close(second(torch.relu(first(x))), wanted)
    torch.testing.assert_close(second(torch.relu(first(x))), before, atol=0, rtol=0)
    assert isinstance(first.weight, nn.Parameter) and first.weight.requires_grad


def test_every_trial_loses_neurons_of_its_own(generator: torch.Generator) -> None:
    model = ShallowAttention(3, 4, 6, trials=2, generator=generator)
    kept = torch.tensor([[True] * 3 + [False] * 3, [False] * 5 + [True]])
    whole = model.W_O.detach().clone()
    with pytest.raises(KeyError), while_pruned(model.W_O, kept):
        assert torch.equal(model.W_O, whole * kept[..., None])
        raise KeyError  # the weights come back after an error, too
    assert torch.equal(model.W_O, whole)


def test_a_neuron_of_a_convolution_is_a_channel(generator: torch.Generator) -> None:
    layer = nn.Conv2d(3, 4, 5, bias=False)
    kept = kept_mask(
        removal_order("smallest first", layer.weight.detach().flatten(1).norm(dim=1)), 0.25
    )
    with while_pruned(layer.weight, kept):
        out = layer(torch.randn(2, 3, 7, 7, generator=generator))
    assert out.any(0).flatten(1).any(1).tolist() == kept.tolist()


def test_what_is_refused_prunes_nothing() -> None:
    weight = torch.ones(6, 4)
    with (
        pytest.raises(ValueError, match=r"kept: shape \(3,\), expected the first axes of \(6, 4\)"),
        while_pruned(weight, torch.zeros(3, dtype=torch.bool)),
    ):
        pass
    assert weight.all()
