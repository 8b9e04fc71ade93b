import gc
import weakref

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from graphtheory import Neighborhood
from graphtheory.graph import csr
from graphtheory.nn import GATConv, TransformerConv
from graphtheory.nn.conv import adjacency
from graphtheory.nn.conv.adjacency import _sorted, adjacency_of, edge_list, stored_values

pytestmark = pytest.mark.usefixtures("short_collections")


@pytest.fixture
def edge_index(make_graph):
    return make_graph(0, 6, 6, 20).edge_index


def rows(adj):
    """Targets and sources with the given order of the edges put back."""
    return adj.to_edge_order(adj.neighborhood.edge_index().T).T


@pytest.mark.parametrize("form", ["edge_index", "EdgeIndex", "csr", "coo", "csc", "SparseTensor"])
def test_the_given_order_comes_back(make_graph, sparse_forms, form) -> None:
    forms = sparse_forms(make_graph(1, 6, 4, 30).simple(), 6, 4)
    if form not in forms:
        pytest.skip("needs torch-sparse")
    adj = adjacency_of(forms[form], 6, 4)
    assert torch.equal(rows(adj), edge_list(forms[form]))
    values = torch.arange(adj.neighborhood.num_edges)
    assert torch.equal(adj.to_edge_order(adj.to_csr_order(values)), values)


@pytest.mark.parametrize("form", ["edge_index", "csr"])
@pytest.mark.parametrize("more", [-1, 1])
def test_values_of_other_edges_are_refused(make_graph, sparse_forms, form, more) -> None:
    adj = adjacency_of(sparse_forms(make_graph(1, 6, 4, 30).simple(), 6, 4)[form], 6, 4)
    edges = adj.neighborhood.num_edges
    wanted = (
        rf"per_edge: shape \({edges + more}, 2\), expected one row per edge \[{edges}, \.\.\.\]"
    )
    with pytest.raises(ValueError, match=wanted):
        adj.to_csr_order(torch.zeros(edges + more, 2))


def test_self_loops_come_last_given_ones_are_marked_and_ids_keep_their_width(edge_index) -> None:
    adj = adjacency_of(edge_index, 6, 6, add_self_loops=True)
    loops = torch.arange(6).expand(2, 6)
    assert torch.equal(adj.edges, torch.cat([edge_index, loops], 1))
    assert torch.equal(rows(adj), adj.edges)
    marked = adj.to_edge_order(adj.replaced)
    assert torch.equal(marked[:20], edge_index[0] == edge_index[1]) and not marked[20:].any()
    without = edge_index[:, edge_index[0] != edge_index[1]]
    assert adjacency_of(without, 6, 6, add_self_loops=True).replaced is None
    nb = Neighborhood.from_edge_index(edge_index, 6)
    wide, narrow = (adjacency_of(form, 6, 6, add_self_loops=True) for form in (nb, nb.to_int32()))
    assert narrow.neighborhood.transpose().indices.dtype == torch.int32
    assert torch.equal(rows(narrow), rows(wide))


def test_other_flow_exchanges_the_ends_and_sources_know_their_transpose(edge_index) -> None:
    adj = adjacency_of(edge_index, 6, 6, flow="target_to_source")
    assert torch.equal(rows(adj), edge_index.flip(0))
    edges = adjacency_of(edge_index, 6, 6).edges_as_sources()
    known = edges.transpose()
    plain = Neighborhood(edges.indptr, edges.indices, edges.num_src).transpose()
    for name in ("indptr", "indices", "perm"):
        assert torch.equal(getattr(known, name), getattr(plain, name))


@pytest.mark.parametrize("options", [{}, {"add_self_loops": True}, {"flow": "target_to_source"}])
def test_the_same_tensor_is_not_sorted_again(edge_index, options) -> None:
    first = adjacency_of(edge_index, 6, 6, **options)
    assert adjacency_of(edge_index, 6, 6, **options) is first
    assert adjacency_of(edge_index, 7, 6, **options) is not first
    assert adjacency_of(edge_index.clone(), 6, 6, **options) is not first


@pytest.mark.parametrize("options", [{}, {"add_self_loops": True}])
@pytest.mark.parametrize("change", [
    lambda e: e.fill_(2),
    lambda e: e[0].copy_(e[1].roll(3)),
    lambda e: e.t_().resize_(2, 20),
    lambda e: e.set_(torch.ones(2, 3, dtype=torch.long)),
    lambda e: setattr(e, "data", torch.zeros(2, 5, dtype=torch.long)),
])  # fmt: skip
def test_a_tensor_changed_in_place_is_sorted_again(edge_index, change, options) -> None:
    adjacency_of(edge_index, 6, 6, **options)
    change(edge_index)
    wanted = adjacency_of(edge_index.clone(), 6, 6, **options)
    assert torch.equal(rows(adjacency_of(edge_index, 6, 6, **options)), rows(wanted))


@pytest.mark.parametrize("form", ["edge_index", "EdgeIndex", "csr", "coo", "csc", "SparseTensor"])
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_what_was_found_dies_with_the_graph(make_graph, sparse_forms, form, add_self_loops) -> None:
    forms = sparse_forms(make_graph(2, 6, 6, 20).simple(), 6, 6)
    if form not in forms:
        pytest.skip("needs torch-sparse")
    given = forms[form]
    del forms
    adj = adjacency_of(given, 6, 6, add_self_loops=add_self_loops)
    assert adjacency_of(given, 6, 6, add_self_loops=add_self_loops) is adj
    found = weakref.ref(adj)
    del given, adj
    gc.collect()
    assert found() is None


def test_a_neighborhood_dies_with_what_was_found(edge_index) -> None:
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    adj = adjacency_of(nb, 6, 6, add_self_loops=True)
    assert adjacency_of(nb, 6, 6, add_self_loops=True) is adj
    assert adjacency_of(nb, 6, 6).neighborhood is nb
    found = weakref.ref(adj)
    del nb, adj
    gc.collect()
    assert found() is None


def test_tensors_that_do_not_tell_of_changes_are_sorted_every_time() -> None:
    with torch.inference_mode():
        edge_index = torch.tensor([[0, 1], [1, 2]])
        first = adjacency_of(edge_index, 3, 3)
        edge_index[0, 0] = 2
        assert torch.equal(rows(adjacency_of(edge_index, 3, 3)), edge_index)
        assert not torch.equal(rows(first), edge_index)


@pytest.mark.parametrize(("given", "error", "message"), [
    ([[0], [1]], TypeError, "edge_index: got list, expected a Neighborhood or one of"),
    (None, TypeError, "edge_index: got NoneType"),
    (torch.rand(2, 3), TypeError, "edge_index: dtype torch.float32, expected int64 or int32"),
    (torch.zeros(3, 2).long(), ValueError, "edge_index: shape .3, 2., .* transpose it"),
    (torch.tensor([[0], [6]]), IndexError, r"edge_index\[1\]: entry 0 is 6, .* in 0..5"),
    (torch.eye(5).to_sparse(), ValueError, "edge_index: has 5 sources, expected 6 as x has"),
])  # fmt: skip
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_errors_name_the_argument(given, error, message, add_self_loops) -> None:
    with pytest.raises(error, match=message):
        adjacency_of(given, 6, 6, add_self_loops=add_self_loops)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GATConv(5, 4, heads=2), GATConv(8, 3)

    def forward(self, x, edges):
        return self.last(self.first(x, edges).relu(), edges)


def gradients(model, x, edges):
    out = model(x, edges)
    return [out, *torch.autograd.grad(out.square().sum(), [x, *model.parameters()])]


@pytest.fixture
def sorts(monkeypatch) -> list[int]:
    """A 1 for each sorting of edges."""
    found: list[int] = []
    real = csr._stable_order
    monkeypatch.setattr(csr, "_stable_order", lambda *args: found.append(1) or real(*args))
    return found


@pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning")  # in torch
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_layers_sort_edges_once(edge_index, backend, sorts) -> None:
    model, x = TwoLayers(), torch.randn(6, 5, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for edges in (edge_index, edge_index.flip(0).contiguous()):
        for _ in range(3):
            found = gradients(compiled, x, edges)
        assert len(sorts) == 2  # by target and by source
        torch.testing.assert_close(found, gradients(model, x, edges))
        assert len(sorts) == 2  # which the eager call knows, too
        sorts.clear()
        edges[0, 0] = (edges[0, 0] + 1) % 6  # is noticed, as it is by the eager call
        torch.testing.assert_close(gradients(compiled, x, edges), gradients(model, x, edges))
        assert len(sorts) == 2
        sorts.clear()


def test_a_compiled_graph_holds_no_sort(edge_index) -> None:
    graphs: list[str] = []

    def keep(module, inputs):
        graphs.append(module.print_readable(print_output=False))
        return make_boxed_func(module)

    torch._dynamo.reset()
    compiled = torch.compile(TwoLayers(), fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    compiled(torch.randn(6, 5, requires_grad=True), edge_index).sum().backward()
    (forward, backward) = graphs
    assert forward.count("graphtheory.adjacency") in (1, 2)
    for name in ("csr_from_edges", "csr_transpose", "aten.sort", "aten.bincount"):
        assert name not in forward + backward, name


def test_compiled_code_sorts_the_rows_of_a_neighborhood_once(edge_index, sorts) -> None:
    nb, layer = Neighborhood.from_edge_index(edge_index, 6), TransformerConv(5, 4)
    sorts.clear()
    x = torch.randn(6, 5, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = [gradients(compiled, x, nb) for _ in range(3)]
    assert len(sorts) == 1
    for one in found:
        torch.testing.assert_close(one, gradients(layer, x, nb))
    with pytest.raises(IndexError, match=r"edge_index\[0\]: entry 3 is 6, expected .* 0\.\.5"):
        edge_index[0, 3] = 6
        torch.compile(TwoLayers(), backend="aot_eager")(x, edge_index)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_the_look_up_is_registered_as_torch_demands(edge_index, loops, kind) -> None:
    torch.library.opcheck(_sorted, (edge_index.to(kind), 6, 6, 6 * loops, not loops))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_on_a_gpu_compiled_layers_are_the_eager_ones(edge_index, mode) -> None:
    model, x = TwoLayers().cuda(), torch.randn(6, 5, device="cuda", requires_grad=True)
    edges = edge_index.cuda()
    compiled = torch.compile(model, mode=mode)
    for _ in range(4):
        found = [t.clone() for t in gradients(compiled, x, edges)]
    torch.testing.assert_close(found, gradients(model, x, edges))


def test_a_matrix_that_is_wrongly_marked_as_coalesced_is_merged() -> None:
    edges = torch.tensor([[3, 0, 5, 1, 0, 3, 0], [1, 2, 0, 4, 1, 1, 2]])
    given = torch.sparse_coo_tensor(edges, torch.ones(7), (6, 6), check_invariants=True)
    wanted = adjacency_of(given.clone(), 6, 6).neighborhood
    given._coalesced_(True)  # as PyG's layers do
    found = adjacency_of(given, 6, 6).neighborhood
    assert found.num_edges == 5 and torch.equal(found.edge_index(), wanted.edge_index())
    assert stored_values(given).tolist() == [1, 2, 1, 2, 1]


def test_a_matrix_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given, looked = torch.eye(3).to_sparse_coo().coalesce(), []
    real = adjacency.merged
    monkeypatch.setattr(adjacency, "merged", lambda a: looked.append(a) or real(a))
    for _ in range(3):
        assert stored_values(given).tolist() == [1, 1, 1]
    assert len(looked) == 1
