"""Replayed launches, interpreted on the CPU: the bits of the calls that they were recorded of.

What a replay gives the driver are addresses. Here they are made tensors again, for which Triton's
interpreter runs the kernel, so that an address at a wrong place gives a wrong result.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric import nn as pyg

from graphtheory import Neighborhood, accelerate, cliques, nn, ops
from graphtheory.nn.conv import again
from graphtheory.ops import layers
from graphtheory.ops.backends import triton_csr
from graphtheory.ops.backends.triton import bins, launch, replay

pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
_sizes: dict[int, int] = {}  # bytes that lie at an address
F32, F64 = torch.float32, torch.float64
NODES, EDGES, HEADS, DIM = 7, 24, 2, 4

no_objections: Any = lambda device: []  # noqa: E731
triton_csr.triton_objections.__code__ = no_objections.__code__  # others hold the function
torch.Tensor.is_cpu = False  # a process that pretends to have a GPU cannot go back
found_gpu = SimpleNamespace(shared_memory_per_block_optin=227 * 1024)
torch.cuda.get_device_properties = lambda device=None: found_gpu
torch._C._cuda_getDevice = lambda: -1  # where tensors of a CPU say that they are


def at(address: int, like: Tensor) -> Tensor:
    """What lies at an address that a tensor has told, or within what lies there."""
    if not address:  # of a tensor without entries
        return like.new_empty(0)
    base = max(known for known, size in _sizes.items() if known <= address < known + size)
    count = base + _sizes[base] - address
    held = (ctypes.c_byte * (count - count % like.element_size())).from_address(address)
    return torch.from_numpy(np.frombuffer(held, np.uint8)).view(like.dtype)


data_ptr = torch.Tensor.data_ptr


def noted_address(tensor: Tensor) -> int:
    address, offset = data_ptr(tensor), tensor.storage_offset() * tensor.element_size()
    _sizes[address] = tensor.untyped_storage().nbytes() - offset
    return address


@pytest.fixture(autouse=True)
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launches are remembered, rows of more than 4 edges are long; names of what is replayed."""
    found: list[str] = []

    def launcher(
        kernel: Any, compiled: Any, args: Sequence[Any], constants: dict[str, Any]
    ) -> replay.Launcher:
        kinds = [a if isinstance(a, Tensor) else None for a in args]

        def run(x: int, y: int, z: int, stream: int, given: Sequence[Any]) -> None:
            found.append(kernel.fn.__name__)
            pairs = zip(given, kinds, strict=True)
            real = [at(a, kind) if isinstance(kind, Tensor) else a for a, kind in pairs]
            kernel[x, y, z](*real, **constants)

        return replay.Launcher(kernel, None, run, lambda device: 0, (), ())

    monkeypatch.setattr(torch.Tensor, "data_ptr", noted_address)
    monkeypatch.setattr(launch, "_launcher", launcher)
    monkeypatch.setattr(launch, "_known", {})
    monkeypatch.setattr(bins, "_OF_SMALL", 4)
    return found


def graph() -> Neighborhood:
    """Some edges, of which many end in node 0 and none in the last."""
    generator = torch.Generator().manual_seed(0)
    src, dst = (torch.randint(n, (EDGES,), generator=generator) for n in (NODES, NODES - 1))
    edges = torch.stack([src, torch.where(torch.rand(EDGES, generator=generator) < 0.3, 0, dst)])
    return Neighborhood.from_edge_index(edges, NODES)


def drawn(shapes: dict[str, Sequence[int]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(*shape, generator=generator, dtype=F64) for name, shape in shapes.items()
    }


HOPS = torch.arange(EDGES) % 5
BUCKET = torch.arange(EDGES).remainder(5).to(torch.uint8)
N, H, D, E = NODES, HEADS, DIM, EDGES
NODE, SCORE, EDGE = (N, H, D), (N, H), (E, H)
QKV = {"query": NODE, "key": NODE, "value": NODE}
Given = dict[str, Tensor]
CASES: dict[str, tuple[dict[str, Sequence[int]], Callable[..., Any]]] = {
    "attention": (QKV, lambda nb, **t: ops.attention(**t, neighborhood=nb)),
    "attention, bias": (
        QKV | {"bias": EDGE}, lambda nb, **t: ops.attention(**t, neighborhood=nb)
    ),
    "attention, buckets": (
        QKV | {"table": (5, H)},
        lambda nb, table, **t: ops.attention(
            **t, neighborhood=nb, bias=ops.BucketedBias(BUCKET, table)
        ),
    ),
    "attention, dropout": (
        QKV,
        lambda nb, **t: ops.attention(
            **t, neighborhood=nb, dropout=0.5, generator=torch.Generator().manual_seed(3)
        ),
    ),
    "attention, features of edges": (
        QKV | {"features": (E, 3), "of_query": (N, H, 3)},
        lambda nb, features, of_query, **t: ops.attention(
            **t, neighborhood=nb, edges=ops.EdgeFeatures(features, of_query)
        ),
    ),
    "GAT": (
        {"value": NODE, "src_score": SCORE, "dst_score": SCORE, "edge": EDGE},
        lambda nb, **t: ops.additive_attention(**t, neighborhood=nb),
    ),
    "GATv2": (
        {"source": NODE, "target": NODE, "att": (H, D), "edge_features": (E, 3),
         "edge_matrix": (H, 3, D)},
        lambda nb, **t: ops.additive_score(**t, neighborhood=nb),
    ),
    "sum": ({"weights": EDGE, "value": NODE}, lambda nb, **t: ops.aggregate(**t, neighborhood=nb)),
    "sum of values": (
        {"value": NODE}, lambda nb, value: ops.aggregate(None, value, nb)
    ),
    "mean": (
        {"weights": EDGE, "value": NODE},
        lambda nb, **t: ops.aggregate(**t, neighborhood=nb, reduce="mean"),
    ),
    "mean of values": (
        {"value": NODE}, lambda nb, value: ops.aggregate(None, value, nb, "mean")
    ),
    "ReLU sum": (
        {"value": NODE, "edge_features": (E, H, D)},
        lambda nb, **t: ops.relu_sum(**t, neighborhood=nb, given_order=True),
    ),
    "nearest": (QKV, lambda nb, **t: ops.topk_attention(**t, neighborhood=nb, k=2)),
}  # fmt: skip


def flat(out: Any) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else [t for one in out for t in flat(one)]


def results(
    compute: Callable[..., Any], nb: Neighborhood, given: Given, up: int, again: bool = False
) -> list[Tensor]:
    """Outputs and gradients of all inputs; `again` those of the sum of their squares, too."""
    leaves = {name: t.clone().requires_grad_() for name, t in given.items()}
    outs, inputs = flat(compute(nb, **leaves)), list(leaves.values())
    generator = torch.Generator().manual_seed(up)
    ups = [torch.randn(out.shape, generator=generator, dtype=F64).to(out.dtype) for out in outs]
    firsts = torch.autograd.grad(outs, inputs, ups, create_graph=again)
    if not again:
        return [*outs, *firsts]
    total = sum((one**2).sum() for one in firsts if one.requires_grad)
    return [*outs, *firsts, *torch.autograd.grad(total, inputs, materialize_grads=True)]


def narrow(given: Given) -> Given:
    return {name: t.float() for name, t in given.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_replay_has_the_bits_of_the_first_call(name: str, replayed: list[str]) -> None:
    shapes, compute = CASES[name]
    nb = cliques([NODES]) if name == "nearest" else graph()
    for seed in range(4):
        given = narrow(drawn(shapes, seed))
        replayed.clear()
        found = results(compute, nb, given, seed)
        launched = replayed.copy()
        fresh = cliques([NODES]) if name == "nearest" else graph()
        wanted = results(compute, fresh, given, seed)
        assert all(map(torch.equal, found, wanted))
        assert seed < 2 or launched  # the second call is recorded


@pytest.mark.parametrize("again", [False, True], ids=["gradients", "second derivatives"])
@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("nearest", "sum of values", "mean of values")]
)
def test_a_replay_fulfills_the_definition(name: str, again: bool) -> None:
    shapes, compute = CASES[name]
    nb = graph()
    for seed in range(3):
        given = drawn(shapes, seed)
        found = results(compute, nb, given, seed, again and seed == 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_csr.TritonCSR, "unsupported", lambda self, call: ["not here"])
        wanted = results(compute, graph(), given, seed, again)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def accelerated(layer: Any) -> Any:
    accelerate(layer)
    return layer


LAYERS: dict[str, tuple[Any, Any]] = {  # ours and PyG's
    "GCN": (nn.GCNConv(5, H * D), pyg.GCNConv(5, H * D)),
    "GCN without a bias": (nn.GCNConv(5, H * D, bias=False), pyg.GCNConv(5, H * D, bias=False)),
    "GAT": (nn.GATConv(5, D, H), pyg.GATConv(5, D, H)),
    "GAT without a bias": (nn.GATConv(5, D, H, bias=False), pyg.GATConv(5, D, H, bias=False)),
    **{
        f"GATv2{what}": (nn.GATv2Conv(5, D, H, **options), pyg.GATv2Conv(5, D, H, **options))
        for what, options in {
            "": {},
            " without biases": {"bias": False},
            ", one map": {"share_weights": True},
            ", features of edges": {"edge_dim": 2},
            ", features of edges, no self-loops": {"edge_dim": 2, "add_self_loops": False},
        }.items()
    },
    "transformer": (nn.TransformerConv(5, D, H), pyg.TransformerConv(5, D, H)),
    "transformer without biases": (
        nn.TransformerConv(5, D, H, bias=False), pyg.TransformerConv(5, D, H, bias=False)
    ),
    "transformer without a root": (
        nn.TransformerConv(5, D, H, root_weight=False),
        pyg.TransformerConv(5, D, H, root_weight=False),
    ),
    "transformer, features of edges": (
        nn.TransformerConv(5, D, H, edge_dim=2), pyg.TransformerConv(5, D, H, edge_dim=2)
    ),
    "distances": (nn.SPDTransformerConv(5, D, H, num_buckets=4), None),
    "SAGE": (accelerated(pyg.SAGEConv(5, 3)), pyg.SAGEConv(5, 3)),
    "SAGE, sums": (accelerated(pyg.SAGEConv(5, 3, aggr="sum")), pyg.SAGEConv(5, 3, aggr="sum")),
    "GIN": (accelerated(pyg.GINConv(torch.nn.Linear(5, 3))), pyg.GINConv(torch.nn.Linear(5, 3))),
    "GINE": (
        accelerated(pyg.GINEConv(torch.nn.Linear(5, 3), edge_dim=2)),
        pyg.GINEConv(torch.nn.Linear(5, 3), edge_dim=2),
    ),
}  # fmt: skip


SUMS = [name for name in LAYERS if name.startswith(("SAGE", "GIN"))]


def features_of(layer: Any, dtype: torch.dtype) -> list[Tensor]:
    """Features of edges, if the layer takes some."""
    if getattr(layer, "edge_dim", None) is None and not isinstance(layer, pyg.GINEConv):
        return []
    return [torch.cos(torch.arange(2.0 * E, dtype=dtype)).view(E, 2)]


def edge_list() -> Tensor:
    nb = graph()
    return nb.edge_index()[:, torch.randperm(E, generator=torch.Generator().manual_seed(1))]


def of_layer(layer: Any, edges: Tensor, x: Tensor, seed: int, again: bool = False) -> list[Tensor]:
    """Output, gradients of x and parameters; `again` those of the sum of their squares, too."""
    x = x.clone().requires_grad_()
    rooted = getattr(layer, "root_weight", True)  # PyG's has the map of a root in any case
    leaves = [x, *(p for name, p in layer.named_parameters() if rooted or "skip" not in name)]
    more = [HOPS] if isinstance(layer, nn.SPDTransformerConv) else features_of(layer, x.dtype)
    if not isinstance(layer, pyg.GATv2Conv):  # which is one function for given features alone
        leaves += [t.requires_grad_() for t in more if t.is_floating_point()]
    out = layer(x, edges, *more)
    up = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    first = torch.autograd.grad(out, leaves, up.to(out.dtype), create_graph=again)
    if not again:
        return [out, *first]
    total = sum((one**2).sum() for one in first)
    return [out, *first, *torch.autograd.grad(total, leaves, allow_unused=True)]


@pytest.mark.parametrize("again", [False, True], ids=["gradients", "second derivatives"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_as_one_function_is_pygs(name, again, replayed, monkeypatch) -> None:
    ours, theirs = LAYERS[name]
    ours, edges, run = ours.double(), edge_list(), []
    real = layers.Prepared.__call__
    monkeypatch.setattr(
        layers.Prepared, "__call__", lambda *args: run.append(real(*args)) or run[-1]
    )
    for seed in range(4):  # the first on new edges may be PyG's
        x = torch.randn(N, 5, dtype=F64, generator=torch.Generator().manual_seed(seed))
        replayed.clear()
        found = of_layer(ours, edges, x, seed, again)
    assert replayed and len(run) >= 3 and all(out is not None for out in run)
    if theirs is None:  # by its parts
        monkeypatch.setattr(layers, "prepare", lambda *args, **more: None)
        vars(ours).pop("_again")
        wanted = of_layer(ours, edges, x, seed, again)
    else:
        theirs = theirs.double()
        theirs.load_state_dict(ours.state_dict())
        wanted = of_layer(theirs, edges, x, seed, again)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_the_same_bits(name: str) -> None:
    layer, edges = LAYERS[name][0].float(), edge_list()
    x = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
    if name in SUMS:
        layer(x, edges, *features_of(layer, F32))  # as PyG's, which has other bits
    first, *others = [of_layer(layer, edges, x, 0) for _ in range(3)]
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ["transformer", "transformer, features of edges"])
def test_a_layer_in_half_precision_is_near_that_in_float64(name: str) -> None:
    layer, edges = copy.deepcopy(LAYERS[name][0]).half(), edge_list()
    x = torch.randn(N, 5, generator=torch.Generator().manual_seed(0)).half()
    for _ in range(3):
        found = of_layer(layer, edges, x, 0)
    assert layer._again is not None and all(t.dtype is torch.float16 for t in found)
    wanted = of_layer(layer.double(), edges, x.double(), 0)
    torch.testing.assert_close([t.double() for t in found], wanted, rtol=0.02, atol=0.02)


WATCHED: dict[str, Callable[[Any], Any]] = {
    "a hook": lambda layer: layer.lin.register_forward_hook(lambda *args: None),
    "a parametrization": lambda layer: torch.nn.utils.parametrizations.weight_norm(layer.lin),
    "another type": lambda layer: layer.half(),
}


@pytest.mark.parametrize("how", WATCHED)
def test_a_layer_whose_parts_are_seen_runs_them(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, run = nn.GCNConv(5, 3), []
    WATCHED[how](layer)
    monkeypatch.setattr(layers, "prepare", lambda *args, **more: run.append(args))
    x = torch.randn(N, 5).to(next(layer.parameters()).dtype)
    with torch.autocast("cpu", enabled=how == "another type"):
        layer(x, edge_list())
    assert not run


def put(name: str, value: Callable[[Any], Any], part: str | None = None) -> Callable[..., None]:
    """What gives a layer, or one of its linear maps, another attribute."""

    def change(layer: Any, edges: Tensor, hops: Tensor) -> None:
        owner = layer if part is None else getattr(layer, "lin", None) or layer.lin_value
        setattr(owner, name, value(getattr(owner, name, None)))

    return change


def hook(layer: Any, edges: Tensor, hops: Tensor) -> None:
    linear = getattr(layer, "lin", None) or layer.lin_value
    linear.register_forward_hook(lambda module, args, out: 2 * out)


def map_replaced(layer: Any, edges: Tensor, hops: Tensor) -> None:
    name = "lin" if getattr(layer, "lin", None) is not None else "lin_value"
    torch.manual_seed(5)
    setattr(layer, name, type(getattr(layer, name))(5, H * D, bias=name != "lin").double())


def of_a_user(layer: Any, edges: Tensor, hops: Tensor) -> None:
    kind = type(layer)
    twice = {"forward": lambda self, *args, **named: 2 * kind.forward(self, *args, **named)}
    layer.__class__ = type("Twice", (kind,), twice)


CHANGES: dict[str, Callable[..., None]] = {
    "nothing": lambda *_: None,
    "a parameter in place": lambda layer, *_: next(layer.parameters()).data.add_(1),
    "another parameter": put("weight", lambda w: torch.nn.Parameter(2 * w.detach()), "lin"),
    "another map": map_replaced,
    "a hook on a map": hook,
    "a replaced forward of a map": put("forward", lambda f: lambda x: 2 * f(x), "lin"),
    "a replaced message": put("message", lambda f: lambda **given: 2 * f(**given)),
    "no bias": put("bias", lambda bias: None),
    "dropout": put("dropout", lambda p: 0.5),
    "a slope": put("negative_slope", lambda slope: 0.7),
    "a scale": put("scale", lambda scale: 3.0),
    "frozen": lambda layer, *_: [p.requires_grad_(False) for p in layer.parameters()][:0],
    "a hook": lambda layer, *_: (
        layer.register_forward_hook(lambda module, args, out: 2 * out) and None
    ),
    "a hook before": lambda layer, *_: (
        layer.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:])) and None
    ),
    "a replaced forward": put("forward", lambda f: lambda *args: 2 * f(*args)),
    "a class of a user": of_a_user,
    "edges in place": lambda layer, edges, _: edges[0].add_(1).remainder_(N),
    "hops in place": lambda layer, _, hops: hops.add_(1),
}


OF_LIN = ("another map", "a hook on a map", "a replaced forward of a map", "another parameter")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (name, change)
        for name in (
            "GCN",
            "GAT",
            "transformer",
            "transformer, features of edges",
            "distances",
            *SUMS,
        )
        for change in CHANGES
        if name not in SUMS or change not in (*OF_LIN, "a replaced message", "a class of a user")
    ]
    + [(name, "a replaced message") for name in ("SAGE", "GIN", "GINE")]
    + [("GINE", "a hook on a map")],
)
def test_a_call_is_done_again_only_while_nothing_has_changed(name, change, monkeypatch) -> None:
    layer, edges, hops = copy.deepcopy(LAYERS[name][0]).double(), edge_list(), HOPS.clone()
    more = [hops] if name == "distances" else features_of(layer, F64)
    x = torch.randn(N, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    real, done = again.Again.__call__, []
    monkeypatch.setattr(again.Again, "__call__", lambda *args: done.append(real(*args)) or done[-1])
    for _ in range(4):
        layer(x, edges, *more)
    assert done[-1] is not None
    done.clear()
    CHANGES[change](layer, edges, hops)
    fresh = copy.deepcopy(layer)
    assert fresh._again is None and pickle.loads(pickle.dumps(LAYERS[name][0]))._again is None
    for _ in range(3):
        torch.manual_seed(1)
        found = layer(x, edges, *more)
        torch.manual_seed(1)
        wanted = fresh(x, edges.clone(), *(t.clone() for t in more))
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        assert change != "nothing" or done[0] is not None
        assert found.requires_grad == wanted.requires_grad


@pytest.mark.parametrize("name", ["GCN", "GAT", "transformer", "distances"])
def test_a_call_done_again_takes_the_arguments_of_forward(name: str) -> None:
    layer, edges, x = copy.deepcopy(LAYERS[name][0]).float(), edge_list(), torch.randn(N, 5)
    named = {"distance": HOPS} if name == "distances" else {}
    wanted = [layer(x, edges, **named) for _ in range(4)][-1]
    again = layer._again
    assert torch.equal(layer(edge_index=edges, x=x, **named), wanted) and layer._again is again
    for wrong in ({"edges": edges}, {"edge_index": edges, "more": 1}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            layer(x, **wrong)
    with pytest.raises(TypeError, match="multiple values for argument"):
        layer(x, edges, x=x)


def test_what_a_call_is_done_again_by_goes_with_the_layer() -> None:
    layer, edges = copy.deepcopy(LAYERS["GCN"][0]).double(), edge_list()
    x = torch.randn(N, 5, dtype=F64)
    for _ in range(4):
        layer(x, edges)
    seen = weakref.ref(layer._again)
    gc.collect()
    gc.disable()  # which would hide a circle that holds a GPU's memory
    try:
        vars(layer)["_again"] = None
        assert seen() is None
    finally:
        gc.enable()


def test_which_first_calls_on_a_gpu_are_pygs(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, edges = LAYERS["GINE"][0].float(), torch.randn(N, 5), edge_list()
    first = layer._is_first
    assert first(x, edges.clone(), torch.randn(E, 2))
    assert not first(x, edges.clone(), torch.randn(E, 3))  # refused in our words
    assert not first(x, edges.to("meta"), torch.randn(E, 2))
    with monkeypatch.context() as patch:
        patch.setattr(type(layer), "pays_on_gpu", E * 5)
        assert not first(x, edges.clone(), torch.randn(E, 2))
    torch.use_deterministic_algorithms(True)
    try:
        assert not first(x, edges.clone(), torch.randn(E, 2))
    finally:
        torch.use_deterministic_algorithms(False)
    met = edges.clone()
    assert first(x, met, torch.randn(E, 2)) and not first(x, met, torch.randn(E, 2))
