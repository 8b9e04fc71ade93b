"""Margins, core distance and discriminative nodes against their definitions and printed tables."""

import math

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.utils import remove_self_loops, to_undirected

from graphtheory import Neighborhood, bipartite
from graphtheory.structure import (
    class_balance,
    core_distance,
    count_by_distance,
    discriminative_nodes,
    hop_ball,
    winning_margin,
)


def random_case(num_nodes, num_edges, num_classes, seed, *, undirected):
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=draw)
    if undirected:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    graph = Neighborhood.from_edge_index(edges, num_nodes=num_nodes)
    label = torch.randint(num_classes, (num_nodes,), generator=draw)
    pattern = torch.randint(-1, num_classes, (num_nodes,), generator=draw)
    return graph, label, pattern


def rings(graph):
    """rings[n][z]: the nodes s with hops(s -> n) = z, by networkx."""
    reversed_edges = nx.DiGraph(graph.edge_index().flip(0).t().tolist())
    reversed_edges.add_nodes_from(range(graph.num_dst))
    found = []
    for n in range(graph.num_dst):
        by_distance = {}
        for s, hops in nx.single_source_shortest_path_length(reversed_edges, n).items():
            by_distance.setdefault(hops, []).append(s)
        found.append(by_distance)
    return found


def margin_by_definition(graph, label, pattern, num_classes, max_distance, *, normalized):
    """Equation (3.5) with the averages over confusion classes."""
    margin = torch.zeros(graph.num_dst, max_distance, dtype=torch.float64)
    for n, by_distance in enumerate(rings(graph)):
        for z in range(1, max_distance + 1):
            ring = by_distance.get(z, [])
            votes = [sum(int(pattern[s]) == c for s in ring) for c in range(num_classes)]
            own = votes.pop(int(label[n]))
            value = own - sum(votes) / len(votes)
            margin[n, z - 1] = value / len(ring) if normalized and ring else value
    return margin


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_margins_follow_the_definition(undirected, normalized, num_classes):
    graph, label, pattern = random_case(120, 170, num_classes, 1, undirected=undirected)
    counts = count_by_distance(graph, pattern, num_classes, max_distance=6)
    expected = margin_by_definition(graph, label, pattern, num_classes, 6, normalized=normalized)
    found = winning_margin(counts, label, normalized=normalized)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert found[:, 3].abs().sum() > 0
    average = expected.mean(0).tolist()
    assert core_distance(found) == 1 + average.index(max(average))


def test_counts_span_several_batches_and_include_the_node_itself():
    graph, _, pattern = random_case(1300, 1800, 3, 2, undirected=False)
    counts = count_by_distance(graph, pattern, 3, max_distance=4)
    ball, distance = hop_ball(graph, 4)
    sources, targets = ball.edge_index()
    size = torch.zeros(1300, 5, dtype=torch.int32)
    size.index_put_((targets, distance.long()), torch.tensor(1, dtype=torch.int32), accumulate=True)
    assert torch.equal(counts.size, size)
    kind = torch.zeros(1300, 5, 4, dtype=torch.int32)
    cells = (targets, distance.long(), pattern[sources])
    kind.index_put_(cells, torch.tensor(1, dtype=torch.int32), accumulate=True)
    assert torch.equal(counts.pattern, kind[..., :3]) and (counts.size[:, 0] == 1).all()
    assert torch.equal(counts.within().size[:, 4], ball.degree().int())
    assert torch.equal(counts.within().pattern[:, 2], kind[:, :3, :3].sum(1).int())


def test_the_example_of_the_thesis_and_ties():
    # Figure 3.2's kind of node: two confusion nodes next to it, three class-relevant ones behind.
    edges = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 1, 1, 2]])
    graph = Neighborhood.from_edge_index(edges, num_nodes=6)
    pattern = torch.tensor([-1, 1, 1, 0, 0, 0])
    margin = winning_margin(
        count_by_distance(graph, pattern, 2, max_distance=3), torch.zeros(6, dtype=torch.int64)
    )
    assert margin[0].tolist() == [-2.0, 3.0, 0.0]
    assert core_distance(torch.tensor([[2.0, 3.0, 3.0], [0.0, 1.0, 1.0]])) == 2


def positive_share(margin, z):
    return float((margin[:, z - 1] > 0).double().mean())


def of_lab():
    """Data sets by name, which need the packages of the extra `lab`."""
    return pytest.importorskip("graphtheory.lab.datasets.graphs", exc_type=ImportError)


def real_margins(name, root):
    """Counts and labels of an undirected real graph whose discriminative nodes are as in B.1.1."""
    data = of_lab().load(name, root)
    edges = to_undirected(remove_self_loops(data.edge_index)[0], num_nodes=data.num_nodes)
    graph = Neighborhood.from_edge_index(edges, num_nodes=data.num_nodes)
    pattern = torch.where(discriminative_nodes(data.x, data.y), data.y, -1)
    return count_by_distance(graph, pattern, int(data.y.max()) + 1), data.y


def test_figure_b5_and_table_b5_on_cora(data_root):
    counts, label = real_margins("Cora", data_root)
    normalized = winning_margin(counts, label, normalized=True)
    assert core_distance(normalized) == 1  # as figure B.5 has it
    falling = normalized.mean(0)[:9]
    assert (falling.diff() < 0).all() and falling[0] > 0.6
    margin = winning_margin(counts, label)
    assert round(100 * positive_share(margin, 1), 2) == 86.41  # table B.5 prints 95.68
    closed = winning_margin(counts.within(), label)  # with the node's own pattern: 95.49
    assert round(100 * positive_share(closed, 1), 2) == 95.49


def test_figure_b5_on_actor_is_flat(data_root):
    counts, label = real_margins("Actor", data_root)
    average = winning_margin(counts, label, normalized=True).mean(0)
    assert float(average[:7].max() - average[:7].min()) < 0.003
    margin = winning_margin(counts, label)
    assert core_distance(margin) == 4
    assert round(100 * positive_share(margin, 1), 2) == 32.25  # table B.5 prints 86.31
    assert round(100 * positive_share(margin, 4), 2) == 70.78


def test_no_nodes_are_a_graph_and_classes_need_not_begin_with_the_lowest():
    graph = Neighborhood.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=0)
    nothing = torch.empty(0, dtype=torch.int64)
    margin = winning_margin(count_by_distance(graph, nothing, 2), nothing)
    assert margin.shape == (0, 12)
    with pytest.raises(ValueError, match=r"margin: shape \(0, 12\)"):
        core_distance(margin)
    graph, _, _ = random_case(10, 20, 3, 0, undirected=False)
    last = torch.full((10,), 2)
    counts = count_by_distance(graph, last, 3, max_distance=2)
    assert torch.equal(counts.pattern[..., 2], counts.size) and not counts.pattern[..., :2].any()
    assert torch.equal(winning_margin(counts, last), counts.size[:, 1:].double())


def test_bad_arguments_are_named():
    graph, label, pattern = random_case(10, 20, 3, 0, undirected=False)
    with pytest.raises(ValueError, match=r"pattern: values -1\.\.2, expected -1\.\.1"):
        count_by_distance(graph, pattern, 2)
    with pytest.raises(TypeError, match=r"pattern: dtype torch\.int32"):
        count_by_distance(graph, pattern.int(), 3)
    with pytest.raises(ValueError, match=r"max_distance: got 254, expected hops in 1\.\.253"):
        count_by_distance(graph, pattern, 3, max_distance=254)
    with pytest.raises(ValueError, match="graph: 3 sources and 2 targets"):
        count_by_distance(bipartite([2], [3]), pattern, 3)
    counts = count_by_distance(graph, pattern, 3)
    with pytest.raises(ValueError, match=r"label: shape \(9,\), expected \[10\]"):
        winning_margin(counts, label[1:])
    with pytest.raises(ValueError, match=r"label: values .*, expected 0\.\.2"):
        winning_margin(counts, label - 1)
    with pytest.raises(ValueError, match="num_classes: got 1"):
        winning_margin(count_by_distance(graph, pattern.clamp(max=0), 1), label * 0)


def by_eigenvectors(x, label, moment):
    """The definition with numpy: eigenvectors of the d x d matrix, angles by arccos."""
    found = np.zeros(len(x), dtype=bool)
    for c in np.unique(label):
        features = x[label == c].astype(np.float64)
        spread = features - features.mean(0) if moment == "covariance" else features
        _, vectors = np.linalg.eigh(spread.T @ spread)
        z = features @ vectors[:, ::-1][:, :3]
        mean = z.mean(0)
        cosine = z @ mean / (np.linalg.norm(z, axis=1) * np.linalg.norm(mean))
        found[label == c] = np.arccos(cosine.clip(-1, 1)) < math.pi / 4
    return found


@pytest.mark.parametrize("moment", ["uncentered", "covariance"])
def test_nodes_follow_the_definition(moment, generator):
    x = torch.randn(200, 6, generator=generator) + torch.tensor([1.0, 0.5, 0, 0, 0, 0])
    label = torch.randint(3, (200,), generator=generator)
    found = discriminative_nodes(x, label, moment=moment)
    expected = by_eigenvectors(x.numpy(), label.numpy(), moment)
    assert found.tolist() == expected.tolist() and 0.05 < found.double().mean() < 0.95


@pytest.mark.parametrize("moment", ["uncentered", "covariance"])
def test_wide_and_sparse_features_give_the_same_nodes(moment, generator):
    x = (torch.rand(400, 150, generator=generator) < 0.1).float()
    x += (torch.rand(400, 150, generator=generator) < 0.5) * (torch.arange(150) < 12)
    label = torch.randint(2, (400,), generator=generator)
    found = discriminative_nodes(x, label, moment=moment)
    expected = by_eigenvectors(x.numpy(), label.numpy(), moment)
    assert found.tolist() == expected.tolist() and 0 < found.sum() < 400
    assert torch.equal(discriminative_nodes(x.to_sparse(), label, moment=moment), found)
    assert torch.equal(discriminative_nodes(x.to_sparse_csr(), label, moment=moment), found)


def test_classes_do_not_see_each_other_and_may_be_tiny(generator):
    x = torch.randn(60, 5, generator=generator) + 1
    label = torch.arange(60) % 3
    alone = discriminative_nodes(x[label == 1], label[label == 1])
    assert torch.equal(discriminative_nodes(x, label)[label == 1], alone)
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.1, 0.0], [0.0, 0.0, 3.0]])
    label = torch.tensor([0, 0, 0, 7])  # class 7 has one node, classes between have none
    assert discriminative_nodes(x, label).tolist() == [True, False, True, True]
    assert discriminative_nodes(x[:0], label[:0]).shape == (0,)


def cora(root):
    data = of_lab().load("Cora", root)
    assert set(data.x.unique().tolist()) == {0.0, 1.0}
    return data.x, data.y


def shares(x, label, moment):
    found = discriminative_nodes(x, label, moment=moment)
    return [round(100 * float(found[label == c].double().mean()), 2) for c in range(7)]


def test_table_b1_of_cora(data_root):
    x, label = cora(data_root)
    printed = torch.tensor([82.05, 88.02, 82.54, 78.12, 78.17, 83.56, 76.11])
    uncentered = shares(x, label, "uncentered")
    assert uncentered == [82.05, 90.78, 82.3, 76.53, 76.76, 83.22, 75.56]
    assert float((torch.tensor(uncentered) - printed).abs().mean()) < 1
    centered = shares(x, label, "covariance")
    assert float((torch.tensor(centered) - printed).abs().mean()) > 30
    balance = class_balance(label)
    assert [round(value, 2) for value in balance] == [386.86, 431.14, 520.38]


def test_balance_counts_empty_classes_and_skips_the_unlabeled():
    balance = class_balance(torch.tensor([0, 0, 3, -1, -1]))
    assert balance.mean == 0.75 and balance.largest_gap == 1.25
    assert balance.bound == pytest.approx(10 * math.sqrt(3))
    assert class_balance(torch.tensor([-1])) == (0.0, 0.0, 0.0)
    with pytest.raises(TypeError, match=r"label: dtype torch\.float32"):
        class_balance(torch.tensor([0.0]))
    assert class_balance(torch.tensor([0, 0, 1, 1])) == (2.0, 0.0, 20.0)


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"x": torch.ones(4, 3, dtype=torch.int64)}, TypeError, r"x: dtype torch\.int64"),
    ({"x": torch.ones(5, 3)}, ValueError, r"x: shape \(5, 3\) and label \(4,\)"),
    ({"x": torch.full((4, 3), math.nan)}, ValueError, "x: holds nan"),
    ({"x": torch.full((4, 3), math.inf).to_sparse()}, ValueError, "x: holds nan"),
    ({"label": torch.ones(4)}, TypeError, "label: dtype"),
    ({"label": torch.tensor([0, 1, -1, 0])}, ValueError, "label: smallest is -1"),
    ({"moment": "centered"}, ValueError, "moment: got 'centered'"),
    ({"x": torch.ones(4)}, ValueError, r"x: shape \(4,\) and label \(4,\)"),
    ({"label": torch.zeros(4, 1).long()}, ValueError, r"x: shape .* and label \(4, 1\)"),
])  # fmt: skip
def test_bad_features_are_named(change, error, message):
    arguments = {"x": torch.ones(4, 3), "label": torch.tensor([0, 1, 1, 0])} | change
    with pytest.raises(error, match=message):
        discriminative_nodes(**arguments)


def test_a_margin_of_whole_numbers_is_refused() -> None:
    with pytest.raises(TypeError, match=r"margin: dtype torch\.int64, expected a floating tensor"):
        core_distance(torch.tensor([[1, 2]]))
