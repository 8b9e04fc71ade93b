"""What is done to a layer after `accelerate`, beside the same done to PyG's layer."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.utils import prune

from battery.after import CHANGES, history
from battery.drawn_layers import LAYERS
from graphtheory import accelerate
from graphtheory.nn import conv
from graphtheory.nn.conv import on_core

NODES = 10


@pytest.mark.filterwarnings("ignore")  # torch, of old weight norms and sparse matrices
@pytest.mark.parametrize("what", CHANGES)
def test_every_change_has_the_effect_that_it_has_on_pygs_layer(what: str) -> None:
    for number in range(len(LAYERS)):
        wrong, done = history(number, 5, (what,))
        assert not wrong, (done, wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "what", ["a hook on a part", "another method", "another reduction", "doubled messages"]
)
def test_a_layer_that_does_not_look_again_is_seen(what: str, monkeypatch) -> None:
    monkeypatch.setattr(on_core, "changed", lambda layer, drop_in: "")
    assert any(history(number, 5, (what,))[0] for number in range(4 * len(LAYERS)))


def given() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    return torch.randn(NODES, 8), torch.from_numpy(rng.integers(0, NODES, (2, 30)))


def test_a_hook_on_attention_is_called_once_and_sees_what_pyg_shows() -> None:
    layer, seen = pyg.GPSConv(8, pyg.GCNConv(8, 8), heads=2), []
    accelerate(layer)
    handle = layer.attn.register_forward_hook(lambda m, args, out: seen.append(args[0].shape))
    out = layer(*given())
    assert seen == [(1, NODES, 8)] and out.shape == (NODES, 8)
    handle.remove()
    layer(*given())
    assert len(seen) == 1


def test_what_only_ours_computes_is_refused_by_name() -> None:
    layer = conv.GPSConv(8, None, heads=2)
    layer.attn.register_forward_hook(lambda *args: None)
    x, edges = given()
    with pytest.raises(NotImplementedError, match=r"attn: a hook on its attn, .*remove what was"):
        layer(x, edges, attn_bias=torch.zeros(NODES**2, 2))


@pytest.mark.parametrize("method", ["forward", "propagate"])
def test_undo_names_a_method_that_was_replaced(method: str) -> None:
    layer = pyg.GINConv(nn.Linear(8, 4))
    report = accelerate(layer)
    before = getattr(layer, method)
    setattr(layer, method, lambda *args, **named: before(*args, **named))
    with pytest.raises(RuntimeError, match=f"model: its {method} was replaced after accelerate"):
        report.undo()
    delattr(layer, method)
    report.undo()
    assert type(layer) is pyg.GINConv


def test_a_map_in_the_place_of_another_and_pruned_weights_count_at_once() -> None:
    x, edges = given()
    layer = pyg.GCNConv(8, 4)
    accelerate(layer)
    layer.lin = nn.Linear(8, 4, bias=False)
    with torch.no_grad():
        layer.lin.weight.zero_()
    assert torch.equal(layer(x, edges), layer.bias.expand(NODES, -1))
    layer = pyg.PNAConv(8, 4, ["mean"], ["identity"], torch.tensor([1, 3]))
    accelerate(layer)
    first = layer.pre_nns[0][0]
    prune.l1_unstructured(first, "weight", 0.5)
    with torch.no_grad():
        first.weight_orig.zero_()
        first.bias.fill_(2.0)
        wanted = layer(x, edges)
        first.weight_orig.fill_(1.0)
    assert not torch.allclose(layer(x, edges), wanted)
