"""What PyG's own tests check of layers that `accelerate` swaps, where no other test of ours does.

Each layer is compared with PyG's before the swap. docs/pyg_tests.md is the table of both.
"""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_csc_tensor

from graphtheory.integrations.pyg import accelerate
from graphtheory.nn.conv.pna_conv import PNAConv
from tests.integrations.conftest import swapped

TWO = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])  # sorted by target node, as an EdgeIndex needs
STAR = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # torch says that they are young


def assert_same(found, wanted) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def forms(edges, size, value=None, kinds=("EdgeIndex", "csc", "SparseTensor")):
    """A graph in each of these forms; the values are in all but the first."""
    if "EdgeIndex" in kinds and value is None:
        yield EdgeIndex(edges, sparse_size=size, sort_order="col")
    if "csc" in kinds:
        yield to_torch_csc_tensor(edges, value, size=size).t()
    if "SparseTensor" in kinds and WITH_TORCH_SPARSE:
        yield SparseTensor.from_edge_index(edges, value, size).t()


def mlp(width=16):
    return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32))


ONE_SET = {
    "SAGEConv": lambda: pyg.SAGEConv(16, 32),
    "SAGEConv-project": lambda: pyg.SAGEConv(16, 32, project=True, aggr="sum"),
    "GraphConv": lambda: pyg.GraphConv(16, 32),
    "GINConv": lambda: pyg.GINConv(mlp(), train_eps=True),
    "SGConv": lambda: pyg.SGConv(16, 32, K=10),
    "APPNP": lambda: pyg.APPNP(K=3, alpha=0.1),
}


# PyG counts a given self-loop twice in a sparse matrix: STAR has none.
NORMALIZED = ("SGConv", "APPNP")


@pytest.mark.parametrize("name", ONE_SET)
def test_every_form_of_the_graph(name) -> None:
    before = ONE_SET[name]()
    after, x = swapped(before), torch.randn(4, 16)
    if name in NORMALIZED:
        edges, kinds = STAR, ("csc", "SparseTensor")
    else:
        edges, kinds = TWO, ("EdgeIndex", "csc", "SparseTensor")
        assert_same(after(x, edges, size=(4, 4)), before(x, edges))
    wanted = before(x, edges)
    assert_same(after(x, edges), wanted)
    for graph in forms(edges, (4, 4), kinds=kinds):
        assert_same(after(x, graph), wanted)


@pytest.mark.parametrize("name", ["GraphConv", "SGConv"])
def test_weights_of_edges_in_every_form(name) -> None:
    before, edges = ONE_SET[name](), STAR if name in NORMALIZED else TWO
    weight = torch.rand(edges.size(1))
    after, x = swapped(before), torch.randn(4, 16)
    wanted = before(x, edges, weight)
    assert_same(after(x, edges, weight), wanted)
    assert not torch.allclose(after(x, edges), wanted)
    for graph in forms(edges, (4, 4), weight):
        assert_same(after(x, graph), wanted)


PAIRS = {
    "SAGEConv": lambda: pyg.SAGEConv((16, 8), 32),
    "SAGEConv-project": lambda: pyg.SAGEConv((16, 8), 32, project=True),
    "GraphConv": lambda: pyg.GraphConv((16, 8), 32),
    "GINConv": lambda: pyg.GINConv(mlp()),
    "GINEConv": lambda: pyg.GINEConv(mlp(), train_eps=True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_sets_of_nodes_in_every_form(name) -> None:
    """With features of target nodes and without."""
    before, given = PAIRS[name](), torch.randn(4, 16)
    after, x_src, x_dst = swapped(before), torch.randn(4, 16), torch.randn(2, 8)
    x_dst = torch.randn(2, 16) if name.startswith("GIN") else x_dst
    more = (given,) if name == "GINEConv" else ()
    for x in ((x_src, x_dst), (x_src, None)):
        wanted = before(x, TWO, *more, size=(4, 2))
        assert wanted.shape == (2, 32)
        assert_same(after(x, TWO, *more, size=(4, 2)), wanted)
        if more:  # features of edges are the values of a SparseTensor
            found = [after(x, graph) for graph in forms(TWO, (4, 2), given, ("SparseTensor",))]
        else:
            found = [after(x, graph) for graph in forms(TWO, (4, 2))]
        for one in found:
            assert_same(one, wanted)


def chebyshev():
    x, weight, edges = torch.randn(4, 16), torch.rand(4), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    batch, most = torch.tensor([0, 0, 1, 1]), torch.tensor([2.0, 3.0])
    more = (), (weight,), (weight, None, 3.0), (weight, batch), (weight, batch, most)
    return [(x, edges, *given) for given in more]


WIDE, OF_STAR, OF_TWO = torch.randn(4, 16), torch.randn(6, 16), torch.randn(4, 8)
STATIC = torch.randn(3, 4, 16)  # features of several graphs
CALLS = [
    (lambda: pyg.GINEConv(mlp(), train_eps=True), [(STATIC, STAR, OF_STAR)]),
    (lambda: pyg.GINConv(mlp(), train_eps=True), [(STATIC, STAR)]),
    (lambda: pyg.GINEConv(mlp(), train_eps=True, edge_dim=8), [(WIDE, TWO, OF_TWO)]),
    (lambda: pyg.GINEConv(nn.Linear(16, 32), train_eps=True, edge_dim=8), [(WIDE, TWO, OF_TWO)]),
    (lambda: pyg.ChebConv(16, 32, K=3), chebyshev()),
]


@pytest.mark.parametrize(("make", "calls"), CALLS)
def test_other_arguments(make, calls) -> None:
    """Static graphs, projected features of edges, Chebyshev's weights, scales and graphs."""
    before = make()
    after = swapped(before)
    for given in calls:
        found, wanted = after(*given), before(*given)
        assert found.shape[:-1] == given[0].shape[:-1]
        assert_same(found, wanted)


def test_cached_features_and_edges() -> None:
    x = torch.randn(4, 16)
    for before in (pyg.SGConv(16, 32, K=10, cached=True), pyg.APPNP(K=3, alpha=0.1, cached=True)):
        after = swapped(before)
        wanted = before(x, STAR)
        for _ in range(2):  # what the first call caches serves the second
            assert_same(after(x, STAR), wanted)
            for graph in forms(STAR, (4, 4), kinds=("csc", "SparseTensor")):
                assert_same(after(x, graph), wanted)
        name = "_cached_x" if hasattr(after, "_cached_x") else "_cached_edge_index"
        assert getattr(after, name) is not None
        after.reset_parameters()
        assert getattr(after, name) is None


def test_appnp_drops_every_edge() -> None:
    after, x = swapped(pyg.APPNP(K=2, alpha=0.1, dropout=1.0)), torch.randn(4, 16)
    for graph in (STAR, *forms(STAR, (4, 4), kinds=("csc", "SparseTensor"))):
        assert_same(after(x, graph), 0.1 * x)


def test_chebyshev_of_a_batch_is_that_of_its_graphs() -> None:
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    graphs = [
        Data(x=torch.randn(n, 8), edge_index=edges, edge_weight=torch.rand(edges.size(1)))
        for n, edges in ((4, path), (3, path[:, :4]))
    ]
    after, batch = swapped(pyg.ChebConv(8, 16, K=2)), Batch.from_data_list(graphs)
    found = after(batch.x, batch.edge_index, batch.edge_weight, batch.batch)
    apart = [after(g.x, g.edge_index, g.edge_weight) for g in graphs]
    assert_same(found, torch.cat(apart))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch, of TorchScript itself
@pytest.mark.parametrize("name", [*ONE_SET, "ChebConv"])
def test_torchscript(name) -> None:
    before = pyg.ChebConv(16, 32, K=3) if name == "ChebConv" else ONE_SET[name]()
    after, x = swapped(before), torch.randn(4, 16)
    assert_same(torch.jit.script(after)(x, TWO), before(x, TWO))


DEGREES = torch.tensor([0, 3, 0, 1])
OTHERS = {
    "ChebConv": lambda: pyg.ChebConv(16, 32, K=3),
    "GPSConv": lambda: pyg.GPSConv(16, pyg.SAGEConv(16, 16), heads=4),
    "PNAConv": lambda: pyg.PNAConv(16, 32, ["mean"], ["identity"], DEGREES, edge_dim=3, towers=4),
}


@pytest.mark.parametrize("make", [ONE_SET, PAIRS, OTHERS], ids=["one set", "pairs", "others"])
def test_representation(make) -> None:
    for layer in make.values():
        before = layer()
        assert str(swapped(before)) == str(before)


def test_sizes_are_read_off_the_first_input() -> None:
    layer, x = pyg.SAGEConv(-1, 32), torch.randn(4, 16)
    assert "has no weights yet" in accelerate(layer).kept[0].reason
    wanted = layer(x, TWO)
    assert_same(swapped(layer)(x, TWO), wanted)
    with pytest.raises(ValueError, match="does not support lazy"):
        pyg.SAGEConv(-1, 32, project=True)


class EdgeGraphConv(pyg.GraphConv):
    """A layer of a user, with messages of its own."""

    def message(self, x_j, edge_weight):
        return 2 * edge_weight.view(-1, 1) * x_j


MIXED = {"aggr": ["mean", "max", "sum", "softmax"]}
MIXED["aggr_kwargs"] = {"mode": "cat", "aggrs_kwargs": [{}, {}, {}, {"learn": True, "t": 1}]}
KEPT = {
    "lstm": lambda: pyg.SAGEConv(16, 32, aggr="lstm"),
    "several": lambda: pyg.SAGEConv(16, 32, **copy.deepcopy(MIXED)),
    "mlp": lambda: pyg.SAGEConv(16, 32, aggr=pyg.MLPAggregation(16, 16, 2, num_layers=1)),
    "messages of a user": lambda: EdgeGraphConv(16, 32),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_the_core_does_not_compute_stays_pygs(name) -> None:
    layer, x = KEPT[name](), torch.randn(4, 16)
    more = (torch.rand(4),) if name == "messages of a user" else ()
    wanted, kind = layer(x, TWO, *more), type(layer)
    report = accelerate(layer)
    assert not report.swapped and len(report.kept) == 1 and type(layer) is kind
    assert torch.equal(layer(x, TWO, *more), wanted)
    if name == "lstm":
        with pytest.raises(ValueError, match="'index' tensor is not sorted"):
            layer(x, torch.tensor([[0, 1, 2, 3], [1, 0, 1, 0]]))


@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv"])
def test_attention_beside_each_form_of_the_graph(name) -> None:
    before = pyg.GPSConv(16, getattr(pyg, name)(16, 16), heads=4).eval()
    after, x = swapped(before), torch.randn(4, 16)
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    for batch in (None, torch.tensor([0, 0, 1, 1])):
        for graph in (edges, *forms(edges, (4, 4), kinds=("csc", "SparseTensor"))):
            assert_same(after(x, graph, batch), before(x, edges, batch))


def test_degrees_of_a_loader_are_counted() -> None:
    """By the static method of the layer."""
    path = torch.tensor([[0, 0, 0, 1, 1, 2, 3], [1, 2, 3, 2, 0, 0, 0]])
    other = torch.tensor([[1, 1, 2, 2, 0, 3, 3], [2, 3, 3, 1, 1, 0, 2]])
    graphs = [Data(num_nodes=5, edge_index=edges) for edges in (path, other)]
    found = PNAConv.get_degree_histogram(DataLoader(graphs, batch_size=1))
    assert torch.equal(found, torch.tensor([2, 3, 4, 1]))


# HGT, HAN and RGCN --------------------------------------------------------------------------------

WIDTHS = {"author": 16, "paper": 32}
NODES = {"author": 4, "paper": 6, "university": 10}
WRITES = [("author", "writes", "paper"), ("paper", "written_by", "author")]
PATHS = [("author", "to", "author"), ("paper", "to", "paper"), ("paper", "cites", "paper")]
LAYERS = [("HGTConv", WRITES), ("HANConv", PATHS)]


def features(widths):
    return {kind: torch.randn(NODES[kind], width) for kind, width in widths.items()}


def edges_of(kinds, count=8):
    """Edges without duplicates, which a matrix would add up."""
    ends = [[torch.randint(NODES[t], (count,)) for t in (k[0], k[2])] for k in kinds]
    return {k: torch.stack(e).unique(dim=1) for k, e in zip(kinds, ends, strict=True)}


def as_matrices(edges, sparse):
    out = {}
    for kind, ends in edges.items():
        size = NODES[kind[0]], NODES[kind[2]]
        if sparse:
            out[kind] = SparseTensor.from_edge_index(ends, sparse_sizes=size).t()
        else:
            out[kind] = to_torch_csc_tensor(ends, size=size).t()
    return out


@pytest.mark.parametrize(
    "widths", [{"author": 16, "paper": 16}, WIDTHS], ids=["equal", "different"]
)
@pytest.mark.parametrize(("name", "kinds"), LAYERS, ids=["HGT", "HAN"])
def test_every_form_of_the_edges(name, kinds, widths) -> None:
    before = getattr(pyg, name)(widths, 32, (list(widths), kinds), heads=2)
    after, x, edges = swapped(before), features(widths), edges_of(kinds)
    assert str(after) == str(before)
    wanted = before(x, edges)
    assert_same(after(x, edges), wanted)
    for sparse in (False, True)[: 1 + WITH_TORCH_SPARSE]:
        assert_same(after(x, as_matrices(edges, sparse)), wanted)


@pytest.mark.parametrize(("name", "kinds"), LAYERS, ids=["HGT", "HAN"])
def test_typed_layers_read_sizes_off_the_first_input_and_leave_inputs_as_they_were(name, kinds):
    layer = getattr(pyg, name)(-1, 32, (list(WIDTHS), kinds), heads=2)
    assert "has no weights yet" in accelerate(layer).kept[0].reason
    x, edges = features(WIDTHS), edges_of(kinds)
    wanted = layer(x, edges)
    assert_same(swapped(layer)(x, edges), wanted)
    after = swapped(getattr(pyg, name)(WIDTHS, 64, (list(WIDTHS), kinds)))
    x, edges = features(WIDTHS), edges_of(kinds)
    kept = copy.deepcopy((x, edges))
    after(x, edges)
    torch.testing.assert_close((x, edges), kept, rtol=0, atol=0)


def test_kinds_of_nodes_and_edges_that_are_missing() -> None:
    """Nodes that are no targets, nodes and edges of the metadata that a batch has not."""
    employs = ("university", "employs", "author")
    widths = WIDTHS | {"university": 32}
    before = pyg.HGTConv(widths, 64, (list(widths), [*WRITES, employs]))
    after = swapped(before)
    x, edges = features(widths), edges_of([*WRITES, employs])
    found = after(x, edges)
    assert "university" not in found
    assert_same(found, before(x, edges))
    del edges[employs]
    found = after(x, edges)
    assert "university" not in found
    assert_same(found, before(x, edges))
    del x["university"], edges[WRITES[1]]
    assert_same(after(x, edges), before(x, edges))


def test_han_without_edges_of_a_kind_of_nodes_and_without_nodes() -> None:
    widths = WIDTHS | {"university": 3}
    before = pyg.HANConv(widths, 16, (list(widths), PATHS), heads=2)
    after, x, edges = swapped(before), features(widths), edges_of(PATHS)
    found = after(x, edges)
    assert found["university"] is None
    assert_same(found, before(x, edges))
    kinds = [("paper", "to", "author"), ("author", "to", "paper"), ("paper", "to", "paper")]
    x = {"author": torch.randn(6, 16), "paper": torch.empty(0, 32)}
    after = swapped(pyg.HANConv(WIDTHS, 16, (list(WIDTHS), kinds), heads=2))
    found = after(x, {kind: torch.empty(2, 0, dtype=torch.int64) for kind in kinds})
    assert found["author"].shape == (6, 16) and (found["author"] == 0).all()
    assert found["paper"].shape == (0, 16)


SOME = {"basis": (2, None), "blocks": (None, 2), "full": (None, None)}
ENDS = torch.tensor([[0, 1, 1, 2, 2, 3], [0, 0, 1, 0, 1, 1]])
TYPES = torch.tensor([0, 1, 1, 0, 0, 1])


@pytest.mark.parametrize("weights", SOME)
def test_both_relational_layers_agree(weights) -> None:
    before = pyg.RGCNConv(4, 32, 2, *SOME[weights], aggr="sum")
    fast = pyg.FastRGCNConv(4, 32, 2, *SOME[weights], aggr="sum")
    fast.load_state_dict(before.state_dict())
    x = torch.randn(4, 4)
    for given in (x, None)[: 1 if weights == "blocks" else 2]:
        wanted = before(given, ENDS, TYPES)
        assert_same(swapped(before)(given, ENDS, TYPES), wanted)
        assert_same(swapped(fast)(given, ENDS, TYPES), wanted)


@pytest.mark.parametrize("weights", SOME)
@pytest.mark.parametrize("name", ["RGCNConv", "FastRGCNConv"])
@pytest.mark.parametrize("pair", [False, True])
def test_relations_as_values_and_ids_as_features(name, weights, pair) -> None:
    """Kinds of edges in a `SparseTensor`, node ids or None in the place of features, two sets."""
    widths, targets = ((4, 16), 2) if pair else (4, 4)
    before = getattr(pyg, name)(widths, 32, 2, *SOME[weights], aggr="sum")
    after, ids = swapped(before), torch.arange(4)
    inputs = [(torch.randn(4, 4), torch.randn(2, 16)) if pair else torch.randn(4, 4)]
    if weights != "blocks":
        inputs += [(None, ids[:2]), (ids, ids[:2])] if pair else [None, ids]
    assert str(after) == str(before)
    for x in inputs:
        wanted = before(x, ENDS, TYPES)
        assert wanted.shape == (targets, 32)
        assert_same(after(x, ENDS, TYPES), wanted)
        if WITH_TORCH_SPARSE:
            matrix = SparseTensor.from_edge_index(ENDS, TYPES, (4, targets)).t()
            assert_same(after(x, matrix), wanted)
