from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool

from graphtheory.lab.train import AdamOptions, GraphSets, GraphTask, fit
from tests.lab.train.conftest import plain_trainer


def ring(nodes: int, label: int = 0, **changed: Any) -> Data:
    sources = torch.arange(nodes)
    edge_index = torch.stack([sources, sources.roll(1)])
    made = {"x": torch.ones(nodes, 2), "edge_index": edge_index, "y": torch.tensor([label])}
    return Data(**made | changed)


def sets_of(sizes: list[int], **options: int) -> GraphSets:
    graphs = [ring(n, n % 2) for n in sizes]
    order, last = torch.arange(len(sizes)), len(sizes) - 1
    return GraphSets(graphs, order[:-2], order[last - 1 : last], order[last:], **options)


SIZES = [3, 9, 4, 7, 5, 8, 3, 6, 4, 5, 3, 3]


def test_an_epoch_is_a_shuffle_by_seed_and_epoch() -> None:
    data = sets_of(SIZES, nodes_per_batch=14)
    first = torch.cat(data.order(0))
    assert first.sort().values.equal(data.train)
    assert torch.cat(sets_of(SIZES).order(0)).equal(first)
    assert not torch.cat(data.order(1)).equal(first)
    assert not torch.cat(sets_of(SIZES, seed=1).order(0)).equal(first)
    data, changed = sets_of([3, 4, 5, 6], nodes_per_batch=4), sets_of([3, 4, 5, 6])
    val, test = data.evaluation_batch()
    assert [batch.num_nodes for batch in val] == [5] and [b.num_nodes for b in test] == [6]
    changed.graphs[0].x[0, 0] = 2
    assert changed.describe()["sha256"] != data.describe()["sha256"]


@pytest.mark.parametrize("epoch", range(5))
def test_batches_differ_by_less_than_a_graph(epoch: int) -> None:
    batches = list(sets_of(SIZES, nodes_per_batch=14).train_batches(epoch))
    assert len(batches) == 4  # 54 nodes
    assert all(abs(batch.num_nodes - 54 / 4) < 9 for batch in batches)
    data = sets_of([3, 100, 3, 3, 3, 3], nodes_per_batch=10)  # one is larger than a batch
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


@pytest.mark.parametrize(("changed", "message"), [
    ({"x": torch.ones(4, 3)}, r"graph 1: x is float \[., 3\], but float \[., 2\] in the first"),
    ({"x": torch.ones(4, 2, dtype=torch.int64)}, r"graph 1: x is integer \[., 2\], but float"),
    ({"x": torch.full((4, 2), float("nan"))}, "graph 1: x has NaN or infinite entries"),
    ({"edge_attr": torch.ones(4, 1)}, r"edge_attr is float \[., 1\], but missing in the first"),
    ({"y": torch.tensor([[0.0]])}, r"graph 1: y is float \[., 1\], but integer \[.\]"),
    ({"x": torch.ones(0, 2)}, "graph 1: no nodes"),
    ({"y": torch.tensor([-1])}, r"graph 1: y is \[-1\], expected a finite label"),
    ({"y": None}, "graph 1: y is NoneType, expected a tensor"),
])  # fmt: skip
def test_graphs_that_cannot_be_learned_from(changed: dict[str, Any], message: str) -> None:
    graphs = [ring(3), ring(4, **changed), ring(3), ring(3)]
    with pytest.raises((ValueError, TypeError), match=message):
        GraphSets(graphs, torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))


@pytest.mark.parametrize(("change", "message"), [
    (lambda d: (d[:2], d[:0], d[2:3]), "2 and 0 graphs, expected some of either"),
    (lambda d: (d[:2], d[1:3], d[3:]), "graph 1 is in them twice"),
    (lambda d: (d[:2], d[2:3], d[3:] + 1), r"positions outside 0..3"),
])  # fmt: skip
def test_parts_that_are_refused(change: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GraphSets([ring(3)] * 4, *change(torch.arange(4)))


NOWHERE = torch.tensor([[1.0, torch.nan]])


@pytest.mark.parametrize(("labels", "outputs", "message"), [
    ([torch.tensor([2])] * 3, 2, "graph 0: label 2, expected 0..1"),
    ([torch.ones(1, 2)] * 3, 3, r"graph 0: y of shape \(1, 2\), expected \[1, 3\]"),
    ([torch.ones(1, 1).long()] * 3, 3, r"y of shape \(1, 1\), expected \[1\], a class"),
    ([torch.ones(1, 2), torch.full((1, 2), torch.nan), torch.ones(1, 2)], 2,
     r"graph 1: y is \[\[nan, nan\]\], expected a finite"),
    ([NOWHERE, NOWHERE, torch.ones(1, 2)], 2,
     r"y\[:, 1\] is NaN in all 1 training graphs, expected a"),
])  # fmt: skip
def test_labels_that_cannot_be_learned(labels: list[Tensor], outputs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        data = GraphSets([ring(3, y=y) for y in labels], *torch.arange(3)[:, None])
        data.check_classes(outputs)
        data.statistics()


GRAPHS = 40


class Sum(nn.Linear):
    def forward(self, batch: Batch) -> Tensor:
        return super().forward(global_add_pool(batch.x, batch.batch))


def graphs_of(kind: str) -> list[Data]:
    """Graphs whose label follows from the sum of their features."""
    generator = torch.Generator().manual_seed(3)
    out = []
    for i in range(GRAPHS):
        x = torch.randn(3 + i % 4, 2, generator=generator)
        total = x.sum(0, keepdim=True)
        y = {"multiclass": (total[:, 0] > 0).long(), "multilabel": (total > 0).float(),
             "regression": 100 + 10 * total}[kind]  # fmt: skip
        if kind != "multiclass" and i % 5 == 0:
            y[0, 1] = float("nan")
        out.append(Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.int64), y=y))
    return out


def parts_of(graphs: list[Data]) -> GraphSets:
    return GraphSets(graphs, *torch.arange(GRAPHS).split([24, 8, 8]), nodes_per_batch=40)


class OfNodes(nn.Linear):
    def forward(self, batch: Batch) -> Tensor:
        return super().forward(batch.x)


def make(kind: str, outputs: int, **options: Any) -> tuple[GraphTask, GraphSets]:
    data = parts_of(graphs_of(kind))
    if kind == "regression":
        options["statistics"] = data.statistics()
    torch.manual_seed(3)
    adam = AdamOptions(lr=0.05, weight_decay=0.0)
    task = GraphTask(Sum(2, outputs), kind=kind, num_outputs=outputs, optimizer=adam, **options)
    return task, data


@pytest.mark.parametrize(("kind", "metric", "at_least"), [
    ("multiclass", "accuracy", 0.85), ("multiclass", "f1", 0.85), ("multiclass", "rocauc", 0.95),
    ("multilabel", "rocauc", 0.95), ("multilabel", "ap", 0.95),
])  # fmt: skip
def test_it_learns_and_names_the_score(kind: str, metric: str, at_least: float) -> None:
    task, data = make(kind, 2, metric=metric)
    found = fit(task, data, epochs=40, patience=40, progress=False)
    assert found.test is not None and min(found.val, found.test) >= at_least


@pytest.mark.parametrize("metric", ["rmse", "mae"])
def test_values_are_learned_and_scored_in_their_own_unit(metric: str) -> None:
    task, data = make("regression", 2, metric=metric)
    found = fit(task, data, epochs=60, patience=60, progress=False)
    assert found.test is not None and found.test < 1.5  # targets spread by about 20
    assert found.val == min(row["val"] for row in found.history)  # lower is better
    batch = data.evaluation_batch().test[0]
    known = ~batch.y.isnan()
    error = (task.probabilities(task(batch)).detach() - batch.y)[known]
    assert float(error.square().mean().sqrt() if metric == "rmse" else error.abs().mean()) == (
        pytest.approx(found.test, rel=1e-5)
    )


def test_a_missing_label_has_no_part_in_loss_and_score() -> None:
    task, data = make("multilabel", 2)
    (batch,) = data.evaluation_batch().val
    out = task(batch)
    known = ~batch.y.isnan()
    by_hand = nn.functional.binary_cross_entropy_with_logits(out[known], batch.y[known])
    assert int((~known).sum()) == 2
    assert task.training_step(batch, 0).item() == pytest.approx(by_hand.item())


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    straight, data = make("regression", 2)
    expected = fit(straight, data, epochs=6, progress=False)
    for epochs in (3, 6):
        task, again = make("regression", 2)
        found = fit(task, again, epochs=epochs, progress=False, out_dir=tmp_path, resume=epochs > 3)
    assert [r["val"] for r in found.history] == [r["val"] for r in expected.history]
    assert all(map(torch.equal, task.state_dict().values(), straight.state_dict().values()))


def test_an_epoch_trains_on_every_graph_whatever_their_sizes() -> None:
    seen: list[int] = []

    class Listening(Sum):
        def forward(self, batch: Batch) -> Tensor:
            if self.training:
                seen.append(batch.num_graphs)
            return super().forward(batch)

    graphs = graphs_of("multiclass")
    graphs[3].x = torch.randn(500, 2)
    data = parts_of(graphs)
    task = GraphTask(Listening(2, 2), kind="multiclass", num_outputs=2)
    fit(task, data, epochs=5, progress=False)
    assert sum(seen) == 5 * 24


def test_nodes_without_a_class_count_nowhere() -> None:
    graphs = graphs_of("multiclass")
    for graph in graphs:
        graph.y = torch.full((graph.num_nodes,), -1)
        graph.y[0] = int(graph.x[0, 0] > 0)
    data = parts_of(graphs)
    adam = AdamOptions(lr=0.1, weight_decay=0.0)
    task = GraphTask(OfNodes(2, 2), kind="multiclass", num_outputs=2, optimizer=adam)
    found = fit(task, data, epochs=30, patience=30, progress=False)
    assert found.test is not None and min(found.val, found.test) >= 0.85
    assert next(data.train_batches(0)).count == len(data.order(0)[0])
    with pytest.raises(ValueError, match=r"outputs of shape \(\d+, 2\), expected \(7, 2\)"):
        fit(task, make("multiclass", 2)[1], epochs=1, progress=False)  # labels of whole graphs


def test_a_plain_trainer_logs_what_fit_scores() -> None:
    task, data = make("multilabel", 2)
    with plain_trainer() as trainer:
        trainer.fit(task, datamodule=data)
    found = task.evaluate(data.evaluation_batch())._asdict()
    assert found == {name: pytest.approx(float(trainer.callback_metrics[name])) for name in found}
