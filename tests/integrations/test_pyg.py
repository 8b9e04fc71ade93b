"""A model after `accelerate` beside the same model before it."""

import copy
import pickle
from functools import partial
from inspect import signature
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.utils import parametrize
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import models
from torch_geometric.nn.aggr import SumAggregation

import graphtheory
import graphtheory.nn as on_core
from graphtheory.integrations import pyg as integration
from graphtheory.integrations.pyg import Kept, Swapped, accelerate
from tests.integrations.conftest import swapped

NAMES = ["TransformerConv", "GATConv", "GATv2Conv", "GCNConv"]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
NODES, EDGES = 9, 30


KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
METADATA, RELATIONS = (["a", "b"], KINDS), 4
DEGREES = torch.tensor([0, 3, 2, 1])
ALL = ["sum", "mean", "min", "max", "std"]

MAKE = {
    "GINEConv": lambda: pyg.GINEConv(nn.Linear(6, 4), edge_dim=3),
    "PNAConv": lambda: pyg.PNAConv(6, 4, ALL, ["attenuation"], DEGREES, edge_dim=3, towers=2),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(6, 4, edge_dim=3),
    "RGCNConv": lambda: pyg.RGCNConv(6, 4, RELATIONS, num_bases=2),
    "FastRGCNConv": lambda: pyg.FastRGCNConv(6, 4, RELATIONS, num_blocks=2),
    "HGTConv": lambda: pyg.HGTConv(6, 4, METADATA, heads=2),
    "HANConv": lambda: pyg.HANConv(6, 4, METADATA, heads=2),
    "GATConv": lambda: pyg.GATConv(6, 4, heads=2, edge_dim=3),
    "SAGEConv": lambda: pyg.SAGEConv((6, 6), 4),
    "GINConv": lambda: pyg.GINConv(nn.Linear(6, 4)),
    "GraphConv": lambda: pyg.GraphConv((6, 6), 4),
}


class Two(nn.Module):
    def __init__(self, name, in_channels=6, **options) -> None:
        super().__init__()
        layer = getattr(pyg, name)
        width = 4 * options.get("heads", 1) if options.get("concat", True) else 4
        self.first, self.second = layer(in_channels, 4, **options), layer(width, 3, **options)

    def forward(self, x, edge_index, *per_edge):
        return self.second(self.first(x, edge_index, *per_edge).relu(), edge_index, *per_edge)


def graph():
    """Edges with self-loops and duplicates."""
    edge_index = torch.randint(NODES, (2, EDGES))
    edge_index[:, :2] = 1
    return edge_index


def randomized(model, dtype):
    """No bias stays at zero, which would hide it."""
    model.to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    return model


def run(model, *args):
    args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    model.zero_grad()
    out = model(*args)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(7), dtype=out.dtype)
    (out * cotangent).sum().backward()
    leaves = [*(a for a in args if a.requires_grad), *model.parameters()]
    return [out.detach(), *(torch.zeros(1) if t.grad is None else t.grad.clone() for t in leaves)]


def assert_close(found, wanted):
    """To a part in 10^5 or 10^10 of the largest entry, whose rounding error all have."""
    scale = max(1.0, *(float(t.abs().max()) for t in wanted))
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE[wanted[0].dtype] * scale)


def assert_same_after(model, *args):
    """`accelerate` swaps something, and the model gives what it gave, also when that is undone."""
    wanted, kinds = run(model, *args), [type(layer) for layer in model.modules()]
    report = accelerate(model)
    assert report.swapped and not report.kept
    assert_close(run(model, *args), wanted)
    report.undo()
    assert [type(layer) for layer in model.modules()] == kinds


OPTIONS = [
    ("GCNConv", {"improved": True, "weights": True}),  # more of these four: tests/nn/conv
    ("GCNConv", {"flow": "target_to_source"}),
    ("GATConv", {"heads": 2, "concat": False, "edge_dim": 2, "add_self_loops": False}),
    ("GATv2Conv", {"heads": 2, "residual": True, "edge_dim": 2}),
    ("TransformerConv", {"heads": 2, "concat": False, "edge_dim": 2, "bias": False}),
    *(("SAGEConv", {"aggr": aggr}) for aggr in ("sum", "mean", "max", "min")),
    ("SAGEConv", {"normalize": True, "project": True}),
    ("SAGEConv", {"normalize": True, "flow": "target_to_source"}),
    *(("GraphConv", {"aggr": aggr, "weights": True}) for aggr in ("sum", "mean", "max")),
    ("ResGatedGraphConv", {}),
    ("ResGatedGraphConv", {"edge_dim": 2, "aggr": "mean"}),
    ("ChebConv", {"K": 3}),
    ("SGConv", {"K": 2, "weights": True}),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_layers_give_what_they_gave(name, options, dtype) -> None:
    options = dict(options)
    per_edge = [torch.rand(EDGES, dtype=dtype)] if options.pop("weights", False) else []
    if "edge_dim" in options:
        per_edge = [torch.randn(EDGES, options["edge_dim"], dtype=dtype)]
    model = Two(name, **options)
    args = [torch.randn(NODES, 6, dtype=dtype), graph(), *per_edge]
    assert_same_after(randomized(model, dtype), *args)


def test_a_projected_pair_with_the_flow_reversed_stays_pygs() -> None:
    layer = pyg.SAGEConv(6, 3, project=True, flow="target_to_source")
    report = accelerate(nn.Sequential(layer))
    assert "project=True" in str(report)


def test_every_drop_in_is_tried_and_documented() -> None:
    names = {kind.__name__ for kind in integration._DROP_INS}
    assert {*MAKE, *(name for name, _ in OPTIONS), "APPNP", "GPSConv"} == names  # two in MODELS
    page = Path(__file__).parents[2] / "docs" / "drop_in.md"
    for text in (accelerate.__doc__, page.read_text("utf-8")):
        assert {name for name in names if f"`{name}`" not in text} == set()


MODELS = {
    "GCN": lambda: models.GCN(6, 8, 3, 4, norm="LayerNorm", jk="cat"),
    "GAT": lambda: models.GAT(6, 8, 3, 4, heads=4, residual=True),
    "GATv2": lambda: models.GAT(6, 8, 2, 4, v2=True, heads=2, act="elu"),
    "Sequential": lambda: pyg.Sequential(
        "x, e",
        [(pyg.GATConv(6, 4, heads=2), "x, e -> x"), nn.ELU(), (pyg.GCNConv(8, 4), "x, e -> x")],
    ),
    "GPS": lambda: pyg.Sequential(
        "x, e", [(pyg.GPSConv(6, pyg.TransformerConv(6, 6), heads=2), "x, e -> x")]
    ),
    "GIN": lambda: models.GIN(6, 8, 2, 4),
    "APPNP": lambda: pyg.Sequential("x, e", [(pyg.APPNP(3, 0.1), "x, e -> x"), nn.Linear(6, 3)]),
    "SAGE": lambda: models.GraphSAGE(6, 8, 2, 4, aggr="max"),
    "RECT_L": lambda: models.RECT_L(6, 8, dropout=0.0),
    "the layer itself": lambda: pyg.GATv2Conv(6, 4),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", MODELS)
def test_models_give_what_they_gave(name, dtype) -> None:
    model = randomized(MODELS[name](), dtype)
    assert_same_after(model, torch.randn(NODES, 6, dtype=dtype), graph())


def test_what_is_kept_works_on_beside_what_is_swapped() -> None:
    model = randomized(models.AttentiveFP(6, 8, 3, 2, 2, 2), torch.float64)
    batch = torch.zeros(NODES, dtype=torch.long)
    x, edges = torch.randn(NODES, 6).double(), torch.randn(EDGES, 2).double()
    args = x, graph(), edges, batch
    wanted = run(model, *args)
    report = accelerate(model)
    assert [swap.name for swap in report.swapped] == ["atom_convs.0", "mol_conv"]
    assert [entry.name for entry in report.kept] == ["gate_conv"]
    assert_close(run(model, *args), wanted)


def test_a_fault_of_a_drop_in_shows(monkeypatch) -> None:
    class Faulty(on_core.GATConv):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs) * (1 + 1e-4)

    monkeypatch.setitem(integration._DROP_INS, pyg.GATConv, Faulty)
    with pytest.raises(AssertionError, match="not close"):
        assert_same_after(models.GAT(6, 8, 2, 4), torch.randn(NODES, 6), graph())


def train(model, optimizer, steps, x, edge_index):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x, edge_index).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_an_optimizer_goes_on_through_swap_and_undo() -> None:
    model = randomized(models.GAT(6, 8, 2, 4, heads=2), torch.float64)
    twin = copy.deepcopy(model)
    data = torch.randn(NODES, 6, dtype=torch.float64), graph()
    adam = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = train(model, adam, 3, *data)
    report = accelerate(model)
    losses += train(model, adam, 3, *data)
    report.undo()
    losses += train(model, adam, 3, *data)
    wanted = train(twin, torch.optim.Adam(twin.parameters(), lr=0.05), 9, *data)
    torch.testing.assert_close(losses, wanted, rtol=1e-10, atol=0)
    assert losses[-1] < losses[0] / 2
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_class_changes_and_the_state_is_that_of_the_drop_in(name) -> None:
    model = Two(name).double().eval()
    model.second.requires_grad_(False)
    seen = []
    model.first.register_forward_hook(lambda *args: seen.append(args[0]))
    layers, parameters = [model.first, model.second], list(model.parameters())
    state = {key: value.clone() for key, value in model.state_dict().items()}
    text, attributes = repr(model), [dict(vars(layer)) for layer in layers]
    accelerate(model)
    assert [type(layer) for layer in layers] == [getattr(on_core, name)] * 2
    assert [model.first, model.second] == layers
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    before = {"_pyg": getattr(pyg, name)}
    assert [dict(vars(layer)) for layer in layers] == [of | before for of in attributes]
    assert repr(model) == text
    model(torch.randn(NODES, 6).double(), graph())
    assert seen == [model.first]
    fresh = Two(name).double()
    fresh.load_state_dict(model.state_dict(), strict=True)
    model.load_state_dict(fresh.state_dict(), strict=True)
    assert list(model.state_dict()) == list(state)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    theirs, ours = vars(getattr(pyg, name)(6, 4)), vars(getattr(on_core, name)(6, 4))
    assert theirs.keys() == ours.keys()
    assert {key for key in ours if repr(ours[key]) != repr(theirs[key])} <= {"_parameters"}


def test_a_shared_layer_is_swapped_once_and_stays_shared() -> None:
    shared = pyg.GATConv(6, 6)
    model = nn.ModuleDict({"a": nn.ModuleList([shared, nn.ReLU(), shared]), "b": shared})
    report = accelerate(model)
    assert report.swapped == (Swapped("a.0", pyg.GATConv, on_core.GATConv),)
    assert model["a"][0] is model["a"][2] is model["b"] is shared
    assert type(shared) is on_core.GATConv


def test_undo_gives_the_classes_back_with_the_weights_of_now() -> None:
    model, args = models.GCN(6, 8, 2, 4), (torch.randn(NODES, 6), graph())
    report = accelerate(model)
    train(model, torch.optim.SGD(model.parameters(), lr=1.0), 3, *args)
    wanted = run(model, *args)
    again = copy.deepcopy(model)
    report.undo()
    assert kinds(model) == [pyg.GCNConv] * 2
    assert_close(run(model, *args), wanted)
    assert kinds(again) == [on_core.GCNConv] * 2
    later = accelerate(model)
    report.undo()  # its own swap is undone already
    assert kinds(model) == [on_core.GCNConv] * 2
    later.undo()
    assert kinds(model) == [pyg.GCNConv] * 2


def test_undo_refuses_a_layer_that_changed_since() -> None:
    model = models.GAT(6, 8, 2, 4)
    report = accelerate(model)
    parametrize.register_parametrization(model.convs[1], "att_src", nn.Identity())
    with pytest.raises(RuntimeError, match=r"convs\.1: is a ParametrizedGATConv by now, expected"):
        report.undo()
    assert type(model.convs[0]) is on_core.GATConv
    parametrize.remove_parametrizations(model.convs[1], "att_src")
    report.undo()
    assert kinds(model) == [pyg.GATConv] * 2


def test_cached_edges_are_those_of_the_first_call_after_the_swap() -> None:
    model, x = pyg.GCNConv(6, 4, cached=True), torch.randn(NODES, 6)
    plain = copy.deepcopy(model)
    first, other = graph(), graph()
    report = accelerate(model)
    for edge_index in (first, other):
        torch.testing.assert_close(model(x, edge_index), plain(x, edge_index))
    report.undo()
    again, plain._cached_edge_index = copy.deepcopy(model), None
    assert accelerate(again).swapped
    for undone in (model, again):
        torch.testing.assert_close(undone(x, other), plain(x, other))


@pytest.mark.parametrize("when", ["before", "after"])
def test_compiles(when, monkeypatch) -> None:
    torch._dynamo.reset()
    model, args = Two("TransformerConv"), (torch.randn(NODES, 6), graph())
    wanted, calls = run(model, *args), []
    forward = on_core.TransformerConv.forward
    monkeypatch.setattr(
        on_core.TransformerConv, "forward", lambda *args: calls.append(1) or forward(*args)
    )
    if when == "before":
        compiled = torch.compile(model, backend="aot_eager")
        compiled(*args)
        accelerate(compiled)
    else:
        accelerate(model)
        compiled = torch.compile(model, backend="aot_eager")
    assert_close(run(compiled, *args), wanted)
    assert calls


def args_of(name):
    """What a layer's forward needs, by the names of its arguments there."""
    asked, x = signature(getattr(pyg, name).forward).parameters, torch.randn(NODES, 6).double()
    known = {
        "x": (x, torch.randn(NODES, 6).double()) if "size" in asked else x,
        "edge_index": torch.randint(NODES, (2, EDGES)),
        "edge_weight": torch.rand(EDGES).double(),
        "edge_attr": torch.randn(EDGES, 3).double(),
        "edge_type": torch.randint(RELATIONS, (EDGES,)),
        "x_dict": {t: torch.randn(NODES, 6).double() for t in ("a", "b")},
        "edge_index_dict": {kind: torch.randint(NODES, (2, EDGES)) for kind in KINDS},
    }
    return tuple(known[name] for name in asked if name in known)


def total(out):
    return sum(o.sin().sum() for o in out.values()) if isinstance(out, dict) else out.sin().sum()


def run_typed(layer, args):
    layer.zero_grad()
    out = layer(*args)
    total(out).backward()
    return out, [p.grad for p in layer.parameters()]


@pytest.fixture(params=MAKE)
def case(request):
    return MAKE[request.param]().double(), args_of(request.param)


def test_gives_what_it_gave_and_goes_back(case) -> None:
    layer, args = case
    kind, wanted = type(layer), run_typed(layer, args)
    state = list(layer.state_dict())
    report = accelerate(layer)
    assert report.swapped and not report.kept and type(layer) is not kind
    torch.testing.assert_close(run_typed(layer, args), wanted, rtol=1e-9, atol=1e-9)
    assert list(layer.state_dict()) == state
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(run_typed(twin, args), wanted, rtol=1e-9, atol=1e-9)
        assert accelerate(twin).swapped == ()
    report.undo()
    assert type(layer) is kind and "propagate" not in vars(layer)
    torch.testing.assert_close(run_typed(layer, args), wanted)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch, where a graph breaks
@pytest.mark.parametrize("name", list(MAKE)[:6])  # others: `tests/nn/conv/test_tools.py`
def test_compiled_gives_the_same(name) -> None:
    torch._dynamo.reset()
    layer, args = MAKE[name]().double(), args_of(name)
    wanted = run_typed(layer, args)
    accelerate(layer)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(run_typed(compiled, args), wanted, rtol=1e-9, atol=1e-9)


def test_hooks_see_messages(case) -> None:
    layer, args = case
    wanted = run_typed(layer, args)
    accelerate(layer)
    seen = []
    handle = layer.register_message_forward_hook(lambda *given: seen.append(1))
    torch.testing.assert_close(run_typed(layer, args), wanted, rtol=1e-9, atol=1e-9)
    assert seen
    handle.remove()
    torch.testing.assert_close(run_typed(layer, args), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch, of TorchScript itself
@pytest.mark.parametrize("name", list(MAKE)[:4])
def test_torchscript_compiles_the_layer_of_pyg(name) -> None:
    layer, args = MAKE[name]().double(), args_of(name)
    wanted = layer(*args)
    accelerate(layer)
    scripted = torch.jit.script(layer)
    assert scripted.original_name == name
    torch.testing.assert_close(scripted(*args), wanted)


class Third(nn.Module):
    def __init__(self, layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, third):
        return self.layer(x, edge_index, third)


def test_an_accelerated_model_has_nothing_to_do() -> None:
    model = models.GAT(6, 8, 2, 4)
    accelerate(model)
    report = accelerate(model)
    assert (report.swapped, report.kept, str(report)) == ((), (), "no layer to swap")
    report.undo()
    assert kinds(model) == [on_core.GATConv] * 2


class Doubled(pyg.GATConv):
    def message(self, x_j, alpha):
        return 2 * super().message(x_j, alpha)


class Doubling(SumAggregation):
    def forward(self, *args, **kwargs):
        return 2 * super().forward(*args, **kwargs)


def with_edges(change):
    conv = pyg.GATConv(6, 4, edge_dim=2)
    change(conv)
    return conv


def as_matrix(edges):
    sparse = pytest.importorskip("torch_sparse")
    return sparse.SparseTensor.from_edge_index(edges, None, (NODES, NODES))


def after_a_call(edges):
    conv = pyg.GCNConv(6, 4, cached=True)
    conv(torch.randn(NODES, 6), edges)
    return conv


def pna(aggregators, **options):
    return pyg.PNAConv(6, 4, aggregators, ["identity"], DEGREES, **options)


def kinds(model):
    return [type(conv) for conv in model.convs]


def hooked(layer, part):
    part(layer).register_forward_hook(lambda *args: None)
    return layer


class Halved(pyg.RGCNConv):
    def message(self, x_j, edge_type_ptr):
        return x_j / 2


CHANGED = {  # a layer with features of edges after a change
    "a subclass of GATConv, which may": (
        lambda conv: parametrize.register_parametrization(conv, "att_src", nn.Identity())
    ),
    "its lin_edge is a ParametrizedLinear, not PyG's own": (
        lambda conv: parametrize.register_parametrization(conv.lin_edge, "weight", nn.Identity())
    ),
    "its lin_edge is a Sequential, not": (
        lambda conv: setattr(conv, "lin_edge", nn.Sequential(nn.Linear(2, 4), nn.ReLU()))
    ),
    "a hook on its lin_edge, which": lambda conv: hooked(conv, lambda c: c.lin_edge),
    "a hook on its aggr_module, which": (
        lambda conv: conv.aggr_module.register_full_backward_hook(lambda *args: None)
    ),
    "its message was replaced": lambda conv: setattr(conv, "message", lambda x_j, alpha: x_j),
    "its propagate was replaced": lambda conv: setattr(conv, "propagate", lambda *_, **__: None),
    "an explainer or a hook asks for its messages": (
        lambda conv: conv.register_message_forward_hook(lambda *args: None)
    ),
    "an explainer or a hook": lambda conv: setattr(conv, "explain", True),
}
REASONS = {
    **{reason: partial(with_edges, change) for reason, change in CHANGED.items()},
    "no drop-in for this class": lambda: pyg.TAGConv(6, 4),
    "a subclass of GATConv, which may compute something else": lambda: Doubled(6, 4),
    "has no weights yet: run the model once before": lambda: pyg.TransformerConv(-1, 4),
    "holds the edges of an earlier call (cached=True)": lambda: after_a_call(graph()),
    "holds the edges of an earlier call": lambda: after_a_call(as_matrix(graph())),
    "aggr: got 'max', expected 'add'": lambda: pyg.GCNConv(6, 4, aggr="max"),
    "its aggr_module is a Doubling, not": lambda: pyg.GCNConv(6, 4, aggr=Doubling()),
    "dropout: got 1.0, expected a probability in [0, 1)": lambda: pyg.GATv2Conv(6, 4, dropout=1.0),
    "decomposed_layers: got 2, expected 1": lambda: pyg.TransformerConv(6, 4, decomposed_layers=2),
    "compiled by TorchScript: accelerate before": lambda: torch.jit.script(pyg.GCNConv(6, 4)),
    "pre_layers: got 2, expected 1": lambda: pna(ALL, pre_layers=2),
    "aggregators: got MulAggregation": lambda: pna(["mul", "mean"]),
    "a hook on its pre_nns": lambda: hooked(MAKE["PNAConv"](), lambda c: c.pre_nns[1][0]),
    "a hook on its v_rel": lambda: hooked(MAKE["HGTConv"](), lambda c: c.v_rel),
    "has no weights": lambda: pyg.HGTConv(-1, 4, METADATA),
    "dropout: got 1.0, expected": lambda: pyg.HANConv(6, 4, METADATA, dropout=1.0),
    "aggr: got 'mul', expected 'sum'": lambda: pyg.RGCNConv(6, 4, 2, aggr="mul"),
    "aggr: got 'softmax', expected": lambda: pyg.GINEConv(nn.Linear(6, 4), aggr="softmax"),
    "a subclass of RGCNConv, which may": lambda: Halved(6, 4, 2),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch, of PyG's sum by a matrix
@pytest.mark.parametrize("reason", REASONS)
def test_what_cannot_be_swapped_is_kept_and_says_why(reason) -> None:
    layer = REASONS[reason]()
    kind = type(layer)
    model = nn.ModuleList([nn.ReLU(), layer, pyg.GCNConv(6, 4)])
    report = accelerate(model)
    assert [entry[:2] for entry in report.kept] == [("1", kind)]
    assert report.kept[0].reason.startswith(reason) and type(layer) is kind
    assert report.swapped == (Swapped("2", pyg.GCNConv, on_core.GCNConv),)


def test_the_report_reads_as_a_table() -> None:
    report = accelerate(nn.ModuleDict({"one": pyg.GCNConv(6, 4), "other": pyg.TAGConv(6, 4)}))
    assert str(report).splitlines() == [
        "layers: 1 swapped, 1 kept",
        "swapped  one    GCNConv  (below 4,000 edges, the first call on a graph uses PyG's code)",
        "kept     other  TAGConv  no drop-in for this class",
    ]
    assert report.kept == (Kept("other", pyg.TAGConv, "no drop-in for this class"),)
    assert "(model)" in str(accelerate(pyg.GATConv(6, 4)))


def explanation(model, *given, **more):
    """Masks of edges, for a node or for all."""
    torch.manual_seed(0)
    mode = "regression" if more else "multiclass_classification"
    explainer = Explainer(
        model, GNNExplainer(epochs=5), explanation_type="model", edge_mask_type="object",
        model_config={"mode": mode, "task_level": "node", "return_type": "raw"},
    )  # fmt: skip
    return explainer(*given, **(more or {"index": 2})).edge_mask


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "GINEConv", "PNAConv"])
def test_explains_what_it_explained(name, copied) -> None:
    edge_index, more = graph(), {}
    if name in NAMES:
        model, swaps = Two(name).eval(), 2  # the explainer is done
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    else:
        model, swaps, more = Third(MAKE[name]()).eval(), 1, {"third": torch.randn(EDGES, 3)}
    given = torch.randn(NODES, 6), edge_index
    wanted = explanation(model, *given, **more)
    report = accelerate(model)
    assert len(report.swapped) == swaps
    found = explanation(copy.deepcopy(model) if copied else model, *given, **more)
    torch.testing.assert_close(found, wanted)
    assert found.std() > 0
    explanation(model, *given, **more)
    report.undo()
    torch.testing.assert_close(explanation(model, *given, **more), wanted)
    assert len(accelerate(model).swapped) == swaps


@pytest.mark.parametrize("model", [None, {"a": 1}, models.GAT], ids=["None", "dict", "class"])
def test_what_is_no_module_is_named(model) -> None:
    with pytest.raises(TypeError, match=r"model: got \w+, expected a torch\.nn\.Module"):
        accelerate(model)


def test_the_front_door_shows_it() -> None:
    assert graphtheory.accelerate is accelerate
    with pytest.raises(AttributeError, match="'graphtheory' has no attribute 'decelerate'"):
        graphtheory.decelerate  # noqa: B018


RING = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
OF_WEIGHTS = {
    "GraphConv": lambda: pyg.GraphConv(3, 2), "ChebConv": lambda: pyg.ChebConv(3, 2, 2),
    "APPNP": lambda: pyg.APPNP(2, 0.1), "SGConv": lambda: pyg.SGConv(3, 2),
}  # fmt: skip


@pytest.mark.parametrize("count", [4, 6])
@pytest.mark.parametrize("make", [*OF_WEIGHTS.values(), lambda: pyg.GCNConv(3, 2)])
def test_as_many_weights_as_edges_are_asked_for(make, count: int) -> None:
    layer, x, weight = swapped(make()), torch.randn(5, 3), torch.rand(5)
    wanted = rf"edge_weight: shape \({count},\), .* one per edge \[5\]"
    with pytest.raises(ValueError, match=wanted):
        layer(x, RING, torch.rand(count))
    torch.testing.assert_close(layer(x, RING, weight[:, None]), layer(x, RING, weight))


@pytest.mark.parametrize("make", [*OF_WEIGHTS.values(), lambda: pyg.SAGEConv(3, 2)])
def test_gradients_of_torch_func_are_pygs(make) -> None:
    theirs, x = make(), torch.randn(5, 3)
    found, wanted = (
        torch.func.grad(lambda z, m=m: m(z, RING).square().sum())(x)
        for m in (swapped(theirs), theirs)
    )
    torch.testing.assert_close(found, wanted)
