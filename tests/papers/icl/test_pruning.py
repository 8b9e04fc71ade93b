import pytest
import torch
from torch import nn

from graphtheory.papers.icl.pruning import (
    AtRandom,
    ByMagnitude,
    kept_mask,
    neuron_norms,
    prune_neurons,
    while_pruned,
)
from graphtheory.papers.shallow import ShallowAttention


def test_order_of_going(generator: torch.Generator) -> None:
    norms = neuron_norms(torch.tensor([[[3.0, 4.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]]))
    assert norms.tolist() == [[5, 1], [1, 2]]
    assert ByMagnitude().order(norms).tolist() == [[1, 0], [0, 1]]
    assert ByMagnitude(largest=True).order(norms).tolist() == [[0, 1], [1, 0]]
    rule, many = AtRandom(generator), torch.zeros(3, 50)
    first = rule.order(many)
    assert torch.equal(first.sort(1).values, torch.arange(50).expand(3, 50))
    assert not torch.equal(first, rule.order(many)) and not torch.equal(first[0], first[1])
    assert kept_mask(first, 0.3).sum(1).tolist() == [35, 35, 35]
    with pytest.raises(ValueError, match=r"share: got 1.5"):
        kept_mask(first, 1.5)


def test_a_pruned_layer_is_the_smaller_layer(generator: torch.Generator) -> None:
    first, second = nn.Linear(4, 6), nn.Linear(6, 2)
    kept = kept_mask(ByMagnitude().order(neuron_norms(first.weight)), 1 / 3)
    x = torch.randn(5, 4, generator=generator)
    before = second(torch.relu(first(x)))
    hidden = torch.relu(x @ first.weight[kept].t() + first.bias[kept])
    wanted = hidden @ second.weight[:, kept].t() + second.bias
    with while_pruned(first, kept):
        torch.testing.assert_close(second(torch.relu(first(x))), wanted)
    torch.testing.assert_close(second(torch.relu(first(x))), before, atol=0, rtol=0)
    assert dict(first.named_parameters()).keys() == {"weight", "bias"}
    prune_neurons(first, kept)
    torch.testing.assert_close(second(torch.relu(first(x))), wanted)


def test_every_trial_loses_neurons_of_its_own(generator: torch.Generator) -> None:
    model = ShallowAttention(3, 4, 6, trials=2, generator=generator)
    kept = torch.tensor([[True] * 3 + [False] * 3, [False] * 5 + [True]])
    whole = model.W_O.detach().clone()
    with while_pruned(model, kept, ["W_O"]):
        assert torch.equal(model.W_O, whole * kept[..., None])
    assert torch.equal(model.W_O, whole) and isinstance(model.W_O, nn.Parameter)


def test_a_neuron_of_a_convolution_is_a_channel(generator: torch.Generator) -> None:
    layer = nn.Conv2d(3, 4, 5)
    norms = neuron_norms(layer.weight)
    torch.testing.assert_close(norms, layer.weight.detach().flatten(1).norm(dim=1))
    kept = kept_mask(ByMagnitude().order(norms), 0.25)
    with while_pruned(layer, kept):
        out = layer(torch.randn(2, 3, 7, 7, generator=generator))
    assert [bool(channel.any()) for channel in out.unbind(1)] == kept.tolist()
    line = nn.Conv1d(3, 4, 5, bias=False)
    assert neuron_norms(line.weight, axes=1).shape == (4,)
    with pytest.raises(ValueError, match=r"kept: shape \(4, 3\), expected one axis, Conv1d's rows"):
        prune_neurons(line, neuron_norms(line.weight) > 0)
    with pytest.raises(ValueError, match=r"axes: got 2, expected 1 to 1 of shape \(2, 3\)"):
        neuron_norms(torch.zeros(2, 3), axes=2)


def test_what_is_refused_prunes_nothing() -> None:
    layer, both = nn.Linear(4, 4), nn.Module()
    both.weight, both.bias = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4))
    square, rows = torch.zeros(4, 4, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)
    for module, wanted in ((layer, "one axis, Linear's rows"), (both, "the first axes of bias")):
        with pytest.raises(ValueError, match=rf"kept: shape \(4, 4\), expected {wanted}"):
            prune_neurons(module, square)
        with pytest.raises(ValueError, match="kept"), while_pruned(module, square):
            pass
        assert dict(module.named_parameters()).keys() == {"weight", "bias"}
    prune_neurons(layer, rows)
    with pytest.raises(ValueError, match=r"\['weight', 'bias'\] of Linear are pruned already"):
        prune_neurons(layer, rows)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kept: shape \(3,\), expected the first axes of weight"):
        prune_neurons(nn.Linear(4, 6), torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"has no parameter \['W'\], expected some of"):
        prune_neurons(nn.Linear(4, 6), torch.ones(6, dtype=torch.bool), ["W"])
