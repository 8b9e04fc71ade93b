from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import GraphSets


def ring(nodes: int, label: int = 0, **changed: Any) -> Data:
    sources = torch.arange(nodes)
    edge_index = torch.stack([sources, sources.roll(1)])
    made = {"x": torch.ones(nodes, 2), "edge_index": edge_index, "y": torch.tensor([label])}
    return Data(**made | changed)


def make(sizes: list[int], **options: int) -> GraphSets:
    graphs = [ring(n, n % 2) for n in sizes]
    order, last = torch.arange(len(sizes)), len(sizes) - 1
    return GraphSets(graphs, order[:-2], order[last - 1 : last], order[last:], **options)


def test_an_epoch_is_a_shuffle_by_seed_and_epoch() -> None:
    sizes = [3, 9, 4, 7, 5, 8, 3, 6, 4, 5, 3, 3]
    data = make(sizes, nodes_per_batch=14)
    first = torch.cat(data.order(0))
    assert first.sort().values.equal(data.train)
    assert torch.cat(make(sizes).order(0)).equal(first)
    assert not torch.cat(data.order(1)).equal(first)
    assert not torch.cat(make(sizes, seed=1).order(0)).equal(first)


@pytest.mark.parametrize("epoch", range(5))
def test_batches_differ_by_less_than_a_graph(epoch: int) -> None:
    sizes = [3, 9, 4, 7, 5, 8, 3, 6, 4, 5, 3, 3]
    batches = list(make(sizes, nodes_per_batch=14).train_batches(epoch))
    assert len(batches) == 4  # 54 nodes
    assert all(abs(batch.num_nodes - 54 / 4) < 9 for batch in batches)


def test_a_graph_larger_than_a_batch_is_a_batch() -> None:
    data = make([3, 100, 3, 3, 3, 3], nodes_per_batch=10)
    for epoch in range(5):
        order = data.order(epoch)
        assert torch.cat(order).sort().values.equal(data.train)
        assert len(order) <= len(data.train_dataloader())


def test_batches_count_labels_that_are_there() -> None:
    nan = float("nan")
    graphs = [ring(3, y=torch.tensor([[1.0, nan]])), ring(4, y=torch.tensor([[0.0, 1.0]]))] * 2
    data = GraphSets(graphs, torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
    (batch,) = data.train_batches(0)
    assert batch.count == 3 and batch.num_nodes == 7
    mean, std = data.statistics()
    assert mean.tolist() == [0.5, 1.0] and std.tolist() == [0.5, 0.0]


def test_evaluation_keeps_the_order_of_the_parts() -> None:
    val, test = make([3, 4, 5, 6], nodes_per_batch=4).evaluation_batch()
    assert [batch.num_nodes for batch in val] == [5] and [b.num_nodes for b in test] == [6]


def test_it_describes_every_tensor() -> None:
    described = make([3, 4, 5, 6]).describe()["sha256"]
    changed = make([3, 4, 5, 6])
    changed.graphs[0].x[0, 0] = 2
    assert changed.describe()["sha256"] != described


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": torch.ones(4, 3)}, r"graph 1: x is float \[., 3\], but float \[., 2\] in the first"),
        ({"x": torch.ones(4, 2, dtype=torch.int64)}, r"graph 1: x is integer \[., 2\], but float"),
        ({"x": torch.full((4, 2), float("nan"))}, "graph 1: x has NaN or infinite entries"),
        ({"edge_attr": torch.ones(4, 1)}, r"edge_attr is float \[., 1\], but missing in the first"),
        ({"y": torch.tensor([[0.0]])}, r"graph 1: y is float \[., 1\], but integer \[.\]"),
        ({"x": torch.ones(0, 2)}, "graph 1: no nodes"),
    ],
)
def test_graphs_that_cannot_be_learned_from(changed: dict[str, Any], message: str) -> None:
    graphs = [ring(3), ring(4, **changed), ring(3), ring(3)]
    with pytest.raises(ValueError, match=message):
        GraphSets(graphs, torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))


def test_a_graph_without_any_label() -> None:
    nan = torch.full((1, 2), float("nan"))
    graphs = [ring(3, y=torch.ones(1, 2)), ring(3, y=nan), ring(3, y=torch.ones(1, 2))]
    with pytest.raises(
        ValueError, match=r"graph 1: y is \[\[nan, nan\]\], expected a finite label"
    ):
        GraphSets(graphs, torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))


def test_a_graph_without_labels_at_all() -> None:
    graphs = [ring(3), Data(x=torch.ones(2, 2), edge_index=torch.zeros(2, 0).long()), ring(3)]
    with pytest.raises(TypeError, match="graph 1: y is NoneType, expected a tensor"):
        GraphSets(graphs, torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))


def _none(of: torch.Tensor) -> torch.Tensor:
    return of[:0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: (d[:2], _none(d), d[2:3]), "2 and 0 graphs, expected some of either"),
        (lambda d: (d[:2], d[1:3], d[3:]), "graph 1 is in them twice"),
        (lambda d: (d[:2], d[2:3], d[3:] + 1), r"positions outside 0..3"),
    ],
)
def test_parts_that_are_refused(change: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSets([ring(3)] * 4, *change(torch.arange(4)))


def test_a_target_that_no_training_graph_has() -> None:
    here, nowhere = torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, float("nan")]])
    data = GraphSets([ring(3, y=y) for y in (nowhere, nowhere, here)], *torch.arange(3)[:, None])
    with pytest.raises(ValueError, match=r"y\[:, 1\] is NaN in all 1 training graphs, expected a"):
        data.statistics()


def test_labels_out_of_range() -> None:
    data = GraphSets([ring(3, 2)] * 3, *torch.arange(3)[:, None])
    with pytest.raises(ValueError, match=r"graph 0: label 2, expected 0..1"):
        data.check_classes(2)
    data = GraphSets([ring(3, y=torch.ones(1, 2))] * 3, *torch.arange(3)[:, None])
    with pytest.raises(ValueError, match=r"graph 0: y of shape \(1, 2\), expected \[1, 3\]"):
        data.check_classes(3)
    data = GraphSets([ring(3, y=torch.ones(1, 1).long())] * 3, *torch.arange(3)[:, None])
    with pytest.raises(ValueError, match=r"graph 0: y of shape \(1, 1\), expected \[1\], a class"):
        data.check_classes(3)
