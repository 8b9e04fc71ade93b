"""Accelerated layers at the first call on few edges: PyG's way, which takes no sorting."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as pyg
from torch_geometric.nn.conv import MessagePassing

from graphtheory import accelerate
from graphtheory.integrations.pyg import _DROP_INS
from graphtheory.nn.conv.direct import direct
from graphtheory.nn.conv.on_core import OnCore
from tests.integrations.conftest import swapped

NODES, EDGES = 9, 30
MAKE = {
    "GINConv": lambda: pyg.GINConv(nn.Linear(6, 4)),
    "SAGEConv": lambda: pyg.SAGEConv(6, 4),
    "GraphConv": lambda: pyg.GraphConv(6, 4),
    "GCNConv": lambda: pyg.GCNConv(6, 4),
    "ChebConv": lambda: pyg.ChebConv(6, 4, 3),
    "SGConv": lambda: pyg.SGConv(6, 4, 2),
    "APPNP": lambda: pyg.APPNP(3, 0.1),
    "GATConv": lambda: pyg.GATConv(6, 4, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(6, 4, heads=2),
    "TransformerConv": lambda: pyg.TransformerConv(6, 4, heads=2),
}


@pytest.fixture
def few_new_edges() -> None:
    """The rule itself, which the other files here do without."""


def graph() -> tuple[Tensor, Tensor]:
    """Features, and edges that nothing has met."""
    return torch.randn(NODES, 6), torch.randint(NODES, (2, EDGES))


def ways(layer: nn.Module) -> list[str]:
    """Whose way each later call of an accelerated layer goes."""
    ask, found = layer._is_first, []

    def asked(*args: Any, **kwargs: Any) -> bool:
        first = ask(*args, **kwargs)
        found.append("PyG's" if first else "ours")
        return first

    vars(layer)["_is_first"] = asked
    return found


@pytest.mark.parametrize("name", MAKE)
def test_the_first_call_is_pygs_and_the_second_ours(name: str) -> None:
    theirs = MAKE[name]()
    layer = swapped(theirs)
    (x, edges), found = graph(), ways(layer)
    first, second = layer(x, edges), layer(x, edges)
    assert found == ["PyG's", "ours"] and type(layer) is _DROP_INS[type(theirs)]
    assert torch.equal(first, theirs(x, edges))
    torch.testing.assert_close(second, first)
    layer(x, edges.clone())
    assert found[2:] == ["PyG's"]


CALLS = {
    "weights": (lambda x, e: (x, e, torch.rand(EDGES)), "PyG's"),
    "no weights, by name": (lambda x, e: {"x": x, "edge_index": e, "edge_weight": None}, "PyG's"),
    "too few weights": (lambda x, e: (x, e, torch.rand(EDGES - 1)), "refused"),
    "one weight for all edges": (lambda x, e: (x, e, torch.rand(1)), "ours"),
    "a pair": (lambda x, e: ((x, x), e), "ours"),
    "int32": (lambda x, e: (x, e.int()), "ours"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_pyg_reads_otherwise_is_ours_from_the_first_call_on(name: str) -> None:
    layer = swapped(pyg.GraphConv(6, 4))
    make, expected = CALLS[name]
    given, found = make(*graph()), ways(layer)
    args, named = ((), given) if isinstance(given, dict) else (given, {})
    if expected == "refused":
        with pytest.raises(ValueError, match="edge_weight: shape"):
            layer(*args, **named)
        return
    layer(*args, **named)
    assert found == [expected]


def test_many_edges_are_sorted_at_once() -> None:
    layer = swapped(pyg.GATConv(6, 4))
    found, x = ways(layer), torch.randn(NODES, 6)
    for count in OnCore.pays_from[0] - 1, OnCore.pays_from[0]:
        layer(x, torch.randint(NODES, (2, count)))
    assert found == ["PyG's", "ours"]


def test_each_layer_of_a_model_meets_new_edges_once() -> None:
    model = pyg.Sequential("x, e", [(pyg.GINConv(nn.Linear(6, 6)), "x, e -> x") for _ in range(3)])
    model, (x, edges) = swapped(model), graph()
    found = [ways(layer) for layer in model]
    model(x, edges)
    model(x, edges)
    assert found == [["PyG's", "ours"]] * 3


def test_an_error_leaves_the_layer_ours() -> None:
    layer = swapped(pyg.GINConv(nn.Linear(5, 4)))
    own = type(layer)
    with pytest.raises(RuntimeError):
        layer(*graph())
    assert type(layer) is own


def test_the_table_notices_a_layer_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = swapped(pyg.GINConv(nn.Linear(6, 4)))
    forgetful = type("Forgetful", (dict,), {"get": lambda *_: None})()
    monkeypatch.setattr("graphtheory.nn.conv.first_calls._MET", forgetful)
    (x, edges), found = graph(), ways(layer)
    for _ in range(2):
        layer(x, edges)
    assert found == ["PyG's", "PyG's"]


def test_undo_and_layers_made_here_know_nothing_of_it() -> None:
    layer = pyg.GINConv(nn.Linear(6, 4))
    attributes = dict(vars(layer))
    accelerate(layer).undo()
    assert vars(layer) == attributes
    made = _DROP_INS[pyg.GINConv](nn.Linear(6, 4))
    found = ways(made)
    made(*graph())
    assert found == []  # it is not even asked


@pytest.mark.parametrize("at", [(0, NODES), (0, -1), (1, NODES), (1, -1)])
@pytest.mark.parametrize("name", ["GINConv", "SAGEConv", "GraphConv", "SGConv"])
def test_ids_out_of_range_are_refused_as_pyg_refuses_them(name: str, at: tuple[int, int]) -> None:
    theirs = MAKE[name]()
    layer = swapped(theirs)
    x, edges = graph()
    edges[at[0], 3] = at[1]
    with pytest.raises((IndexError, RuntimeError, ValueError)) as expected:
        theirs(x, edges)
    with pytest.raises(type(expected.value)) as found:
        layer(x, edges)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("name", ["GINConv", "SAGEConv", "GraphConv", "GCNConv"])
def test_a_hook_on_messages_is_called_at_new_edges(name: str) -> None:
    layer, seen = swapped(MAKE[name]()), []
    layer.register_message_forward_hook(lambda conv, inputs, out: seen.append(out.shape))
    layer(*graph())
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("options", [
    {}, {"improved": True}, {"add_self_loops": False}, {"normalize": False},
    {"flow": "target_to_source"}, {"bias": False},
], ids=str)  # fmt: skip
def test_gcn_at_new_edges_has_the_bits_of_pyg(options: dict[str, Any], dtype: torch.dtype) -> None:
    theirs = pyg.GCNConv(6, 4, **options).to(dtype)
    layer = swapped(theirs)
    found = ways(layer)
    x, edges = graph()
    x = x.to(dtype).requires_grad_()
    edges[:, :3] = edges[0, :3]  # self-loops
    for few in (edges, edges[:, 3:], edges[:, :0]):
        got, want = layer(x, few), theirs(x, few)
        grad = torch.autograd.grad(got.sum(), [x, *layer.parameters()])
        expected = torch.autograd.grad(want.sum(), [x, *theirs.parameters()])
        assert torch.equal(got, want) and all(map(torch.equal, grad, expected))
    assert found == 3 * ["PyG's"]


ATTENTION = [
    (pyg.TransformerConv, {}), (pyg.TransformerConv, {"edge_dim": 3, "beta": True}),
    (pyg.TransformerConv, {"edge_dim": 3, "flow": "target_to_source", "dropout": 0.5}),
    (pyg.TransformerConv, {"edge_dim": 3, "concat": False, "dropout": 1.0, "root_weight": False}),
    (pyg.GATv2Conv, {}), (pyg.GATv2Conv, {"edge_dim": 3, "share_weights": True, "dropout": 0.5}),
    (pyg.GATv2Conv, {"edge_dim": 3, "flow": "target_to_source", "add_self_loops": False}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), ATTENTION)
def test_attention_at_new_edges_is_that_of_pyg(
    kind: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = kind(6, 4, heads=2, **options).double()
    layer = direct(kind)(6, 4, heads=2, **options).double()
    layer.load_state_dict(theirs.state_dict())
    x, edges = graph()
    x, given = x.double().requires_grad_(), [edges]
    if "edge_dim" in options:
        given.append(torch.randn(EDGES, 3, dtype=torch.float64, requires_grad=True))
    leaves = [x, *given[1:], *layer.parameters()]
    leave, found = {"allow_unused": True, "materialize_grads": True}, []
    for one in (layer, theirs):
        of = [*leaves[: len(given)], *one.parameters()]
        torch.manual_seed(0)
        out = one(x, *given)
        grads = torch.autograd.grad(out.sin().sum(), of, create_graph=True, **leave)
        again = torch.autograd.grad(sum(g.sin().sum() for g in grads), of, **leave)
        plain = torch.autograd.grad(one.eval()(x, *given).sin().sum(), of, **leave)
        found.append([out, *grads, *again, *plain])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)  # what is dropped included
    monkeypatch.setattr(MessagePassing, "edge_updater", None)
    for own in ("propagate", "message", "aggregate", "edge_update"):
        monkeypatch.setattr(kind, own, None)
    layer(x, *given)  # which needs none of PyG's


@pytest.mark.parametrize("name", ["TransformerConv", "GATv2Conv"])
def test_what_has_to_see_the_parts_of_attention_sees_them(name: str) -> None:
    layer, (x, edges) = swapped(MAKE[name]()), graph()
    seen: list[Any] = []
    layer.register_message_forward_hook(lambda conv, inputs, out: seen.append(out.shape))
    layer(x, edges)
    assert len(seen) == 1
    edges[0, 3] = NODES
    with pytest.raises(IndexError) as expected:
        MAKE[name]()(x, edges)
    with pytest.raises(IndexError) as found:
        swapped(MAKE[name]())(x, edges)
    assert str(found.value) == str(expected.value)
    edges[0, 3] = 0
    with torch.autocast("cpu", torch.bfloat16):
        torch.manual_seed(0)
        theirs, other = MAKE[name](), edges.clone()
        assert torch.equal(swapped(theirs)(x, other), theirs(x, edges))


@pytest.mark.parametrize("kind", [pyg.SAGEConv, pyg.GraphConv])
def test_the_gradient_of_a_largest_zero_is_shared_alike_in_every_call(kind: Any) -> None:
    """PyG's counts one entry more where the largest value is 0, as usual behind a ReLU."""
    layer = kind(1, 1, "max")
    for name, parameter in layer.named_parameters():
        nn.init.constant_(parameter, 1.0 if name in ("lin_l.weight", "lin_rel.weight") else 0.0)
    accelerate(layer)
    found, edges = [], torch.tensor([[1, 2, 3], [0, 0, 0]])
    for _ in range(3):
        x = torch.tensor([[5.0], [0.0], [0.0], [-1.0]], requires_grad=True)
        found.append(torch.autograd.grad(layer(x, edges).sum(), x)[0].flatten().tolist())
    assert found == [[0.0, 0.5, 0.5, 0.0]] * 3


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MAKE)
def test_a_recorded_call_keeps_neither_nodes_nor_edges(name: str) -> None:
    theirs = MAKE[name]()
    layer = swapped(theirs)
    x, edges = graph()
    for _ in range(2):
        layer(x, edges)
    traced = torch.jit.trace(layer, (x, edges), check_trace=False)
    others = torch.randn(5, 6), torch.randint(5, (2, 17))
    torch.testing.assert_close(traced(*others), theirs(*others))
    with torch.no_grad():
        try:
            recorded = make_fx(lambda x, edges: layer(x, edges))(x, edges)
        except RuntimeError:  # by name of the operation whose value it would have to know
            return
        more = torch.randint(NODES, (2, EDGES))
        torch.testing.assert_close(recorded(x, more), theirs(x, more))


@pytest.mark.parametrize("name", MAKE)
def test_a_checkpoint_saves_the_same_again(name: str) -> None:
    theirs = MAKE[name]()
    layer = swapped(theirs)
    (x, edges), grads = graph(), []
    for one in (layer, theirs):
        z = x.clone().requires_grad_()
        out = checkpoint(one, z, edges, use_reentrant=False)
        grads.append(torch.autograd.grad(out.square().sum(), (z, *one.parameters())))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_drops_the_same_again(reentrant: bool) -> None:
    layer, (x, edges) = swapped(pyg.GATConv(6, 4, dropout=0.5)), graph()
    x.requires_grad_()
    torch.manual_seed(0)
    found = checkpoint(layer, x, edges, use_reentrant=reentrant)
    layer(x, edges)
    torch.manual_seed(0)
    torch.testing.assert_close(found, layer(x, edges))  # which is ours, of edges that it has met


def test_a_checkpoint_reads_dense_features_again() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.seen = pyg.GCNConv(256, 4), list[type]()

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            self.seen.append(type(x))
            return self.conv(x, edges)

    model, x, edges = Net(), torch.eye(256), torch.randint(256, (2, EDGES))
    accelerate(model)
    for _ in range(2):
        checkpoint(model, x, edges, use_reentrant=False).sum().backward()
    assert model.seen == [Tensor] * 4


def test_the_gradient_of_learned_weights_of_zero_is_finite_in_each_call() -> None:
    layer, (x, edges) = swapped(pyg.GCNConv(6, 4, add_self_loops=False)), graph()
    weight = torch.zeros(EDGES, requires_grad=True)
    for _ in range(3):
        (found,) = torch.autograd.grad(layer(x, edges, weight).sin().sum(), weight)
        assert not found.any()


@pytest.mark.parametrize("name", MAKE)
def test_edges_of_inference_mode_train_from_the_first_call_on(name: str) -> None:
    layer = swapped(MAKE[name]().eval())
    x, edges = graph()
    with torch.inference_mode():
        inferred = edges.clone()
        quick = ways(layer)
        layer(x, inferred.clone())
    assert quick == ["PyG's"]
    x.requires_grad_()
    found, wanted = (
        torch.autograd.grad(layer(x, some).square().sum(), x)[0] for some in (inferred, edges)
    )
    torch.testing.assert_close(found, wanted)
