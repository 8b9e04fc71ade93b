"""Every form of an argument that PyG's layer takes, beside PyG's layer; draws are the battery's."""

import copy

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import to_torch_csr_tensor

from battery import forms
from battery.drawn_layers import LAYERS
from graphtheory.nn.conv import adjacency, on_core, weighted_sums
from tests.integrations.conftest import swapped

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
EDGES = torch.from_numpy(np.random.default_rng(0).integers(0, 10, (2, 30)))
X = torch.randn(10, 8)
APPNP = pyg.APPNP(2, 0.1, normalize=False)


def both(theirs: nn.Module) -> tuple[nn.Module, nn.Module]:
    return swapped(theirs), theirs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_gives_what_pyg_gives(name: str) -> None:
    first = list(LAYERS).index(name)
    for number in range(first, 20 * len(LAYERS), len(LAYERS)):
        wrong, words = forms.call(number, 11)
        assert not wrong, (words, wrong)


FAULTS = {
    "values of a matrix left out": (weighted_sums, "stored_values", lambda given: None),
    "a size where a matrix has its own": (
        on_core, "num_targets", lambda x, y, size, edges: None if size is None else size[1]
    ),
    "weights of integers": (on_core, "multiplied", lambda weight, x: (weight, x)),
    "what is read later may change": (on_core, "kept", lambda x, *others: x),
    "32-bit ids of self-loops": (
        adjacency, "compute_loop_attr",
        lambda ends, *rest: torch.full((rest[1], rest[0].size(1)), 0.5),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_table_sees(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, old = FAULTS[fault]
    monkeypatch.setattr(module, name, old)
    assert any(forms.call(number, 11)[0] for number in range(60 * len(LAYERS)))


def test_weights_of_edges_by_hand() -> None:
    weight = torch.randint(1, 5, (30,))
    for layer in (pyg.GraphConv(8, 4), pyg.GCNConv(8, 4, normalize=False), APPNP):
        ours, _ = both(layer)
        wanted = ours(X, EDGES, weight.float())
        for given in (weight, weight[:, None], weight.double().float()[:, None]):
            torch.testing.assert_close(ours(X, EDGES, given), wanted)


def test_values_of_a_torch_matrix_are_factors_as_in_pyg() -> None:
    edges = EDGES.unique(dim=1)
    value = torch.rand(edges.size(1))
    matrix = to_torch_csr_tensor(edges.flip(0), value, (10, 10))
    for aggr in ("sum", "mean", "max"):
        ours, theirs = both(pyg.SAGEConv(8, 4, aggr))
        torch.testing.assert_close(ours(X, matrix), theirs(X, matrix))
        assert not torch.allclose(ours(X, matrix), ours(X, edges))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pyg.GINConv(nn.Linear(8, 8)), lambda: pyg.SGConv(8, 8), lambda: pyg.APPNP(2, 0.1),
        lambda: pyg.GINEConv(nn.Linear(8, 8)), lambda: pyg.GINConv(nn.Linear(8, 8), aggr="max"),
        lambda: pyg.ResGatedGraphConv(8, 8, edge_dim=8, root_weight=False),
    ],
)  # fmt: skip
def test_residuals_in_place(make) -> None:
    ours, theirs = both(make())
    features, grads = torch.randn(30, 8), []
    takes_edges = isinstance(theirs, (pyg.GINEConv, pyg.ResGatedGraphConv))
    for layer in (ours, theirs):
        x, edge = X.clone().requires_grad_(), features.clone().requires_grad_()
        h, of_edges = 2 * x, 2 * edge
        h += layer(h, EDGES, *[of_edges] * takes_edges)
        if isinstance(layer, pyg.ResGatedGraphConv):
            of_edges += h[EDGES[0]]
        grads.append(torch.autograd.grad(h.sin().sum() + of_edges.sin().sum(), (x, edge)))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("edge_dim, trained", [(None, True), (8, False), (8, True)])
def test_gine_reads_in_the_backward_pass_what_pyg_reads(edge_dim, trained) -> None:
    ours, theirs = both(pyg.GINEConv(nn.Linear(8, 8), edge_dim=edge_dim).double())
    features, grads = torch.randn(30, 8).double(), []
    reads_edges = edge_dim is not None and trained
    for layer in (ours, theirs):
        layer.requires_grad_(trained)
        x, edge = X.double().requires_grad_(), features.clone().requires_grad_(not reads_edges)
        for _ in range(2):
            of_edges = 2 * edge
            out = layer(x, EDGES, of_edges)
            with torch.no_grad():
                changed = layer.lin.weight if reads_edges else of_edges
                changed += 1
        asked = [t for t in (x, edge, *layer.parameters()) if t.requires_grad]
        grads.append(torch.autograd.grad(out.sin().sum(), asked))
    torch.testing.assert_close(*grads)


def test_features_of_several_graphs_as_a_pair() -> None:
    ours, theirs = both(pyg.SAGEConv((8, 8), 4))
    x = torch.randn(5, 10, 8)
    found = ours((x, x.clone()), EDGES)
    assert found.shape == (5, 10, 4)
    torch.testing.assert_close(found, theirs((x, x.clone()), EDGES))


def test_relations_with_a_fraction_are_refused() -> None:
    ours, _ = both(pyg.RGCNConv(8, 4, 3))
    with pytest.raises(ValueError, match="edge_type: got numbers with a fraction"):
        ours(X, EDGES, torch.full((30,), 1.5))


def gradients(layer: nn.Module, given: list[Tensor]) -> list[Tensor]:
    given = [t.clone().requires_grad_(t.is_floating_point()) for t in given]
    out = layer(given[0], EDGES, *given[1:])
    asked = [t for t in (*given, *layer.parameters()) if t.requires_grad]
    return [out, *torch.autograd.grad(out.sin().sum(), asked, materialize_grads=True)]


WHOLE, ONE, DEGREES = torch.randint(0, 5, (30, 8)), torch.randn(1, 8), torch.tensor([0, 3, 4, 3])
GIVEN = {
    "GAT with features of integers": (lambda: pyg.GATConv(8, 4, 2, edge_dim=8), X, WHOLE),
    "GATv2 with features of integers": (lambda: pyg.GATv2Conv(8, 4, 2, edge_dim=8), X, WHOLE),
    "gates with features of integers": (lambda: pyg.ResGatedGraphConv(8, 4, edge_dim=8), X, WHOLE),
    "PNA with nodes of integers": (
        lambda: pyg.PNAConv(8, 8, ["mean", "max"], ["identity"], DEGREES, edge_dim=8),
        (3 * X).long(), ONE.repeat(30, 1),
    ),
    "GINE with one row": (lambda: pyg.GINEConv(nn.Linear(8, 8)), X, ONE),
    "GINE with a vector": (lambda: pyg.GINEConv(nn.Linear(8, 8)), X, ONE[0]),
    "GINE with one row, mapped": (lambda: pyg.GINEConv(nn.Linear(8, 8), edge_dim=8), X, ONE),
    "attention with one row": (lambda: pyg.TransformerConv(8, 4, 2, edge_dim=8), X, ONE),
    "GCN with one weight": (lambda: pyg.GCNConv(8, 4, normalize=False), X, torch.tensor(2.0)),
    "APPNP with one weight": (lambda: copy.deepcopy(APPNP), X, torch.tensor(2.0)),
    "GraphConv with one weight": (lambda: pyg.GraphConv(8, 4), X, torch.tensor(2.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", GIVEN)
def test_what_pyg_promotes_or_spreads_over_all_edges(case: str) -> None:
    make, *given = GIVEN[case]
    ours, theirs = both(make())
    for _ in range(2):
        torch.testing.assert_close(
            gradients(ours, given), gradients(theirs, given), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8])
def test_edges_of_narrow_integers_where_pyg_adds_self_loops(dtype: torch.dtype) -> None:
    for layer in (pyg.GATConv(8, 4), pyg.GATv2Conv(8, 4), pyg.GPSConv(8, pyg.GCNConv(8, 8))):
        ours, theirs = both(layer)
        for _ in range(2):
            torch.testing.assert_close(ours(X, EDGES.to(dtype)), theirs(X, EDGES.to(dtype)))
        with pytest.raises(IndexError, match=r"expected a node id in 0\.\.9"):
            ours(X, EDGES.to(dtype) + 1)


def test_complex_weights_are_refused_by_name() -> None:
    ours, _ = both(pyg.GCNConv(8, 4, normalize=False))
    with pytest.raises(TypeError, match="complex64, expected a floating type"):
        ours(X, EDGES, torch.randn(30, dtype=torch.complex64))


TYPES = torch.randint(3, (30,))
WEIGHT = torch.rand(30) + 0.5
OF_TYPES = {
    "autocast, GAT": (pyg.GATConv(8, 4, bias=False), torch.float32, (), True),
    "autocast, GATv2": (pyg.GATv2Conv(8, 4, bias=False), torch.float32, (), True),
    "autocast, GCN": (pyg.GCNConv(8, 4, bias=False), torch.float32, (), True),
    "autocast, GCN, weights": (pyg.GCNConv(8, 4, bias=False), torch.float32, (WEIGHT,), True),
    "autocast, RGCN": (pyg.RGCNConv(8, 4, 3, bias=False), torch.float32, (TYPES,), True),
    "GCN": (pyg.GCNConv(8, 4).bfloat16(), torch.bfloat16, (WEIGHT,), False),
    "GCN of halves": (pyg.GCNConv(8, 4).bfloat16(), torch.bfloat16, (WEIGHT.half(),), False),
    "APPNP": (pyg.APPNP(2, 0.1), torch.bfloat16, (WEIGHT,), False),
    "ResGated": (
        pyg.ResGatedGraphConv(8, 4, edge_dim=3).double(), torch.float64, (torch.randn(30, 3),),
        False,
    ),
    "ResGated of halves": (
        pyg.ResGatedGraphConv(8, 4, edge_dim=3), torch.float32, (torch.randn(30, 3).bfloat16(),),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_TYPES)
def test_results_have_the_types_of_pygs(name: str) -> None:
    layer, dtype, more, autocast = OF_TYPES[name]
    layers = both(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        for _ in range(2):  # few edges that are new take PyG's own layer
            ours, theirs = (one(X.to(dtype), EDGES, *more) for one in layers)
    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)


def test_weights_kept_in_float64_stay_so() -> None:
    found = []
    for layer in both(pyg.GCNConv(8, 4, cached=True).double()):
        layer(X.double(), EDGES)
        found.append(layer.float()(X, EDGES).dtype)
    assert found == [torch.float64] * 2


def test_a_map_that_a_layer_has_no_use_for_may_lack_weights() -> None:
    layer = pyg.TransformerConv(-1, 4, root_weight=False)
    wanted = layer(X, EDGES)
    ours = swapped(layer)
    ours(X, EDGES)
    torch.testing.assert_close(ours(X, EDGES), wanted)
