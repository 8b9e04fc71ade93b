"""Predictions of nodes, graphs and images, and the table of them."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing, global_mean_pool

from graphtheory import Neighborhood
from graphtheory.lab.train import FullGraph, NodeTask, SampledLayers, fit, load_parameters
from graphtheory.lab.train.graphs import GraphSets, GraphTask
from graphtheory.lab.train.images import ImageData, ImageTask, Recipe
from graphtheory.lab.train.predict import by_layers, predict, write_predictions
from graphtheory.lab.zoo.node_models import NetworkConfig, build, pattern_of
from graphtheory.models import GraphTransformer, SampledGCN
from graphtheory.nn.conv import GCNConv
from graphtheory.nn.conv.weighted_sums import SAGEConv
from graphtheory.patterns import AddSelf, Compose, GraphSAGE
from tests.lab.train.conftest import CLASSES, NODES, new_task, without_time

EDGES = torch.tensor([[0, 1], [1, 0]])


class Pool(nn.Linear):
    def forward(self, batch: Any) -> Tensor:
        return super().forward(global_mean_pool(batch.x, batch.batch))


def sets(y: Tensor) -> GraphSets:
    generator = torch.Generator().manual_seed(0)
    graphs = [
        Data(x=torch.randn(n + 1, 2, generator=generator), edge_index=torch.zeros(2, 0).long(), y=v)
        for n, v in enumerate(y.split(1))
    ]
    parts = (torch.tensor([5, 0, 3]), torch.tensor([1]), torch.tensor([4]))
    return GraphSets(graphs, *parts, nodes_per_batch=4)


def test_nodes_are_predicted_in_order_with_the_best_parameters(data: Data, tmp_path: Path) -> None:
    task, source = new_task(dropout=0.5, average=0.9), FullGraph(data)
    found = fit(task, source, epochs=4, out_dir=tmp_path, progress=False)
    probabilities = predict(task, source)
    assert probabilities.shape == (NODES, CLASSES)
    assert torch.allclose(probabilities.sum(1), torch.ones(NODES))
    right = (probabilities.argmax(1) == data.y)[data.val_mask].float().mean()
    assert float(right) == pytest.approx(found.val)
    again = new_task(dropout=0.5, average=0.9)
    load_parameters(again, tmp_path / "best.ckpt")
    assert torch.equal(predict(again, source), probabilities)


@pytest.mark.parametrize(("kind", "y"), [
    ("multiclass", torch.tensor([0, 1, 0, 1, 0, 1])),
    ("multilabel", torch.tensor([[0.0, 1.0]] * 6)),
    ("regression", torch.arange(12.0).view(6, 2) * 100),
])  # fmt: skip
def test_graphs_are_predicted_one_by_one_as_in_batches(kind: Any, y: Tensor) -> None:
    source, outputs = sets(y), 2
    scale = source.statistics() if kind == "regression" else None
    task = GraphTask(Pool(2, 2), kind=kind, num_outputs=outputs, statistics=scale)
    found = predict(task, source)
    task.eval()
    with torch.no_grad():
        alone = torch.cat([task(source.batch(torch.tensor([i]))) for i in range(6)])
        alone = alone * task.scale + task.shift
    turn = {"multiclass": lambda v: v.softmax(1), "multilabel": torch.sigmoid}
    assert torch.allclose(found, turn.get(kind, lambda v: v)(alone), atol=1e-6)


def test_images_are_predicted_in_order() -> None:
    pixels = torch.randint(256, (6, 1, 2, 2), generator=torch.Generator().manual_seed(0)).byte()
    parts = torch.tensor([5, 0]), torch.tensor([1])
    source = ImageData(pixels, torch.arange(6) % 2, *parts, batch_size=2)
    how = {"statistics": source.statistics(), "recipe": Recipe(ema=None)}
    task = ImageTask(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), num_classes=2, **how)
    expected = task.logits(source.pixels).softmax(1)
    assert torch.equal(predict(task, source), expected)


@pytest.mark.parametrize(("kind", "head", "first"), [
    ("multiclass", "node,part,class,p0,p1", "0,test,1,0.25,0.75"),
    ("multilabel", "node,part,p0,p1", "0,test,0.25,0.75"),
    ("regression", "node,part,value0,value1", "0,test,0.25,0.75"),
])  # fmt: skip
def test_the_table_names_rows_and_parts(tmp_path: Path, kind: str, head: str, first: str) -> None:
    found, parts = torch.tensor([[0.25, 0.75], [1.0, 0.0]]), {"test": torch.tensor([0])}
    write_predictions(tmp_path / "p.csv", kind, found, {"node": range(2)}, parts)
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[:2] == [head, first] and len(lines) == 3
    rows = list(csv.DictReader(lines))
    assert [row["part"] for row in rows] == ["test", ""]


NETWORKS = [
    ("gt", {}), ("gt", {"residual": True, "ffn": True}), ("gt-gcn", {"root_weight": False}),
    ("gcn", {"batch_norm": True}), ("gcn", {"output": "linear", "linear_residual": True}),
    ("gat", {"project": True}), ("sage", {"layer_norm": True}), ("mlp", {}), ("sampled-gcn", {}),
]  # fmt: skip


def node_network(name: str, options: dict[str, Any]) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    config = NetworkConfig(hidden=8, layers=3, heads=2, neighbors="2", **options)
    model = build(name, config, num_features=8, num_classes=3).eval()
    for buffer in model.buffers():  # as after training
        if buffer.is_floating_point():
            buffer.add_(torch.rand_like(buffer))
    return model, pattern_of(name, config)


def in_rows(model: nn.Module, data: Data, graph: Neighborhood, rows: int) -> torch.Tensor:
    return by_layers(model, data.x, graph, rows=rows, device=torch.device("cpu"))


@pytest.mark.parametrize(("name", "options"), NETWORKS, ids=str)
def test_a_layer_at_a_time_gives_the_outputs_of_all_nodes_at_once(
    data: Data, name: str, options: dict[str, Any]
) -> None:
    model, pattern = node_network(name, options)
    graph = pattern(FullGraph(data).graph)
    whole, most = model(data.x, graph), []
    for layer in model.modules():
        if isinstance(layer, MessagePassing):
            layer.register_forward_pre_hook(lambda _, given: most.append(given[1].num_dst))
    for rows in (2, 17, 60, 100):
        torch.testing.assert_close(in_rows(model, data, graph, rows), whole)
        assert set(most) <= {*range(1, rows + 1)}
        most.clear()
    data.x = data.x.to_sparse_csr()
    torch.testing.assert_close(in_rows(model, data, graph, 17), whole)


class Net(nn.Module):
    """One layer, and what a test does before it."""

    def __init__(self, layer: nn.Module, before: Any = lambda x, graph: (x, graph)) -> None:
        super().__init__()
        self.layer, self.before = layer, before

    def forward(self, x: torch.Tensor, graph: Neighborhood) -> torch.Tensor:
        return self.layer(*self.before(x, graph))


@pytest.mark.parametrize(("model", "message"), [
    (Net(GCNConv(8, 3)), "a row depends on the others of its batch"),
    (Net(SAGEConv(8, 3), lambda x, graph: (x - x.mean(0), graph)),
     "a row depends on the others of its batch"),
    (Net(SAGEConv(8, 3), lambda x, graph: (x * graph.degree()[:, None], graph)),
     "the model itself reads 'degree' of the graph"),
    (Net(SAGEConv(8, 3), lambda x, graph: (x, Neighborhood.from_edge_index(EDGES, len(x)))),
     "SAGEConv gets another graph"),
    (GraphTransformer(8, 4, 3, 1, heads=2), "the model itself reads"),
    (node_network("sgformer", {})[0], "the model itself reads 'edge_index' of the graph"),
])  # fmt: skip
def test_models_whose_rows_meet_are_refused(data: Data, model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=f"evaluation_rows: {message}"):
        in_rows(model.eval(), data, FullGraph(data).graph, 20)
    assert all("forward" not in vars(module) for module in model.modules())


def test_fit_evaluates_in_rows_where_it_is_asked_to(data: Data) -> None:
    def found(rows: int | None) -> tuple[Any, torch.Tensor]:
        torch.manual_seed(0)
        task = NodeTask(SampledGCN(8, 4, 3), num_classes=3)
        how = {"evaluation": AddSelf(), "evaluation_rows": rows}
        sampled = SampledLayers(data, Compose(AddSelf(), GraphSAGE(2)), 3, **how)
        history = without_time(fit(task, sampled, epochs=3, progress=False))
        assert not task.model.training and sampled.evaluation_batch().at_once == rows
        return history, predict(task, sampled)

    (whole, outputs), (parts, same) = found(None), found(7)
    torch.testing.assert_close(same, outputs)
    for row, expected in zip(parts, whole, strict=True):
        assert row == pytest.approx(expected, rel=1e-4)
