"""Features with few non-zeros in a model after `accelerate`."""

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.functional import dropout
from torch_geometric.nn import models

from graphtheory.integrations.pyg import accelerate
from graphtheory.nn import SparseFeatures


class Seen(nn.Module):
    """gcn.py of PyG's examples, which keeps what reached it."""

    def __init__(self, p=0.0) -> None:
        super().__init__()
        self.conv, self.p, self.kinds = pyg.GCNConv(1000, 8), p, []

    def forward(self, x, edge_index):
        self.kinds.append(type(x))
        return self.conv(dropout(x, self.p, self.training), edge_index)


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(100, 1000, generator=generator) < 0.01).float()
    return x, torch.randint(100, (2, 300), generator=generator)


def gradients(model, *args):
    model.zero_grad()
    model(*args).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


def test_from_the_second_call_on_with_the_same_gradients(given) -> None:
    model = Seen()
    wanted = gradients(model, *given)
    report = accelerate(model)
    for _ in range(3):
        torch.testing.assert_close(gradients(model, *given), wanted, rtol=1e-4, atol=1e-4)
    by_name = {"x": given[0], "edge_index": given[1]}
    model(**by_name)
    assert model.kinds[1:] == [torch.Tensor, *[SparseFeatures] * 3]
    report.undo()
    model(*given)
    assert model.kinds[-1] is torch.Tensor
    assert not model._forward_pre_hooks and "__prepare_scriptable__" not in vars(model)


def test_not_where_it_is_off_nor_without_a_swap(given) -> None:
    for model, options in ((Seen(), {"sparse_features": False}), (nn.Linear(4, 4), {})):
        accelerate(model, **options)
        assert not model._forward_pre_hooks
    model = Seen()
    accelerate(model)
    accelerate(model)
    assert len(model._forward_pre_hooks) == 1


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_read_few_as_well(twin, given) -> None:
    model = Seen()
    accelerate(model)
    other = twin(model)
    for _ in range(2):
        other(*given)
    assert other.kinds == [torch.Tensor, SparseFeatures]


def test_dropout_of_features_trains(given) -> None:
    model = Seen(p=0.5)
    accelerate(model)
    target = torch.randn(100, 8)
    adam = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        adam.zero_grad()
        loss = (model(*given) - target).square().mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiled_models_get_dense_features(when, given) -> None:
    torch._dynamo.reset()
    model = models.GCN(1000, 8, 2)
    wanted = model(*given)
    if when == "before":
        model = torch.compile(model, backend="eager")
    accelerate(model)
    if when == "after":
        model = torch.compile(model, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(model(*given), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch, of TorchScript itself
@pytest.mark.parametrize(
    "make", [lambda: models.GCN(1000, 8, 2), lambda: pyg.GCNConv(1000, 8)], ids=["model", "layer"]
)
def test_torchscript_leaves_the_hook_out(make, given) -> None:
    model = make()
    wanted = model(*given)
    accelerate(model)
    scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(*given), wanted)
    assert len(model._forward_pre_hooks) == 1


class ByKind(nn.Module):
    """Maps the features of each kind of nodes, as han_imdb.py of PyG's examples does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kinds = pyg.HANConv(1000, 8, (["a"], [("a", "to", "a")])), []

    def forward(self, x, edges):
        self.kinds.append(type(x["a"]))
        return self.conv(x, edges)["a"]


def test_features_in_a_dict_of_kinds_of_nodes(given) -> None:
    model, x, edges = ByKind(), given[0], {("a", "to", "a"): given[1]}
    wanted = gradients(model, {"a": x}, edges)
    accelerate(model)
    for _ in range(2):
        found = gradients(model, {"a": x}, edges)  # a new dict of the same tensors
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert model.kinds[1:] == [torch.Tensor, SparseFeatures]
