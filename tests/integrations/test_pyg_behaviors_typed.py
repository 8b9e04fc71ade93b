"""What PyG's own tests check of HGT, HAN and RGCN, after `accelerate`; see docs/pyg_tests.md."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_csc_tensor

from graphtheory.integrations.pyg import accelerate

WIDTHS = {"author": 16, "paper": 32}
NODES = {"author": 4, "paper": 6, "university": 10}
WRITES = [("author", "writes", "paper"), ("paper", "written_by", "author")]
PATHS = [("author", "to", "author"), ("paper", "to", "paper"), ("paper", "cites", "paper")]
LAYERS = [("HGTConv", WRITES), ("HANConv", PATHS)]
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # torch says that they are young


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    torch.manual_seed(0)


def swapped(before):
    after = copy.deepcopy(before)
    assert accelerate(after).swapped
    return after


def assert_same(found, wanted) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


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
def test_sizes_are_read_off_the_first_input(name, kinds) -> None:
    layer = getattr(pyg, name)(-1, 32, (list(WIDTHS), kinds), heads=2)
    assert "has no weights yet" in accelerate(layer).kept[0].reason
    x, edges = features(WIDTHS), edges_of(kinds)
    wanted = layer(x, edges)
    assert_same(swapped(layer)(x, edges), wanted)


@pytest.mark.parametrize(("name", "kinds"), LAYERS, ids=["HGT", "HAN"])
def test_inputs_stay_as_they_were(name, kinds) -> None:
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


def test_han_without_edges_of_a_kind_of_nodes() -> None:
    widths = WIDTHS | {"university": 3}
    before = pyg.HANConv(widths, 16, (list(widths), PATHS), heads=2)
    after, x, edges = swapped(before), features(widths), edges_of(PATHS)
    found = after(x, edges)
    assert found["university"] is None
    assert_same(found, before(x, edges))


def test_han_without_nodes_and_edges() -> None:
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
