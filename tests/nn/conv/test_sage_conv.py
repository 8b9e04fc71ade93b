"""`SAGEConv` where only the first target nodes have neighbors, as in batches of sampled ones."""

import copy

import pytest
import torch
from torch_geometric.nn import MaxAggregation
from torch_geometric.nn import conv as pyg

import graphtheory
from graphtheory.nn.conv.weighted_sums import SAGEConv

NODES, WITH_NEIGHBORS, EDGES = 40, 12, 60


@pytest.fixture
def batch():
    """Features of sources and targets, and edges to the first targets."""
    edges = torch.stack([torch.randint(NODES, (EDGES,)), torch.randint(WITH_NEIGHBORS, (EDGES,))])
    edges[1, -1] = WITH_NEIGHBORS - 1
    return torch.randn(NODES, 5), torch.randn(NODES - 3, 4), edges


def layers(*sizes, **options):
    torch.manual_seed(1)
    theirs = pyg.SAGEConv(*sizes, **options)
    ours = copy.deepcopy(theirs)
    graphtheory.accelerate(ours)
    assert type(ours) is SAGEConv
    return theirs, ours


def counted(monkeypatch):
    """The number of rows of each call of the map of the sums."""
    rows, linear = [], torch.nn.functional.linear

    def spy(x, weight, bias=None):
        if bias is not None:
            rows.append(len(x))
        return linear(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", spy)
    return rows


@pytest.mark.parametrize("aggr", ["mean", "sum", "max", "min"])
@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"project": True}, {"bias": False}])
def test_equals_pyg(batch, aggr, options):
    theirs, ours = layers((5, 4), 6, aggr=aggr, **options)
    found = []
    for layer in (theirs, ours):
        x, y = (t.clone().requires_grad_() for t in batch[:2])
        out = layer((x, y), batch[2])
        out.square().sum().backward()
        found.append([out, x.grad, y.grad, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("edges", [0, 1, EDGES])
def test_edges_against_the_flow_equal_pyg(batch, edges):
    theirs, ours = layers(5, 6, flow="target_to_source")
    edge_index = batch[2][:, :edges].flip(0)  # few of the nodes that receive have neighbors
    torch.testing.assert_close(ours(batch[0], edge_index), theirs(batch[0], edge_index))


@pytest.mark.parametrize("most", [False, True])
def test_only_rows_with_neighbors_are_mapped_unless_most_have_some(batch, monkeypatch, most):
    theirs, ours = layers((5, 4), 6)
    edges = batch[2].clone()
    edges[1, 0] = NODES - 4 if most else 0
    wanted, rows = theirs(batch[:2], edges), counted(monkeypatch)
    torch.testing.assert_close(ours(batch[:2], edges), wanted)
    assert sorted(rows) == ([NODES - 3] if most else [1, WITH_NEIGHBORS])


@pytest.mark.parametrize("edges", [torch.empty(2, 0, dtype=torch.int64), torch.tensor([[3], [0]])])
def test_few_edges_or_none(batch, edges):
    theirs, ours = layers(5, 6)
    torch.testing.assert_close(ours(batch[0], edges), theirs(batch[0], edges))


def test_sparse_matrices_and_sizes(batch):
    sparse = pytest.importorskip("torch_sparse")
    theirs, ours = layers((5, 4), 6)
    x, y, edges = batch
    adj = sparse.SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES - 3)).t()
    torch.testing.assert_close(ours((x, y), adj), theirs((x, y), edges))
    _, ours = layers((5, 4), 6)
    x, y, edges = batch
    with pytest.raises(ValueError, match="size"):
        ours((x, y), edges, size=(NODES, NODES))


@pytest.mark.filterwarnings("ignore:Sparse")  # of torch, and its matrices in PyG
def test_along_a_matrix_pyg_reduces_as_the_layer_was_made_to(batch):
    sparse = pytest.importorskip("torch_sparse")
    theirs, ours = layers((5, 4), 6, aggr="min")
    x, y, edges = batch
    adj = sparse.SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES - 3)).t()
    for layer in (theirs, ours):
        layer.aggr_module = MaxAggregation()  # whose part an edge list takes
    for given in (adj, edges, edges):
        torch.testing.assert_close(ours((x, y), given), theirs((x, y), given))


def test_second_derivatives(batch):
    _, ours = layers((5, 4), 6)
    ours = ours.double()
    x, y = (t.double().requires_grad_() for t in batch[:2])

    def run(x, y):
        return ours((x, y), batch[2]).square()

    assert torch.autograd.gradcheck(run, (x, y))
    assert torch.autograd.gradgradcheck(run, (x, y), fast_mode=True)


@pytest.mark.parametrize("register", ["full_backward", "full_backward_pre", "forward"])
def test_hooks_of_either_map_see_all_rows(batch, register):
    theirs, ours = layers((5, 4), 6)
    x, y, edges = batch
    for layer in (theirs, ours):
        layer.seen = []
        for linear in (layer.lin_l, layer.lin_r):
            add = getattr(linear, f"register_{register}_hook")
            add(lambda _, t, *rest, of=layer: of.seen.append(t[0].shape))
        layer((x.clone().requires_grad_(), y.clone().requires_grad_()), edges).sum().backward()
    assert ours.seen == theirs.seen


def test_a_static_graph_is_pygs(batch):
    theirs, ours = layers(5, 6)
    x = torch.stack([batch[0], batch[0].flip(0)])
    torch.testing.assert_close(ours(x, batch[2]), theirs(x, batch[2]))
