"""Predictions of nodes, graphs and images, and the table of them."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import global_mean_pool

from graphtheory.lab.train import (
    FullGraph,
    GraphSets,
    GraphTask,
    ImageData,
    ImageTask,
    Recipe,
    fit,
    load_parameters,
    predict,
    write_predictions,
)
from tests.lab.train.conftest import CLASSES, NODES, new_task


class Pool(nn.Module):
    """A linear map of the mean of a graph's nodes."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2, outputs)

    def forward(self, batch: Any) -> Tensor:
        return self.linear(global_mean_pool(batch.x, batch.batch))


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


@pytest.mark.parametrize(
    ("kind", "y"),
    [
        ("multiclass", torch.tensor([0, 1, 0, 1, 0, 1])),
        ("multilabel", torch.tensor([[0.0, 1.0]] * 6)),
        ("regression", torch.arange(12.0).view(6, 2) * 100),
    ],
)
def test_graphs_are_predicted_one_by_one_as_in_batches(kind: Any, y: Tensor) -> None:
    source, outputs = sets(y), 2
    scale = source.statistics() if kind == "regression" else None
    task = GraphTask(Pool(2), kind=kind, num_outputs=outputs, statistics=scale)
    found = predict(task, source)
    task.eval()
    with torch.no_grad():
        alone = torch.cat([task(source.batch(torch.tensor([i]))) for i in range(6)])
        alone = alone * task.scale + task.shift
    turn = {"multiclass": lambda v: v.softmax(1), "multilabel": torch.sigmoid}
    assert torch.allclose(found, turn.get(kind, lambda v: v)(alone), atol=1e-6)


def test_images_are_predicted_in_order() -> None:
    pixels = torch.randint(256, (6, 1, 2, 2), generator=torch.Generator().manual_seed(0))
    source = ImageData(
        pixels.byte(), torch.arange(6) % 2, torch.tensor([5, 0]), torch.tensor([1]), batch_size=2
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    recipe = Recipe(ema=None)
    task = ImageTask(model, num_classes=2, statistics=source.statistics(), recipe=recipe)
    expected = task.logits(source.pixels).softmax(1)
    assert torch.equal(predict(task, source), expected)


@pytest.mark.parametrize(
    ("kind", "head", "first"),
    [
        ("multiclass", "node,part,class,p0,p1", "0,test,1,0.25,0.75"),
        ("multilabel", "node,part,p0,p1", "0,test,0.25,0.75"),
        ("regression", "node,part,value0,value1", "0,test,0.25,0.75"),
    ],
)
def test_the_table_names_rows_and_parts(tmp_path: Path, kind: str, head: str, first: str) -> None:
    found, parts = torch.tensor([[0.25, 0.75], [1.0, 0.0]]), {"test": torch.tensor([0])}
    write_predictions(tmp_path / "p.csv", kind, found, {"node": range(2)}, parts)
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[:2] == [head, first] and len(lines) == 3
    rows = list(csv.DictReader(lines))
    assert [row["part"] for row in rows] == ["test", ""]
