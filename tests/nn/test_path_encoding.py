"""Path encodings against a loop over pairs and steps."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphtheory import Neighborhood
from graphtheory.nn import PathEncoding
from graphtheory.structure import shortest_path_edges

STEPS, HEADS = 3, 2


def draw(nodes, edges, seed):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(max(nodes, 1), (2, edges), generator=generator)
    paths = shortest_path_edges(Neighborhood.from_edge_index(edge_index, nodes), STEPS)
    return Data(
        x=torch.zeros(nodes, 1), edge_index=edge_index, paths=paths.flatten(0, 1),
        edge_attr=torch.randn(edges, 4, generator=generator, dtype=torch.float64),
        kinds=torch.randint(3, (edges, 2), generator=generator),
    )  # fmt: skip


GRAPHS = [draw(5, 9, 0), draw(1, 0, 1), draw(7, 10, 2), draw(4, 3, 3)]


def loop(graph, products):
    """products(edge, step) -> [heads], averaged along each path."""
    rows = []
    for path in graph.paths.tolist():
        terms = [products(edge, step) for step, edge in enumerate(path) if edge >= 0]
        rows.append(sum(terms) / len(terms) if terms else torch.zeros(HEADS).double())
    return torch.stack(rows)


def test_floats_equal_the_loop_with_gradients() -> None:
    encoding = PathEncoding(4, HEADS, STEPS).double()
    weight = encoding.products.weight.view(STEPS, HEADS, 4)
    batch = Batch.from_data_list(GRAPHS)
    attr = batch.edge_attr.clone().requires_grad_()
    first, wanted = 0, []
    for graph in GRAPHS:
        mine = attr[first : first + graph.num_edges]
        wanted.append(loop(graph, lambda e, n, mine=mine: weight[n] @ mine[e]))
        first += graph.num_edges
    found, wanted = encoding(attr, batch.paths, batch.edge_index, batch.batch), torch.cat(wanted)
    torch.testing.assert_close(found, wanted)
    assert found.any()
    cotangent = torch.randn_like(found)
    leaves = [attr, encoding.products.weight]
    torch.testing.assert_close(
        torch.autograd.grad((found * cotangent).sum(), leaves),
        torch.autograd.grad((wanted * cotangent).sum(), leaves),
    )


def test_categories_equal_the_loop() -> None:
    encoding = PathEncoding((3, 3), HEADS, STEPS).double()
    table = encoding.products.table.view(6, STEPS, HEADS)
    for graph in GRAPHS:
        kinds = graph.kinds
        wanted = loop(graph, lambda e, n, k=kinds: table[k[e, 0], n] + table[3 + k[e, 1], n])
        torch.testing.assert_close(encoding(kinds, graph.paths), wanted)


def test_wrong_input_is_refused_in_words() -> None:
    encoding, batch = PathEncoding(4, HEADS, STEPS).double(), Batch.from_data_list(GRAPHS)
    attr, index = batch.edge_attr, batch.edge_index
    with pytest.raises(ValueError, match=r"expected integers \[num_pairs, 3\]"):
        encoding(attr, batch.paths[:, :2])
    with pytest.raises(ValueError, match="edge_index: got None beside a batch"):
        encoding(attr, batch.paths, batch=batch.batch)
    with pytest.raises(ValueError, match="paths: 3 rows, expected 91"):
        encoding(attr, batch.paths[:3], index, batch.batch)
    with pytest.raises(ValueError, match="edges of several graphs alternate"):
        encoding(attr, batch.paths, index.flip(1), batch.batch)
    wrong = batch.paths.clone()
    wrong[25, 0] = 0  # the graph of pair 25 has no edges
    with pytest.raises(IndexError, match="pair 25, step 0 is edge 0, expected one of the 0"):
        encoding(attr, wrong, index, batch.batch)
    with pytest.raises(IndexError, match="is edge 3, expected one of the 3 edges"):
        encoding(attr[:3], torch.tensor([[3, -1, -1]]))
    with pytest.raises(ValueError, match="heads: got 0"):
        PathEncoding(4, 0)
