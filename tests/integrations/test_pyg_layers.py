"""Layers with more than one kind of weight, edge or aggregation after `accelerate`."""

import copy
import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import Explainer, GNNExplainer

from graphtheory.integrations.pyg import accelerate

NODES, EDGES, RELATIONS = 9, 30, 4
KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
METADATA = (["a", "b"], KINDS)
DEGREES = torch.tensor([0, 3, 2, 1])
ALL = ["sum", "mean", "min", "max", "std"]

MAKE = {
    "GINEConv": lambda: pyg.GINEConv(nn.Linear(6, 4), edge_dim=3),
    "PNAConv": lambda: pyg.PNAConv(6, 4, ALL, ["attenuation"], DEGREES, edge_dim=3, towers=2),
    "RGCNConv": lambda: pyg.RGCNConv(6, 4, RELATIONS, num_bases=2),
    "FastRGCNConv": lambda: pyg.FastRGCNConv(6, 4, RELATIONS, num_blocks=2),
    "HGTConv": lambda: pyg.HGTConv(6, 4, METADATA, heads=2),
    "HANConv": lambda: pyg.HANConv(6, 4, METADATA, heads=2),
}
HOMOGENEOUS = list(MAKE)[:4]


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    torch.manual_seed(0)


def args_of(name):
    """Arguments of a layer's forward."""
    edges = torch.randint(NODES, (2, EDGES))
    if name in ("HGTConv", "HANConv"):
        x = {t: torch.randn(NODES, 6).double() for t in ("a", "b")}
        return x, {kind: torch.randint(NODES, (2, EDGES)) for kind in KINDS}
    kinds = torch.randint(RELATIONS, (EDGES,))
    third = kinds if "RGCN" in name else torch.randn(EDGES, 3).double()
    return torch.randn(NODES, 6).double(), edges, third


def total(out):
    return sum(o.sin().sum() for o in out.values()) if isinstance(out, dict) else out.sin().sum()


def run(layer, args):
    """Output and gradients of all parameters."""
    layer.zero_grad()
    out = layer(*args)
    total(out).backward()
    return out, [p.grad for p in layer.parameters()]


@pytest.fixture(params=MAKE)
def case(request):
    """A layer of PyG, and what it is called with."""
    return MAKE[request.param]().double(), args_of(request.param)


def test_gives_what_it_gave_and_goes_back(case) -> None:
    layer, args = case
    kind, wanted = type(layer), run(layer, args)
    state = list(layer.state_dict())
    report = accelerate(layer)
    assert report.swapped and not report.kept and type(layer) is not kind
    torch.testing.assert_close(run(layer, args), wanted, rtol=1e-9, atol=1e-9)
    assert list(layer.state_dict()) == state
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(run(twin, args), wanted, rtol=1e-9, atol=1e-9)
    report.undo()
    assert type(layer) is kind and "propagate" not in vars(layer)
    torch.testing.assert_close(run(layer, args), wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch, where a graph breaks
def test_compiled_gives_the_same(case) -> None:
    torch._dynamo.reset()
    layer, args = case
    wanted = run(layer, args)
    accelerate(layer)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(run(compiled, args), wanted, rtol=1e-9, atol=1e-9)


def test_hooks_see_messages(case) -> None:
    layer, args = case
    wanted = run(layer, args)
    accelerate(layer)
    seen = []
    handle = layer.register_message_forward_hook(lambda *given: seen.append(1))
    torch.testing.assert_close(run(layer, args), wanted, rtol=1e-9, atol=1e-9)
    assert seen
    handle.remove()
    torch.testing.assert_close(run(layer, args), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch, of TorchScript itself
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_torchscript_compiles_the_layer_of_pyg(name) -> None:
    layer, args = MAKE[name]().double(), args_of(name)
    wanted = layer(*args)
    accelerate(layer)
    scripted = torch.jit.script(layer)
    assert scripted.original_name == name
    torch.testing.assert_close(scripted(*args), wanted)


class Net(nn.Module):
    def __init__(self, layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, third):
        return self.layer(x, edge_index, third)


@pytest.mark.parametrize("name", ["GINEConv", "PNAConv"])
def test_explains_what_it_explained(name) -> None:
    model = Net(MAKE[name]()).float().eval()
    x, edges, third = args_of(name)

    def explanation():
        torch.manual_seed(0)
        config = {"mode": "regression", "task_level": "node", "return_type": "raw"}
        explainer = Explainer(
            model, GNNExplainer(epochs=5), explanation_type="model", edge_mask_type="object",
            model_config=config,
        )  # fmt: skip
        return explainer(x.float(), edges, third=third.float()).edge_mask

    wanted = explanation()
    report = accelerate(model)
    assert len(report.swapped) == 1, str(report)
    found = explanation()
    torch.testing.assert_close(found, wanted)
    assert found.std() > 0
    report.undo()
    torch.testing.assert_close(explanation(), wanted)


def hooked(layer, part):
    part(layer).register_forward_hook(lambda *args: None)
    return layer


class Halved(pyg.RGCNConv):
    def message(self, x_j, edge_type_ptr):
        return x_j / 2


REASONS = {
    "pre_layers: got 2, expected 1": lambda: pyg.PNAConv(
        6, 4, ALL, ["identity"], DEGREES, pre_layers=2
    ),
    "aggregators: got MulAggregation": lambda: pyg.PNAConv(
        6, 4, ["mul", "mean"], ["identity"], DEGREES
    ),
    "a hook on its pre_nns": lambda: hooked(MAKE["PNAConv"](), lambda c: c.pre_nns[1][0]),
    "a hook on its v_rel": lambda: hooked(MAKE["HGTConv"](), lambda c: c.v_rel),
    "has no weights yet": lambda: pyg.HGTConv(-1, 4, METADATA),
    "dropout: got 1.0, expected": lambda: pyg.HANConv(6, 4, METADATA, dropout=1.0),
    "aggr: got 'mul', expected 'sum'": lambda: pyg.RGCNConv(6, 4, 2, aggr="mul"),
    "aggr: got 'softmax', expected": lambda: pyg.GINEConv(nn.Linear(6, 4), aggr="softmax"),
    "a subclass of RGCNConv, which may": lambda: Halved(6, 4, 2),
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_be_swapped_is_kept_and_says_why(reason) -> None:
    layer = REASONS[reason]()
    kind = type(layer)
    report = accelerate(nn.ModuleList([layer]))
    assert not report.swapped and type(layer) is kind
    assert report.kept[0].reason.startswith(reason)
