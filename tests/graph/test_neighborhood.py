"""The neighborhood: what it holds, how it is narrowed, moved and turned, and what it refuses."""

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from graphtheory import Neighborhood, bipartite, causal, cliques, ops
from graphtheory.graph import Sets
from graphtheory.graph.csr import extent
from graphtheory.ops import aggregate
from graphtheory.patterns import AddSelf

# 1 and 2 send to 0 (2 twice), 0 sends to 2, 3 has a loop; 1 receives from nobody.
EDGES = torch.tensor([[2, 0, 1, 2, 3], [0, 2, 0, 0, 3]])
WEIGHT = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
HOPS = torch.tensor([1, 2, 3, 4, 5], dtype=torch.uint8)


@pytest.fixture
def nb() -> Neighborhood:
    built = Neighborhood.from_edge_index(EDGES, 4, weight=WEIGHT)
    assert built.perm is not None
    return built.replace(distance=HOPS[built.perm])


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    """(edge_index, num_src, num_dst); no nodes, no edges, loops and duplicates included."""
    num_src, num_dst = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    most = 30 if num_src and num_dst else 0
    pairs = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=most))
    rows = [[j % num_src for j, _ in pairs], [i % num_dst for _, i in pairs]]
    dtype = draw(st.sampled_from([torch.int64, torch.int32]))
    return torch.tensor(rows, dtype=dtype).view(2, -1), num_src, num_dst


def test_rows_list_sources_in_the_given_order_and_come_in_the_one_asked_for(nb) -> None:
    assert nb.indptr.tolist() == [0, 3, 3, 4, 5] and nb.indices.tolist() == [2, 1, 2, 0, 3]
    assert nb.perm.tolist() == [0, 2, 3, 1, 4] and nb.weight.tolist() == [1, 3, 4, 2, 5]
    assert (nb.num_src, nb.num_dst, nb.num_edges, nb.device.type) == (4, 4, 5, "cpu")
    assert nb.degree().tolist() == [3, 0, 1, 1] and nb.targets().tolist() == [0, 0, 0, 2, 3]
    some = nb.rows(torch.tensor([3, 0, 1]))
    assert torch.equal(some.to_dense(), nb.to_dense()[[3, 0, 1]])
    assert (some.num_dst, some.num_src) == (3, 4)
    assert some.perm is not None and some.distance is not None
    assert torch.equal(EDGES[0][some.perm], some.indices)
    assert torch.equal(HOPS[some.perm], some.distance)
    assert nb.rows(torch.empty(0, dtype=torch.int64)).num_dst == 0


@given(edge_lists())
def test_every_edge_is_kept_in_its_place_and_turned_by_transpose(graph) -> None:
    edges, num_src, num_dst = graph
    nb = Neighborhood.from_edge_index(edges, num_src=num_src, num_dst=num_dst)
    assert nb.indptr.dtype == nb.indices.dtype == torch.int64
    assert torch.equal(nb.edge_index(), edges.long()[:, nb.perm])
    order = sorted(range(edges.size(1)), key=lambda e: int(edges[1, e]))  # stable
    assert nb.perm.tolist() == order
    Neighborhood(nb.indptr, nb.indices, num_src)  # passes its own validation
    edges, num_src, num_dst = graph
    weight = torch.arange(1.0, edges.size(1) + 1)
    nb = Neighborhood.from_edge_index(edges, num_src=num_src, num_dst=num_dst, weight=weight)
    turned = nb.transpose()
    assert nb.transpose() is turned and (turned.num_src, turned.num_dst) == (num_dst, num_src)
    assert torch.equal(turned.edge_index().flip(0), nb.edge_index()[:, turned.perm])
    assert torch.equal(turned.to_dense(), nb.to_dense().T)
    assert torch.equal(turned.transpose().to_dense(), nb.to_dense())


@given(edge_lists(), st.integers(0, 2**30 - 1))
def test_keep_leaves_the_chosen_edges(graph: tuple[Tensor, int, int], bits: int) -> None:
    edges, num_src, num_dst = graph
    nb = Neighborhood.from_edge_index(edges, num_src=num_src, num_dst=num_dst)
    chosen = torch.tensor([bool(bits >> e & 1) for e in range(nb.num_edges)], dtype=torch.bool)
    part = nb.keep(chosen)
    assert torch.equal(part.edge_index(), nb.edge_index()[:, chosen])
    assert torch.equal(part.perm, nb.perm[chosen])
    assert (part.num_src, part.num_dst) == (num_src, num_dst)


def test_keep_and_transpose_take_everything_along(nb: Neighborhood) -> None:
    part = nb.keep(nb.indices == 2)
    assert part.weight.tolist() == [1, 4] and part.distance.tolist() == [1, 4]
    assert part.perm.tolist() == [0, 3]
    plain = cliques([2])
    assert plain.perm is None and plain.blocks == (1, 2, 2)
    half = plain.keep(plain.indices == 0)
    assert half.perm.tolist() == [0, 2] and half.blocks is None
    ragged = causal([2, 1])
    assert ragged.keep(ragged.indices == 0).sets is None
    turned = nb.transpose()
    assert torch.equal(turned.weight, nb.weight[turned.perm])
    assert torch.equal(turned.distance, nb.distance[turned.perm])


@pytest.mark.parametrize(
    ("given", "blocks", "sets"),
    [
        (bipartite([3, 3], [2, 2]), (2, 2, 3), Sets((2, 2), (3, 3))),
        (bipartite([3, 0, 1], [2, 4, 0]), None, Sets((2, 4, 0), (3, 0, 1))),
        (causal([3, 2]), None, None),  # a source's targets are those after it
        (causal([2, 2]), None, None),
    ],
)
def test_transpose_turns_what_is_known_of_the_edges(given, blocks, sets) -> None:
    turned = given.transpose()
    assert (turned.blocks, turned.sets) == (blocks, sets)
    Neighborhood(turned.indptr, turned.indices, turned.num_src, sets=sets)


def test_replace_keeps_the_rest(nb: Neighborhood) -> None:
    bare = nb.replace(weight=None)
    assert bare.weight is None and torch.equal(bare.distance, nb.distance)
    assert torch.equal(bare.perm, nb.perm)
    assert cliques([2]).replace(weight=torch.ones(4)).blocks == (1, 2, 2)
    assert causal([2]).replace(weight=torch.ones(3)).sets == Sets((2,), (2,), causal=True)
    with pytest.raises(TypeError, match="unknown field 'indices'"):
        nb.replace(indices=nb.indices)
    with pytest.raises(ValueError, match=r"weight: shape \(2,\)"):
        nb.replace(weight=torch.ones(2))
    with pytest.raises(TypeError, match=r"distance: dtype torch\.int64"):
        nb.replace(distance=torch.ones(5, dtype=torch.int64))


def test_dense_adds_duplicates_and_passes_the_gradient_of_weights(nb: Neighborhood) -> None:
    expected = [[0, 3, 5, 0], [0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 5]]
    assert nb.to_dense().tolist() == expected
    counts = [[0, 1, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert nb.replace(weight=None).to_dense().tolist() == counts
    weight = WEIGHT.double().requires_grad_()
    upstream = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    nb = Neighborhood.from_edge_index(EDGES, 4, weight=weight)
    (nb.to_dense() * upstream).sum().backward()
    assert torch.equal(weight.grad, upstream[EDGES[1], EDGES[0]])


def test_ids_of_32_bits(nb: Neighborhood) -> None:
    narrow = nb.to_int32()
    back, turned, some = nb.transpose(), narrow.transpose(), torch.tensor([2, 0])
    assert turned.perm is not None and back.perm is not None
    for a, b in (
        (narrow.indices, nb.indices), (narrow.perm, nb.perm),
        (turned.indices, back.indices), (turned.perm, back.perm),
    ):  # fmt: skip
        assert a.dtype == torch.int32 and torch.equal(a.long(), b)
    for a, b in (
        (narrow.edge_index(), nb.edge_index()), (narrow.targets(), nb.targets()),
        (turned.indptr, back.indptr), (turned.edge_index(), back.edge_index()),
        (turned.weight, back.weight), (turned.distance, back.distance),
        (narrow.to_dense(), nb.to_dense()),
        (narrow.rows(some).edge_index(), nb.rows(some).edge_index()),
    ):  # fmt: skip
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert narrow.to_int32() is narrow and narrow.replace(weight=None).indices.dtype == torch.int32
    given = Neighborhood(nb.indptr, nb.indices.int(), perm=nb.perm)
    assert given.indices.dtype == given.transpose().indices.dtype == torch.int32
    assert cliques([2]).to_int32().blocks == (1, 2, 2)


@pytest.mark.parametrize("count", [2**31, 2**40])
def test_ids_of_32_bits_are_refused_where_they_do_not_fit(count: int) -> None:
    none = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"indices: {count} nodes or edges, expected fewer"):
        Neighborhood(none, none[:0], num_src=count).to_int32()
    with pytest.raises(ValueError, match=f"indices: {count} nodes or edges, expected fewer"):
        Neighborhood(none, none[:0].int(), num_src=count)
    assert Neighborhood(none, none[:0], num_src=2**31 - 1).to_int32().num_src == 2**31 - 1


def test_to_moves_every_part(nb: Neighborhood) -> None:
    assert nb.to("cpu") is nb
    moved = nb.to("meta")
    for name in ("indptr", "indices", "weight", "distance", "perm"):
        assert getattr(moved, name).device.type == "meta"
    assert (moved.num_src, moved.num_dst, moved.num_edges) == (4, 4, 5)
    assert cliques([2]).to("meta").blocks == (1, 2, 2)
    ragged = cliques([2, 1])
    assert ragged.groups()[0].targets.device.type == "cpu"
    assert ragged.to("meta").sets == ragged.sets == Sets((2, 1), (2, 1))
    assert ragged.to("meta").groups()[0].targets.device.type == "meta"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What is sent from pinned memory to a pretended device, whose memory is the main one."""
    sent: list[Tensor] = []
    pinned = set[int]()
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: pinned.add(id(self)) or self)
    move, make = Tensor.to, torch.empty

    def to(self: Tensor, device: Any, **options: Any) -> Tensor:
        if str(device) == "cuda:0":
            assert options == {"non_blocking": not self.requires_grad}
            assert (id(self) in pinned) != self.requires_grad  # pinned copies have no gradient
            sent.append(self)
            return self.clone()
        return move(self, device, **options)

    def empty(*sizes: int, device: Any) -> Any:
        return SimpleNamespace(device=torch.device("cuda:0")) if device else make(*sizes)

    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr("graphtheory.graph.neighborhood.torch.empty", empty)
    return sent


@pytest.mark.parametrize("turned", [False, True])
def test_nothing_waits_for_a_gpu_to_which_all_parts_go(nb, device, turned, monkeypatch) -> None:
    if turned:
        nb.transpose()
    there = nb.to("cuda")
    assert len(device) == (8 if turned else 5)
    for name in ("indptr", "indices", "weight", "distance", "perm"):
        assert torch.equal(getattr(there, name), getattr(nb, name)), name
    by_source = there.transpose()
    for name in ("indptr", "indices", "weight", "distance", "perm"):
        assert torch.equal(getattr(by_source, name), getattr(nb.transpose(), name)), name
    monkeypatch.setattr(extent, "_compute", None)
    assert extent(there.indptr) == [5, 3] and extent(by_source.indptr) == [5, 2]
    learned = nb.replace(weight=WEIGHT.clone().requires_grad_())
    assert learned.to("cuda").weight.requires_grad


@pytest.mark.parametrize("turned", [False, True])
def test_a_traced_graph_is_moved_without_a_look_at_it(turned: bool) -> None:
    with FakeTensorMode():
        ids = torch.zeros(2, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
        nb = Neighborhood(*ids, weight=torch.ones(4), validate=False)
        if turned:
            nb.transpose()
        there = nb.to("cuda")
        assert there.weight.device.type == there.device.type == "cuda"
        assert (there._transpose is not None) == turned


def test_it_shows_its_size_and_is_of_plain_tensors(nb: Neighborhood) -> None:
    expected = "Neighborhood(num_dst=4, num_src=4, num_edges=5, weight, distance)"
    assert repr(nb) == expected
    assert repr(cliques([2])) == "Neighborhood(num_dst=2, num_src=2, num_edges=4, blocks)"
    assert repr(causal([2])) == "Neighborhood(num_dst=2, num_src=2, num_edges=3, sets)"
    assert Neighborhood.from_edge_index(EDGES).num_dst == 4
    nothing = Neighborhood.from_edge_index(EDGES[:, :0])
    assert (nothing.num_src, nothing.num_dst, nothing.indptr.tolist()) == (0, 0, [0])
    assert nothing.to_dense().shape == (0, 0)
    isolated = Neighborhood.from_edge_index(EDGES[:, :0], 3)
    assert isolated.indptr.tolist() == [0, 0, 0, 0]
    nb = Neighborhood.from_edge_index(EdgeIndex(EDGES, sparse_size=(4, 4)), 4)
    assert type(nb.indices) is type(nb.indptr) is Tensor
    assert torch.equal(nb.edge_index(), EDGES[:, nb.perm])


def cannot_be_changed(nb: Neighborhood) -> None:
    for name in ("weight", "distance"):
        with pytest.raises(AttributeError, match=rf"{name}: .* replace\({name}=...\) makes a"):
            setattr(nb, name, None)
    for name in ("indptr", "indices", "num_src", "perm", "sets", "blocks", "_transpose", "other"):
        with pytest.raises(AttributeError, match=f"{name}: .* cannot be changed; make a new one"):
            setattr(nb, name, None)
    with pytest.raises(AttributeError, match=r"weight: .* cannot be changed"):
        del nb.weight


def through_workers(nb: Neighborhood) -> Neighborhood:
    loader = DataLoader([nb], batch_size=None, num_workers=1)
    return next(iter(loader))


def through_pickle(nb: Neighborhood) -> Neighborhood:
    return pickle.loads(pickle.dumps(nb))


@pytest.mark.parametrize(
    "copied", [through_pickle, copy.copy, copy.deepcopy, through_workers], ids=lambda f: f.__name__
)
def test_a_copy_is_the_same_and_as_immutable(nb, copied) -> None:
    cannot_be_changed(nb)
    nb.transpose()
    assert copied(causal([2, 1])).sets == causal([2, 1]).sets
    again = copied(nb)
    assert torch.equal(again.to_dense(), nb.to_dense())
    assert torch.equal(again.transpose().perm, nb.transpose().perm)
    cannot_be_changed(again)
    cannot_be_changed(again.replace(weight=None))


def test_what_inference_caches_serves_training(nb: Neighborhood) -> None:
    with torch.inference_mode():
        kept = [nb.targets(), nb.transpose().indptr]
    assert not any(t.is_inference() for t in kept) and nb.targets() is kept[0]
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=3)
    value = torch.ones(3, 1, 2, requires_grad=True)
    with torch.inference_mode():
        nb.targets()
        nb.transpose()
    weights = torch.ones(3, 1, requires_grad=True)
    aggregate(weights, value, nb).sum().backward()
    assert value.grad is not None and value.grad[:, 0, 0].tolist() == [1, 2, 0]
    assert not nb.targets().is_inference()


def test_compiled_code_reads_makes_and_fills_one() -> None:
    def degrees(nb: Neighborhood, edges: Tensor) -> Tensor:
        made = Neighborhood.from_edge_index(edges, 4).replace(weight=edges[0] + 0.5)
        blocks = nb.blocks
        assert blocks is not None and made.weight is not None
        return nb.targets().sum() * blocks[1] + made.targets() * made.weight + made.degree()[0]

    nb = cliques([2, 2])
    found = torch.compile(degrees, fullgraph=True, backend="aot_eager")(nb, EDGES)
    cannot_be_changed(nb)
    assert torch.equal(nb.targets(), cliques([2, 2]).targets())
    assert torch.equal(found, degrees(cliques([2, 2]), EDGES))


@pytest.mark.parametrize(("args", "options", "error", "words"), [
    (([[0], [1]],), {}, TypeError, "edge_index: got list"),
    ((EDGES.double(),), {}, TypeError, r"edge_index: dtype torch\.float64, expected int64"),
    ((EDGES.bool(),), {}, TypeError, r"edge_index: dtype torch\.bool"),
    ((EDGES.T,), {}, ValueError, r"edge_index: shape \(5, 2\).*transpose it\?"),
    ((EDGES.T[:, :1],), {}, ValueError, r"shape \(5, 1\), expected \[2, num_edges\]$"),
    ((EDGES.T.repeat(1, 2),), {}, ValueError, r"shape \(5, 4\), expected \[2, num_edges\]$"),
    ((EDGES[0],), {}, ValueError, r"edge_index: shape \(5,\), expected \[2, num_edges\]"),
    ((EDGES, 3), {}, IndexError, r"edge_index\[0\]: entry 4 is 3, expected .* 0\.\.2"),
    ((EDGES - 1, 4), {}, IndexError, r"edge_index\[0\]: entry 1 is -1"),
    ((EDGES,), {"num_src": 4, "num_dst": 3}, IndexError,
     r"edge_index\[1\]: entry 4 is 3, expected a node id in 0\.\.2"),
    ((EDGES, 4), {"num_src": 4}, ValueError, "give either num_nodes or"),
    ((EDGES,), {"num_src": 4}, ValueError, "num_dst: not given"),
    ((EDGES,), {"num_dst": 4}, ValueError, "num_src: not given"),
    ((EDGES[:, :0], -1), {}, ValueError, "got -1, expected 0 or more"),
    ((EDGES,), {"weight": WEIGHT[:4]}, ValueError, r"weight: shape \(4,\).*\[5\]"),
    ((EDGES,), {"weight": WEIGHT[:, None]}, ValueError, r"weight: shape \(5, 1\)"),
    ((EDGES,), {"weight": EDGES[0]}, TypeError, r"weight: dtype torch\.int64"),
])  # fmt: skip
def test_edge_lists_that_are_refused(args, options, error, words) -> None:
    with pytest.raises(error, match=words):
        Neighborhood.from_edge_index(*args, **options)


INDPTR, INDICES = torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1])


@pytest.mark.parametrize(("indptr", "indices", "options", "error", "words"), [
    (INDPTR.int(), INDICES, {}, TypeError, r"indptr: torch\.int32 of shape \(3,\)"),
    (INDPTR, INDICES.float(), {}, TypeError, r"indices: torch\.float32 .* int64 or int32 of"),
    (INDPTR[None], INDICES, {}, TypeError, r"indptr: .* of shape \(1, 3\)"),
    (INDPTR[:0], INDICES, {}, ValueError, "indptr: empty"),
    (INDPTR + 1, INDICES, {}, ValueError, "indptr: runs from 1 to 4, expected 0 to 3"),
    (INDPTR[:2], INDICES, {}, ValueError, "indptr: runs from 0 to 1, expected 0 to 3"),
    (torch.tensor([0, 4, 3]), INDICES, {}, ValueError, "without decreasing"),
    (INDPTR, INDICES + 1, {}, IndexError, r"indices: entry 0 is 2, expected .* 0\.\.1"),
    (INDPTR, INDICES - 1, {}, IndexError, r"indices: entry 1 is -1"),
    (INDPTR, INDICES, {"num_src": 1}, IndexError, r"indices: entry 0 is 1.*1 nodes"),
    (INDPTR, INDICES, {"weight": torch.ones(2)}, ValueError, r"weight: shape \(2,\)"),
    (INDPTR, INDICES, {"distance": torch.ones(3)}, TypeError, "expected uint8 hops"),
    (INDPTR, INDICES, {"perm": INDICES[:1]}, ValueError, r"perm: shape \(1,\)"),
    (INDPTR, INDICES, {"perm": INDICES / 2}, TypeError, "perm: got torch.float32, expected int"),
    (INDPTR, INDICES, {"perm": [1, 0, 2]}, TypeError, "perm: got list, expected int64 or int32"),
    (INDPTR, INDICES, {"perm": INDICES - 1}, IndexError, "perm: smallest entry is -1, exp.* 0"),
    (INDPTR, INDICES, {"sets": Sets((3,), (2,))}, ValueError, "3 targets and 2 sources"),
    (torch.tensor([0, 1, 4]), torch.tensor([0, 1, 0, 1]), {"sets": Sets((2,), (2,))}, ValueError,
     "not those of complete sets"),
    (INDPTR, INDICES, {"sets": (2, 2)}, TypeError, "sets: got tuple, expected graph.Sets"),
    (INDPTR, INDICES, {"sets": Sets((2,), (3,))}, ValueError, "sets: .* 3 sources, exp.* 2"),
    (INDPTR, INDICES, {"sets": Sets((2,), (2,))}, ValueError, "not those of complete sets"),
    (INDPTR, INDICES, {"sets": Sets((2,), (2,), True)}, ValueError, "not those of causal sets"),
])  # fmt: skip
def test_row_pointers_that_are_refused(indptr, indices, options, error, words) -> None:
    with pytest.raises(error, match=words):
        Neighborhood(indptr, indices, **options)


def test_keep_refuses_what_is_no_choice_of_edges(nb: Neighborhood) -> None:
    for edges in (torch.ones(4, dtype=torch.bool), torch.ones(5)):
        with pytest.raises(ValueError, match=r"edges: .* expected bool \[5\]"):
            nb.keep(edges)


def test_it_is_moved_pinned_and_cloned_as_a_part_of_data(nb: Neighborhood) -> None:
    moved = Data(neighborhood=nb).to("meta", non_blocking=True).neighborhood
    assert moved.device.type == "meta" and Data(neighborhood=nb).pin_memory().neighborhood is nb
    cloned = Data(neighborhood=nb).clone().neighborhood
    assert torch.equal(cloned.to_dense(), nb.to_dense())
    cannot_be_changed(cloned)


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr", "reference"])
def test_what_inference_makes_serves_training(backend: str) -> None:
    with torch.inference_mode():
        edges = torch.tensor([[0, 1, 2], [1, 2, 2]])
        made = Neighborhood.from_edge_index(edges, 3, weight=torch.ones(3))
        made = [made, AddSelf()(made), Neighborhood(torch.tensor([0, 1, 1]), edges[0, :1])]
    for nb in made:
        x = torch.ones(nb.num_src, 1, 1, requires_grad=True)
        ops.attention(x, x, x, nb, backend=backend).sum().backward()
        ops.aggregate(None, x, nb, backend=backend).sum().backward()
        assert x.grad is not None and x.grad.isfinite().all()


def test_what_was_handed_out_or_made_is_compared_and_a_copy_has_states_of_its_own(monkeypatch):
    x = torch.randn(3, 1, 2, requires_grad=True)
    ids = torch.tensor([[0, 1], [1, 2]])
    for change in (lambda perm: perm.flip(0), lambda perm: perm + 1):
        nb = Neighborhood.from_edge_index(ids, 3)
        nb.transpose().perm.copy_(change(nb.transpose().perm))
        with pytest.raises(ValueError, match=r"transpose: its perm was changed in place"):
            aggregate(torch.ones(2, 1), x, nb)
    sets = cliques([2, 2])
    sets.indices.numpy()[:] = 0
    for changed in (sets, sets.replace(weight=torch.ones(8))):
        with pytest.raises(ValueError, match="changed in place"):
            ops.attention(*[torch.randn(4, 1, 2)] * 3, changed, backend="blocks")
    monkeypatch.setattr("graphtheory.graph.neighborhood.state_of", lambda *t: tuple(map(id, t)))
    nb = Neighborhood.from_edge_index(ids, 3)
    nb.check_unchanged()
    for other in (copy.deepcopy(nb), pickle.loads(pickle.dumps(nb))):
        assert other.check_unchanged() != nb.check_unchanged()  # as addresses are on a GPU


def test_a_copy_of_changed_ids_is_refused_as_they_are() -> None:
    nb = Neighborhood(torch.tensor([0, 1, 2]), torch.tensor([0, 0]))
    nb.transpose()
    nb.indices[1] = 1
    for copied in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(ValueError, match="neighborhood: its indptr or indices were changed"):
            copied(nb)


@pytest.mark.parametrize("count", [2.5, -2])
def test_a_number_of_sources_is_a_whole_number(count: Any) -> None:
    with pytest.raises(ValueError, match=f"num_src: got {count}, expected a whole number"):
        Neighborhood(torch.zeros(2).long(), torch.zeros(0).long(), count)
