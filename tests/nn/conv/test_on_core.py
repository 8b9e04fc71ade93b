"""What a PyG user expects of a layer beyond its numbers, of all drop-ins alike."""

import copy
import inspect
import io
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer

import graphtheory
import graphtheory.nn.conv as drop_in
from graphtheory import Neighborhood
from graphtheory.nn.conv import weighted_sums
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends import numba_csr
from graphtheory.ops.backends.cpu import memory
from graphtheory.patterns import KHop

ATTENTION = ["TransformerConv", "GATConv", "GATv2Conv"]
NAMES = [*ATTENTION, "GCNConv"]
LOOPS = [(name, loops) for name in NAMES[1:] for loops in (False, True)]


def pair_of(name, *args, **options):
    """Our layer and PyG's with one state."""
    ours, theirs = (getattr(room, name)(*args, **options) for room in (drop_in, pyg))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


@pytest.fixture
def edge_index(make_graph):
    return make_graph(0, 6, 6, 20).edge_index


@pytest.mark.parametrize("name", NAMES)
def test_constructor_forward_and_initialization_are_those_of_pyg(name) -> None:
    ours, theirs = (
        [(p.name, p.default, p.kind) for p in inspect.signature(kind).parameters.values()]
        for kind in (getattr(drop_in, name), getattr(pyg, name))
    )
    assert ours == theirs
    ours, theirs = (
        list(inspect.signature(getattr(room, name).forward).parameters) for room in (drop_in, pyg)
    )
    assert ours == theirs + (["size"] if name == "GCNConv" else [])
    states = []
    for room in (drop_in, pyg):
        torch.manual_seed(0)
        conv = getattr(room, name)(8, 4)
        conv.reset_parameters()
        states.append(conv.state_dict())
    assert list(states[0]) == list(states[1])
    torch.testing.assert_close(list(states[0].values()), list(states[1].values()), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "in_channels"), [
    *((name, size) for name in NAMES for size in (8, -1)),
    *((name, (8, 4)) for name in ATTENTION),
])  # fmt: skip
def test_representation_and_kind_are_those_of_pyg(name, in_channels) -> None:
    ours, theirs = (getattr(room, name)(in_channels, 4) for room in (drop_in, pyg))
    assert repr(ours) == repr(theirs) and isinstance(ours, type(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_read_off_the_first_input(name, edge_index) -> None:
    options = {} if name == "GCNConv" else {"edge_dim": -1}
    lazy = getattr(drop_in, name)(-1, 4, **options)
    x = torch.randn(6, 5)
    args = () if name == "GCNConv" else (torch.randn(20, 3),)
    out = lazy(x, edge_index, *args)
    known = getattr(pyg, name)(5, 4, **({} if name == "GCNConv" else {"edge_dim": 3}))
    known.load_state_dict(lazy.state_dict(), strict=True)
    torch.testing.assert_close(out, known(x, edge_index, *args))
    fresh = getattr(drop_in, name)(-1, 4, **options)
    fresh.load_state_dict(known.state_dict(), strict=True)
    torch.testing.assert_close(fresh(x, edge_index, *args), out)


@pytest.mark.parametrize("name", ATTENTION)
def test_two_lazy_sizes(name, make_graph) -> None:
    graph = make_graph(1, 6, 4, 15)
    conv = getattr(drop_in, name)((-1, -1), 4)
    assert conv((torch.randn(6, 5), torch.randn(4, 3)), graph.edge_index).shape == (4, 4)


@pytest.mark.parametrize(
    ("name", "options"), [*((n, {}) for n in NAMES), ("GCNConv", {"cached": 1})]
)
def test_copies_and_pickles_give_the_same(name, options, edge_index) -> None:
    conv, x = getattr(drop_in, name)(5, 4, **options), torch.randn(6, 5)
    out = conv(x, edge_index)
    for twin in (copy.deepcopy(conv), copy.copy(conv), pickle.loads(pickle.dumps(conv))):
        torch.testing.assert_close(twin(x, edge_index), out)


@pytest.mark.parametrize("kind", ["edge_index", "Neighborhood"])
@pytest.mark.parametrize(("name", "options"), [
    ("TransformerConv", {}),
    ("TransformerConv", {"edge_dim": 1}),
    *((name, {"add_self_loops": loops}) for name, loops in LOOPS),
    ("GCNConv", {"cached": True}),
])  # fmt: skip
def test_trains_on_what_was_found_in_inference_mode(name, options, kind, edge_index) -> None:
    """As in a validation before the first epoch: tensors made there take no part in gradients."""
    args = [edge_index]
    if kind == "Neighborhood":
        args = [Neighborhood.from_edge_index(edge_index, num_nodes=6, weight=torch.rand(20))]
    if "edge_dim" in options:
        args.append(torch.rand(20, 1))
    conv, x = getattr(drop_in, name)(5, 4, **options), torch.randn(6, 5)
    with torch.inference_mode():
        wanted = conv(x, *args)
    out = conv(x, *args)
    out.sum().backward()
    torch.testing.assert_close(out, wanted.clone())


COMPILED = [
    *((name, {"add_self_loops": loops}, {}) for name, loops in LOOPS),
    *((name, {}, {}) for name in ("TransformerConv", "SPDTransformerConv")),
    *((name, {"heads": 2, "edge_dim": 3}, {"edge_attr": torch.randn(20, 3)}) for name in ATTENTION),
    ("SPDTransformerConv", {"heads": 2, "recompute": True}, {}),
    ("GCNConv", {"improved": True}, {"edge_weight": torch.rand(20)}),
]


def test_features_of_edges_that_are_mapped_compile_without_a_graph_break(edge_index) -> None:
    vars(BACKENDS["numba_csr"]).pop("kernels", None)
    conv = weighted_sums.GINEConv(nn.Linear(5, 4), edge_dim=3)
    args = torch.randn(6, 5), edge_index, torch.randn(20, 3)
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*args), conv(*args))


@pytest.mark.parametrize(  # each layer on both kinds of graphs, each of its options on one
    ("name", "options", "more", "kind"),
    [(*case, ("edge_index", "Neighborhood")[(i + i // 2) % 2]) for i, case in enumerate(COMPILED)],
)
def test_compiles_without_a_graph_break(name, options, more, kind, edge_index) -> None:
    """What is given by edge is that of the rows of a neighborhood; kernels are not imported yet."""
    vars(BACKENDS["numba_csr"]).pop("kernels", None)
    options = dict(options)
    again = options.pop("recompute", False)
    conv = getattr(drop_in, name)(5, 4, **options)
    conv.recompute = again
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_(0, 0.5)
    adj = edge_index
    if kind == "Neighborhood":
        adj = Neighborhood.from_edge_index(edge_index, num_nodes=6)
        adj = KHop(2)(adj) if name == "SPDTransformerConv" else adj
    x = torch.randn(6, 5, requires_grad=True)
    more = {key: value.clone().requires_grad_() for key, value in more.items()}
    torch._dynamo.reset()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    results = []
    for layer in (conv, compiled):
        out = layer(x, adj, **more)
        leaves = [x, *more.values(), *conv.parameters()]
        grads = torch.autograd.grad(out.square().sum(), leaves, materialize_grads=True)
        results.append((out, *grads))
    torch.testing.assert_close(*results)


EXPORTED = [
    ("GCNConv", {}, ()),
    ("GCNConv", {"add_self_loops": False}, ()),
    ("GCNConv", {"improved": True}, (torch.rand(20),)),
    ("SPDTransformerConv", {"heads": 2}, (torch.randint(4, (20,)),)),
    ("SPDTransformerConv", {"heads": 2, "edge_dim": 3, "value_encoding": True},
     (torch.randint(4, (20,)), None, torch.randn(20, 3))),
    *((name, {"heads": 2}, ()) for name in ATTENTION),
    *((name, {"heads": 2, "edge_dim": 3}, (torch.randn(20, 3),)) for name in ATTENTION),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "more"), EXPORTED, ids=[f"{name}-{opts}" for name, opts, _ in EXPORTED]
)
def test_exports_for_any_number_of_nodes_and_edges(name, options, more, make_graph) -> None:
    conv = getattr(drop_in, name)(5, 4, **options).eval()
    edges, auto = make_graph(0, 6, 6, 20).edge_index, torch.export.Dim.DYNAMIC
    args = (torch.randn(6, 5), edges, *more)
    names = list(inspect.signature(conv.forward).parameters)
    shapes = {n: None if a is None else {0: auto} for n, a in zip(names, args, strict=False)}
    program = torch.export.export(conv, args, dynamic_shapes=shapes | {"edge_index": {1: auto}})
    assert not program.constants
    found = io.BytesIO()
    torch.export.save(program, found)
    found.seek(0)
    loaded = torch.export.load(found).module()
    torch.testing.assert_close(loaded(*args), conv(*args))
    fewer = [None if a is None else a[:11] for a in more]
    other = (torch.randn(9, 5), make_graph(1, 9, 9, 11).edge_index, *fewer)
    torch.testing.assert_close(loaded(*other), conv(*other))


def exported(conv, edges):
    auto = torch.export.Dim.DYNAMIC
    shapes = {"x": {0: auto}, "edge_index": {1: auto}}
    return torch.export.export(conv, (torch.randn(6, 5), edges), dynamic_shapes=shapes)


@pytest.mark.parametrize("name", ["TransformerConv", "SPDTransformerConv"])
def test_exported_attention_takes_more_edges_than_keep_their_weights(name, make_graph, monkeypatch):
    """From some number of edges on, weights are not kept for the backward pass: here from 50."""
    monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 50 * 2 * 4)
    conv = getattr(drop_in, name)(5, 4, heads=2).eval()
    program = exported(conv, make_graph(0, 6, 6, 20).edge_index)
    most = [found.upper for found in program.run_decompositions().range_constraints.values()]
    assert len(most) == 2 and all(bound > 2**62 for bound in most)
    more = torch.randn(9, 5), make_graph(1, 9, 9, 90).edge_index
    module, names = program.module(), [name for name, _ in conv.named_parameters()]
    torch.testing.assert_close(module(*more), conv(*more))
    found, wanted = (
        torch.autograd.grad(layer(*more).square().sum(), [layer.get_parameter(n) for n in names])
        for layer in (module, conv)
    )
    torch.testing.assert_close(found, wanted)
    monkeypatch.setattr(numba_csr, "_keeps", memory.keeps_weights)
    bounded = exported(conv, make_graph(0, 6, 6, 20).edge_index)
    assert 49 in [found.upper for found in bounded.range_constraints.values()]
    with pytest.raises(AssertionError, match="Guard failed"):
        bounded.module()(*more)


def test_export_leaves_no_edges_in_the_cache(edge_index) -> None:
    conv, x = drop_in.GCNConv(5, 4, cached=True).eval(), torch.randn(6, 5)
    program = torch.export.export(conv, (x, edge_index))
    assert conv._cached_edge_index is None
    torch.testing.assert_close(program.module()(x, edge_index), conv(x, edge_index))


@pytest.mark.parametrize(
    ("name", "options", "more"), EXPORTED, ids=[f"{name}-{opts}" for name, opts, _ in EXPORTED]
)
def test_gradients_of_functions_are_those_of_autograd(name, options, more, edge_index) -> None:
    conv, x = getattr(drop_in, name)(5, 4, **options), torch.randn(6, 5)
    parameters = dict(conv.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(conv, parameters, (x, edge_index, *more)).square().sum()

    for _ in range(2):  # what the first call caches serves the second, and autograd
        found, of_x = torch.func.grad(loss, argnums=(0, 1))(parameters, x)
    wanted = torch.autograd.grad(
        loss(parameters, x.requires_grad_()), [*parameters.values(), x], materialize_grads=True
    )
    torch.testing.assert_close([*found.values(), of_x], list(wanted))
    x = x.detach()
    both = torch.stack([x, 2 * x])
    mapped = torch.func.vmap(lambda x: conv(x, edge_index, *more))(both)
    torch.testing.assert_close(mapped, torch.stack([conv(x, edge_index, *more) for x in both]))
    each = torch.func.vmap(torch.func.grad(lambda x: loss(parameters, x)))(both)
    torch.testing.assert_close(each[0], of_x)
    slopes = torch.func.jacrev(lambda x: conv(x, edge_index, *more))(x)
    of_torch = torch.autograd.functional.jacobian(lambda x: conv(x, edge_index, *more), x)
    torch.testing.assert_close(slopes, of_torch)


class Net(nn.Module):
    def __init__(self, conv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index)


class Two(nn.Module):
    """Two layers of a kind, on the core or PyG's."""

    def __init__(self, room, name, in_channels=5, **options) -> None:
        super().__init__()
        layer = getattr(room, name)
        self.first = layer(in_channels, 8, **options)
        width = -1 if in_channels in (-1, (-1, -1)) else 8
        self.second = layer(
            (width, width) if isinstance(in_channels, tuple) else width, 3, **options
        )

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_a_count_of_numpy_is_a_count() -> None:
    layer = drop_in.SPDTransformerConv(4, np.int64(3), heads=np.int64(2))
    assert layer(torch.randn(2, 4), torch.tensor([[0], [1]])).shape == (2, 6)
    with pytest.raises(ValueError, match=r"heads: got 1\.5, expected at least 1, a whole number"):
        drop_in.SPDTransformerConv(4, 3, heads=1.5)


def test_to_hetero_takes_pairs_of_sizes_that_are_not_known() -> None:
    """Of GCNConv, whose layer in PyG takes no pair; others are in `test_hetero.py`."""
    metadata = (["paper", "author"], [("paper", "cites", "paper"), ("author", "writes", "paper"),
                                      ("paper", "by", "author")])  # fmt: skip
    x = {"paper": torch.randn(6, 5), "author": torch.randn(4, 7)}
    edges = {k: torch.stack([torch.randint(len(x[t]), (12,)) for t in k[::2]]) for k in metadata[1]}
    model = pyg.to_hetero(Two(drop_in, "GCNConv", -1, add_self_loops=False), metadata)
    shapes = {kind: out.shape for kind, out in model(x, edges).items()}
    assert shapes == {"paper": (6, 3), "author": (4, 3)}


def test_to_hetero_sums_kinds_of_edges_and_refuses_self_loops_between_kinds() -> None:
    swap = torch.tensor([[0, 1], [1, 0]])
    ends = {("a", "to", "b"): swap, ("b", "in", "b"): swap[:, :1], ("b", "of", "a"): swap}
    x = {"a": torch.randn(2, 3), "b": torch.randn(2, 4)}
    layer = drop_in.SPDTransformerConv((-1, -1), 5, heads=2)
    model = pyg.to_hetero(Net(layer), (list(x), list(ends)))
    out = model(x, ends)["b"]
    wanted = model.conv["a__to__b"]((x["a"], x["b"]), ends["a", "to", "b"])
    wanted = wanted + model.conv["b__in__b"]((x["b"], x["b"]), ends["b", "in", "b"])
    torch.testing.assert_close(out, wanted)
    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])
    with pytest.raises(ValueError, match="add_self_loops"):
        pyg.to_hetero(Two(drop_in, "GATConv", (-1, -1)), metadata)


def explain(model, algorithm, x, edge_index, **more):
    torch.manual_seed(0)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", model_config=config,
        node_mask_type="attributes" if isinstance(algorithm, GNNExplainer) else None,
    )  # fmt: skip
    explanation = explainer(x, edge_index, index=2, **more)
    return {key: explanation[key] for key in ("edge_mask", "node_mask") if key in explanation}


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [*((n, GNNExplainer) for n in NAMES), *((n, AttentionExplainer) for n in ATTENTION)],
)
def test_explains_what_pyg_explains(name, algorithm, edge_index) -> None:
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    ours, theirs = (Two(room, name).eval() for room in (drop_in, pyg))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 5)
    options = {"epochs": 20} if algorithm is GNNExplainer else {}
    results = [explain(model, algorithm(**options), x, edge_index) for model in (ours, theirs)]
    assert "edge_mask" in results[0]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


class Sorted(Two):
    def forward(self, x, edge_index):
        return super().forward(x, Neighborhood.from_edge_index(edge_index, num_nodes=6))


@pytest.mark.parametrize(("name", "algorithm"), [
    *((n, GNNExplainer) for n in [*NAMES, "SPDTransformerConv"]),
    *((n, AttentionExplainer) for n in [*ATTENTION, "SPDTransformerConv"]),
])  # fmt: skip
def test_edges_in_another_order_are_not_explained(name, algorithm, edge_index) -> None:
    """Weights of these edges would be returned as those of others."""
    model, x = Sorted(drop_in, name).eval(), torch.randn(6, 5)
    with pytest.raises(NotImplementedError, match=f"edge_index: got a Neighborhood in {name}"):
        explain(model, algorithm(), x, edge_index)


class Wide(nn.Module):
    """Two attention layers with features of edges."""

    def __init__(self, kind, **options) -> None:
        super().__init__()
        self.first = kind(5, 4, heads=2, edge_dim=3, **options)
        self.second = kind(8, 3, heads=2, concat=False, edge_dim=3, **options)

    def forward(self, x, edge_index, edge_attr):
        return self.second(
            self.first(x, edge_index, edge_attr=edge_attr).relu(), edge_index, edge_attr=edge_attr
        )


@pytest.mark.parametrize("algorithm", [GNNExplainer, AttentionExplainer])
@pytest.mark.parametrize("name", ["TransformerConv", "SPDTransformerConv"])
def test_explains_a_transformer_as_pyg_does(name, algorithm, edge_index) -> None:
    """The layer with distances has none in its bias at the start."""
    ours, theirs = Wide(getattr(drop_in, name)).eval(), Wide(pyg.TransformerConv).eval()
    ours.load_state_dict(theirs.state_dict(), strict=False)
    x, edge_attr = torch.randn(6, 5), torch.randn(20, 3)
    options = {"epochs": 20} if algorithm is GNNExplainer else {}
    results = [
        explain(model, algorithm(**options), x, edge_index, edge_attr=edge_attr)
        for model in (ours, theirs)
    ]
    assert float(results[0]["edge_mask"].std()) > 0
    torch.testing.assert_close(*results)
    with pytest.raises(AssertionError):  # the mask is that of these edges, in this order
        other = explain(ours, algorithm(**options), x, edge_index.flip(1), edge_attr=edge_attr)
        torch.testing.assert_close(other, results[0])


@pytest.mark.parametrize("form", ["edge_index", "Neighborhood", "csr"])
@pytest.mark.parametrize("options", [
    {"value_encoding": True},
    {"edge_dim": 3, "value_encoding": True, "concat": False},
], ids=str)  # fmt: skip
def test_messages_add_up_to_the_output(options, form, edge_index, sparse_forms) -> None:
    edge_index = edge_index.unique(dim=1)[:, torch.randperm(edge_index.unique(dim=1).size(1))]
    graph = edge_index
    if form == "Neighborhood":
        graph = Neighborhood.from_edge_index(edge_index, num_src=6, num_dst=6)
    elif form == "csr":
        graph = sparse_forms(edge_index, 6, 6)["csr"]
    conv = drop_in.SPDTransformerConv((5, 7), 4, heads=2, **options)
    x, edges = (torch.randn(6, 5), torch.randn(6, 7)), edge_index.size(1)
    distance, attn_bias = torch.randint(4, (edges,)), torch.randn(edges, 2)
    given = (x, graph, distance)
    more = {"attn_bias": attn_bias}
    if "edge_dim" in options:
        more["edge_attr"] = torch.randn(edges, 3)
    wanted, seen = conv(*given, **more), []
    conv.register_message_forward_hook(lambda module, inputs, out: seen.append((inputs, out)))
    torch.testing.assert_close(conv(*given, **more), wanted)
    ((((inputs,), messages),)) = seen
    assert messages.shape == (edges, 2, 4)
    back, (_, alpha) = conv(*given, return_attention_weights=True, **more)
    torch.testing.assert_close(back, wanted)
    torch.testing.assert_close(inputs["alpha"], alpha)


MADE_AFTER_THAT_OF_PYG = """
import torch, torch_geometric.nn as pyg
import graphtheory.nn.conv as drop_in

torch.manual_seed(0)
edge_index, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.randn(3, 5)
for name in {names}:
    getattr(pyg, name)(5, 4)
    conv = getattr(drop_in, name)(5, 4)
    seen = conv(x, edge_index)
    conv.explain, conv._edge_mask, conv._loop_mask = True, torch.full((3,), -9.0), torch.ones(3) > 0
    assert not torch.allclose(conv(x, edge_index), seen, atol=0.01), name
"""


def test_masks_count_although_pyg_made_a_layer_first() -> None:
    """PyG sets its classes up when they are first used, so this takes a process of its own."""
    code = MADE_AFTER_THAT_OF_PYG.format(names=NAMES)
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_hooks_on_messages_see_messages(name, edge_index) -> None:
    conv, x = getattr(drop_in, name)(5, 4), torch.randn(6, 5)
    wanted, seen = conv(x, edge_index), []
    handle = conv.register_message_forward_hook(lambda module, inputs, out: seen.append(out))
    torch.testing.assert_close(conv(x, edge_index), wanted)
    assert len(seen) == 1
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    torch.testing.assert_close(conv(x, nb), wanted)
    assert len(seen) == 2
    handle.remove()
    torch.testing.assert_close(conv(x, edge_index), wanted)
    assert len(seen) == 2


def test_hooks_on_messages_of_two_node_sets_are_refused_where_pyg_has_none(edge_index) -> None:
    conv = drop_in.GCNConv(5, 4)
    conv.register_message_forward_hook(lambda *args: None)
    with pytest.raises(NotImplementedError, match="x: got a pair"):
        conv((torch.randn(6, 5), None), edge_index)


@pytest.mark.parametrize(
    ("name", "edge_dim"),
    [*((name, dim) for name in ATTENTION for dim in (1, -1)), ("SPDTransformerConv", 1)],
)
def test_one_value_per_edge_in_a_sparse_tensor_is_a_feature(name, edge_dim, edge_index) -> None:
    """PyG's layers refuse it or, without self-loops, ignore it."""
    sparse = pytest.importorskip("torch_sparse")
    edge_index = edge_index.unique(dim=1)
    values, x = torch.randn(edge_index.size(1)), torch.randn(6, 5)
    adj = sparse.SparseTensor.from_edge_index(edge_index, values, (6, 6)).t()
    conv = getattr(drop_in, name)(5, 4, heads=2, edge_dim=edge_dim)
    out = conv(x, adj)
    torch.testing.assert_close(out, conv(x, edge_index, edge_attr=values))
    assert not torch.allclose(out, conv(x, edge_index, edge_attr=torch.zeros_like(values)))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["GCNConv", "TransformerConv"])
def test_torchscript_compiles_the_layer_of_pyg(name, edge_index) -> None:
    conv, x, state = getattr(drop_in, name)(5, 4), torch.randn(6, 5), torch.get_rng_state()
    wanted = conv(x, edge_index)
    scripted = torch.jit.script(Net(conv))
    torch.testing.assert_close(scripted(x, edge_index), wanted)
    assert torch.equal(torch.get_rng_state(), state) and type(conv) is getattr(drop_in, name)
    with torch.no_grad():  # one set of parameters
        next(conv.parameters()).mul_(2)
    torch.testing.assert_close(scripted(x, edge_index), conv(x, edge_index))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_takes_cached_edges_along(edge_index) -> None:
    conv, x = drop_in.GCNConv(5, 4, cached=True), torch.randn(6, 5)
    wanted = conv(x, edge_index)
    torch.testing.assert_close(torch.jit.script(conv)(x, edge_index[:, :3]), wanted)


class Doubled(drop_in.GCNConv):
    def forward(self, x, edge_index):
        return 2 * super().forward(x, edge_index)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("conv", "message"), [
    (Doubled(5, 4), "torch.jit.script: Doubled is a subclass of the drop-in"),
    (drop_in.SPDTransformerConv(5, 4), "torch.jit.script: SPDTransformerConv is no layer of P"),
])  # fmt: skip
def test_torchscript_refuses_what_pyg_does_not_compute(conv, message) -> None:
    with pytest.raises(NotImplementedError, match=message):
        torch.jit.script(Net(conv))


@pytest.mark.parametrize("name", NAMES)
def test_in_mixed_precision_and_pygs_containers_it_gives_the_same_and_warns_of_nothing(
    name, edge_index
) -> None:
    ours, theirs = pair_of(name, 5, 4)
    x = torch.randn(6, 5)
    with torch.autocast("cpu", torch.bfloat16):
        mine, other = ours(x, edge_index), theirs(x, edge_index)
    torch.testing.assert_close(mine.float(), other.float(), rtol=3e-2, atol=3e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = "Failing to pass a value to the 'type_params' parameter"  # PyG's, on Python 3.13
        warnings.filterwarnings("ignore", message, DeprecationWarning)
        ours, theirs = pair_of(name, 5, 4)
        x = torch.randn(6, 5)
        models = [pyg.Sequential("x, e", [(c, "x, e -> x"), nn.ReLU()]) for c in (ours, theirs)]
        torch.testing.assert_close(models[0](x, edge_index), models[1](x, edge_index))


BAD_OPTIONS = [
    ({"out_channels": 0}, "out_channels: got 0, expected at least 1",
     [*NAMES, "SPDTransformerConv"]),
    ({"aggr": "max"}, "aggr: got 'max', expected 'add'", NAMES),
    ({"heads": 0}, "heads: got 0, expected at least 1", [*ATTENTION, "SPDTransformerConv"]),
    ({"dropout": 1.0}, "dropout: got 1.0, expected a prob", [*ATTENTION, "SPDTransformerConv"]),
    ({"num_buckets": 0}, "num_buckets: got 0, expected at least 1", ["SPDTransformerConv"]),
    ({"decomposed_layers": 2}, "decomposed_layers: got 2, expected 1", ATTENTION),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message", "name"), [(o, m, name) for o, m, names in BAD_OPTIONS for name in names]
)
def test_options_that_do_not_fit_are_named(options, message, name) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(drop_in, name)(**{"in_channels": 5, "out_channels": 4, **options})


def test_decomposed_sums_equal_pyg(edge_index) -> None:
    ours, theirs = pair_of("GCNConv", 5, 4, decomposed_layers=2)
    x = torch.randn(6, 5)
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


@pytest.mark.parametrize("name", NAMES)
def test_a_neighborhood_of_another_flow_or_size_is_named(name, edge_index) -> None:
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    with pytest.raises(ValueError, match=r"edge_index: a Neighborhood .* flow='target_to_source'"):
        getattr(drop_in, name)(5, 4, flow="target_to_source")(torch.randn(6, 5), nb)
    with pytest.raises(ValueError, match="edge_index: has 6 sources, expected 7 as x has rows"):
        getattr(drop_in, name)(5, 4)(torch.randn(7, 5), nb)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", ["GraphConv", "GCNConv", "APPNP"])
def test_one_weight_is_that_of_every_edge_as_with_pyg(name, shape):
    make = {
        "GraphConv": lambda: pyg.GraphConv(4, 3),
        "GCNConv": lambda: pyg.GCNConv(4, 3, normalize=False),
        "APPNP": lambda: pyg.APPNP(2, 0.1, normalize=False),
    }[name]
    theirs = make()
    ours = copy.deepcopy(theirs)
    graphtheory.accelerate(ours)
    x, edges, weight = torch.randn(5, 4), torch.randint(5, (2, 9)), torch.full(shape, 1.7)
    wanted = theirs(x, edges, torch.full((9,), 1.7))
    for _ in range(3):
        torch.testing.assert_close(ours(x, edges, weight), wanted)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "SAGEConv", "GINConv"])
def test_a_matrix_of_whole_numbers_is_read_alike_in_every_call(name):
    made = pyg.GINConv(torch.nn.Linear(4, 3)) if name == "GINConv" else getattr(pyg, name)(4, 3)
    ours = copy.deepcopy(made)
    graphtheory.accelerate(ours)
    edges = torch.tensor([[0, 1, 1, 2, 2, 2], [1, 0, 0, 1, 1, 2]])  # two twice
    ones = torch.ones(6, dtype=torch.int64)
    matrix = torch.sparse_coo_tensor(edges, ones, (3, 3), check_invariants=True)
    x = torch.randn(3, 4)
    outs = []
    for _ in range(3):
        try:
            outs.append(ours(x, matrix))
        except (RuntimeError, TypeError) as error:
            outs.append(type(error))
    if isinstance(outs[0], type):
        assert outs[1:] == [outs[0]] * 2
    else:
        torch.testing.assert_close(outs[1:], [outs[0]] * 2)
    assert not matrix.is_coalesced()
