"""What is remembered of a tensor, beside a layer that remembers nothing: every way to change it."""

import copy
import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from battery.cache_arguments import NODES, UNCOUNTED, ways_of
from battery.cache_layers import LAYERS, OUT, WIDTH, every_argument, remembers
from battery.caches import TOLERANCE, Call, short_collections, versions_alone
from graphtheory import Neighborhood, accelerate, ops
from graphtheory.graph.content import state_of
from graphtheory.nn import BucketBias, SparseFeatures, SPDTransformerConv
from graphtheory.nn.conv import adjacency, weighted_sums
from graphtheory.patterns.draw import pair_distance
from graphtheory.structure import shortest_path_distance

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
TABLE = list(every_argument())
REMEMBERED = [
    one for one in TABLE
    if remembers(one[0], one[1], one[2][one[1]])
    and (WITH_TORCH_SPARSE or "SparseTensor" not in one[2].values())
]  # fmt: skip
NAMES = [f"{name}-{argument} {forms[argument]}" for name, argument, forms in TABLE]


@pytest.fixture(autouse=True, scope="module")
def _short_collections() -> Iterator[None]:
    with short_collections():
        yield


def warm(call: Call) -> None:
    """Twice, after which everything is remembered; what is saved for a backward pass lives."""
    for _ in range(2):
        assert call.off(train=False, inference=not call.trains) < TOLERANCE


def wrong_after(call: Call, argument: str, way: str, seed: int = 2) -> bool:
    call.arguments[argument].change(way, np.random.default_rng(seed))
    return call.off(inference=not call.trains) > TOLERANCE


@pytest.mark.parametrize(("name", "argument", "forms"), TABLE, ids=NAMES)
def test_every_change_is_followed(name: str, argument: str, forms: dict[str, str]) -> None:
    if "SparseTensor" in forms.values():
        pytest.importorskip("torch_sparse")
    inference = len(name + forms[argument]) % 2 == 1
    call = Call(name, forms, np.random.default_rng(1), inference)
    warm(call)
    for seed, way in enumerate(ways_of(forms[argument])):
        assert not wrong_after(call, argument, way, seed), way
        call.off(train=False, inference=not call.trains)


@pytest.mark.parametrize("way", UNCOUNTED)
def test_the_table_sees_what_versions_do_not(way: str) -> None:
    """Of every argument that is remembered, if torch's count of changes were believed."""
    with versions_alone():
        for name, argument, forms in REMEMBERED:
            call = Call(name, forms, np.random.default_rng(1))
            for _ in range(2):
                call.off(train=False)
            assert wrong_after(call, argument, way), (name, argument, forms)


@pytest.mark.parametrize("name", ["SPDTransformerConv, edges", "TransformerConv, edges"])
def test_the_table_sees_shared_features_of_edges(name: str) -> None:
    forms = {argument: some[0] for argument, some in LAYERS[name].takes.items()}
    with versions_alone():
        call = Call(name, forms, np.random.default_rng(1))
        warm(call)
        assert wrong_after(call, "edge_attr", "numpy")


def test_the_table_sees_a_memory_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes a new tensor for the one that lay there; here any that follows lies there."""
    call, memory = Call("SAGEConv", {"edges": "list"}, np.random.default_rng(1)), {}
    edges = call.arguments["edges"]
    monkeypatch.setattr(
        adjacency, "cached_for", lambda given: memory if given is edges.value else None
    )
    warm(call)
    assert wrong_after(call, "edges", "freed")


# --- two tensors that share a part ---------------------------------------------------------------


def two_that_share() -> list[SparseTensor]:
    """Sparse matrices of the same columns, in 12 rows of 3 and in 6 rows of 6."""
    pytest.importorskip("torch_sparse")
    rng = np.random.default_rng(0)
    col = torch.from_numpy(np.concatenate([np.sort(rng.permutation(12)[:6]) for _ in range(6)]))
    rows = [torch.arange(12).repeat_interleave(3), torch.arange(6).repeat_interleave(6)]
    return [
        SparseTensor(row=row, col=col, sparse_sizes=(NODES, NODES), is_sorted=True) for row in rows
    ]


SHARING = [
    name for name, kind in LAYERS.items()
    if "SparseTensor" in kind.takes.get("edges", ()) and name != "RGCNConv"
]  # fmt: skip


def given_beside(name: str) -> dict[str, Tensor]:
    call = Call(name, {n: f[0] for n, f in LAYERS[name].takes.items()}, np.random.default_rng(1))
    return {n: argument.value for n, argument in call.arguments.items() if n != "edges"}


@pytest.mark.parametrize("name", SHARING)
def test_matrices_that_share_columns_are_two(name: str) -> None:
    both, more = two_that_share(), given_beside(name)
    layer, x = LAYERS[name].make(), torch.randn(NODES, WIDTH)
    accelerate(layer)
    assert both[0].storage.col() is both[1].storage.col()
    wanted = [
        LAYERS[name].call(copy.deepcopy(layer), x, edges, **more) for edges in two_that_share()
    ]
    for _ in range(2):
        for edges, right in zip(both, wanted, strict=True):
            torch.testing.assert_close(LAYERS[name].call(layer, x, edges, **more), right)
    assert not torch.allclose(*wanted)


def test_a_look_at_columns_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adjacency, "_state", lambda given: state_of(given.storage.col()))
    layer, x = pyg.SAGEConv(WIDTH, OUT), torch.randn(NODES, WIDTH)
    accelerate(layer)
    first, second = (layer(x, edges) for edges in two_that_share())
    torch.testing.assert_close(first, second)  # which is wrong


# --- values by hand ------------------------------------------------------------------------------


def test_features_that_numpy_rewrites_in_each_step() -> None:
    rng = np.random.default_rng(0)
    array = np.zeros((500, 200), "f")
    x, edges = torch.from_numpy(array), torch.from_numpy(rng.integers(0, 500, (2, 2000)))
    theirs = pyg.GCNConv(200, 8)
    ours = copy.deepcopy(theirs)
    accelerate(ours)
    for _ in range(6):
        array[:] = (rng.random(array.shape) < 0.01) * rng.random(array.shape)
        for layer in (ours, theirs):
            layer.zero_grad()
            layer(x, edges).sin().sum().backward()
        torch.testing.assert_close(ours(x, edges), theirs(x, edges), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.lin.weight.grad, theirs.lin.weight.grad, atol=1e-3, rtol=0)


def test_features_of_another_type_in_the_same_tensor() -> None:
    x = torch.eye(300)
    layer, edges = pyg.GCNConv(300, 4), torch.randint(300, (2, 900))
    accelerate(layer)
    for _ in range(3):
        layer(x, edges)
    x.data = x.data.double()
    layer.double()
    wanted = copy.deepcopy(layer)(x.clone(), edges)
    torch.testing.assert_close(layer(x, edges), wanted)


def test_offsets_that_change_in_inference_mode() -> None:
    x = torch.tensor([0.0, 4.0, 9.0]).view(3, 1, 1)
    with torch.inference_mode():
        offsets = torch.tensor([0, 2, 3])
        for ends, wanted in (([0, 2, 3], [2, 2, 9]), ([0, 1, 3], [0, 6.5, 6.5])):
            offsets.copy_(torch.tensor(ends))
            for _ in range(2):
                found = ops.varlen_attention(torch.zeros(3, 1, 1), x, x, offsets)
                assert found.flatten().tolist() == wanted


def test_hops_that_change_in_inference_mode() -> None:
    nb = Neighborhood(
        torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1]),
        distance=torch.tensor([0, 1, 0], dtype=torch.uint8),
    )  # fmt: skip
    bias, layer = BucketBias(3, 1), SPDTransformerConv(2, 2, num_buckets=3)
    with torch.no_grad():
        layer.bucket_bias.table.copy_(torch.tensor([[0.0], [1.0], [5.0]]))
    x = torch.randn(2, 2)
    outs = []
    with torch.inference_mode():
        for hops in ([0, 1, 0], [2, 1, 0], [2, 2, 2]):
            nb.distance.copy_(torch.tensor(hops))
            outs.append(layer(x, nb))
            torch.testing.assert_close(outs[-1], copy.deepcopy(layer)(x, nb.replace()))
            assert bias(nb.distance).bucket.tolist() == hops
    assert not torch.allclose(outs[0], outs[1])


@pytest.mark.parametrize("way", ["numpy", "data", "in inference mode"])
@pytest.mark.parametrize("ids", ["indptr", "indices"])
def test_a_neighborhood_whose_ids_changed_is_refused(way: str, ids: str) -> None:
    layer = pyg.SAGEConv(2, 2)
    accelerate(layer)
    for use in (
        Neighborhood.transpose, Neighborhood.targets,
        lambda nb: pair_distance(nb, torch.tensor([[0], [1]])), shortest_path_distance,
        lambda nb: layer(torch.randn(3, 2), nb),
    ):  # fmt: skip
        nb = Neighborhood(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 0]))
        use(nb)
        with torch.inference_mode(way == "in inference mode"):
            tensor = getattr(nb, ids)
            tensor = tensor.numpy() if way == "numpy" else tensor.data if way == "data" else tensor
            tensor[1] = 0
        with pytest.raises(ValueError, match="were changed in place"):
            use(nb)


def test_a_layer_that_moves_compares_no_edges_across_devices() -> None:
    edges = torch.randint(NODES, (2, 9))
    layer = weighted_sums.GraphConv(WIDTH, OUT)
    kept = weighted_sums._kept(layer, edges)
    assert weighted_sums._kept(layer, edges.clone()) is kept
    elsewhere = edges.to("meta")  # torch.equal raises there as it does across devices
    assert weighted_sums._kept(layer, elsewhere).device.type == "meta"
    assert weighted_sums._kept(layer, edges.int()).dtype == torch.int32


# --- what else a layer may be given --------------------------------------------------------------


@pytest.mark.parametrize("form", ["list", "SparseTensor", "csr"])
def test_layers_of_one_graph_do_not_mix(form: str) -> None:
    if form == "SparseTensor":
        pytest.importorskip("torch_sparse")
    names = [n for n, kind in LAYERS.items() if form in kind.takes.get("edges", ())]
    calls = [
        Call(n, {a: f[0] for a, f in LAYERS[n].takes.items()} | {"edges": form}, rng)
        for n, rng in zip(names, map(np.random.default_rng, range(len(names))), strict=True)
    ]
    backwards = Call("SAGEConv", {"edges": form}, np.random.default_rng(0))
    if form == "list":
        backwards.layer.flow = "target_to_source"
        calls.append(backwards)
    for call in calls:
        call.arguments["edges"] = calls[0].arguments["edges"]
    for _ in range(3):
        for name, call in zip([*names, "backwards"], calls, strict=False):
            assert call.off() < TOLERANCE, name


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        (name, argument) for name, argument, forms in TABLE
        if forms[argument] in ("edge weights", "edge features") and forms["edges"] == "list"
    ],
)  # fmt: skip
def test_gradients_of_what_had_none_before(name: str, argument: str) -> None:
    forms = {argument: some[0] for argument, some in LAYERS[name].takes.items()}
    call = Call(name, forms, np.random.default_rng(1))
    warm(call)
    given = {n: one.value for n, one in call.arguments.items()}
    copies, fresh = {n: one.copy() for n, one in call.arguments.items()}, copy.deepcopy(call.layer)
    found = []
    for layer, values in ((call.layer, given), (fresh, copies)):
        values[argument].requires_grad_()
        for _ in range(2):
            LAYERS[name].call(layer, call.x, **values).sin().sum().backward()
        found.append(values[argument].grad)
    torch.testing.assert_close(*found)
    assert found[0].abs().max() > 0


def test_features_that_need_gradients_by_now_or_were_read_in_inference_mode() -> None:
    call = Call("GCNConv, features", {"x": "few", "edges": "wide list"}, np.random.default_rng(1))
    warm(call)
    x = call.arguments["x"].value.requires_grad_()
    call.layer(x, call.arguments["edges"].value).sum().backward()
    assert x.grad is not None and x.grad.abs().max() > 0
    with torch.inference_mode():
        x = SparseFeatures((torch.rand(9, 30) < 0.1).float())
    linear = nn.Linear(30, 4)
    linear(x).sum().backward()
    torch.testing.assert_close(linear.weight.grad, x.dense.sum(0).expand(4, -1))


# --- nothing outlives its tensor -----------------------------------------------------------------

LEAKS = [
    (name, argument, forms) for name, argument, forms in TABLE
    if forms[argument] in (
        "list", "EdgeIndex", "coo", "csr", "few", "batch", "hops", "hops of pairs", "edge types",
        "edge features", "edge weights", "offsets", "mask", "with hops", "with weights",
    )
]  # fmt: skip


def is_dense(value: object) -> bool:
    return type(value) is Tensor and value.layout is torch.strided


@pytest.mark.parametrize("training", [True, False])
def test_nothing_keeps_an_argument(training: bool) -> None:
    for name, argument, forms in LEAKS:
        call = Call(name, forms, np.random.default_rng(1))
        for _ in range(3):
            call.off(train=training, inference=not training)
        call._held = None
        seen = [weakref.ref(call.arguments[argument].value)]
        if is_dense(call.arguments[argument].value):
            seen += [weakref.ref(part) for part in call.arguments[argument].parts]
        del call.arguments[argument]
        gc.collect()
        assert all(ref() is None for ref in seen), (name, forms)


def test_a_reference_that_is_kept_is_seen() -> None:
    kept = nn.Identity()
    x = torch.ones(2)
    seen, kept.x = weakref.ref(x), x
    del x
    gc.collect()
    assert seen() is not None
