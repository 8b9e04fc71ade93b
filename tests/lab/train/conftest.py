"""A small graph whose classes can be learned, and small models."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch import Tensor, nn
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.lab.train import AdamOptions, FitResult, NodeTask
from graphtheory.lab.train.fit import quiet_lightning

NODES, FEATURES, CLASSES = 60, 8, 3


class OneLayer(nn.Module):
    """Sum of the neighbors' transformed features."""

    def __init__(self, classes: int = CLASSES, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(FEATURES, classes), nn.Dropout(dropout)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return neighborhood.to_dense() @ self.linear(self.drop(x))


class Layers(nn.Module):
    """For batches of `SampledLayers`, and for the whole graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        for layer in graph if isinstance(graph, tuple) else (graph,):
            x = layer.to_dense() @ x
        return self.linear(x)


class Table(nn.Module):
    """Looks like a distance bias."""

    is_bucket_bias = True

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, 1))


def make_data(nodes: int = NODES) -> Data:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    x = torch.randn(nodes, FEATURES, generator=generator) + nn.functional.one_hot(y, FEATURES)
    edge_index = torch.randint(nodes, (2, 4 * nodes), generator=generator)
    part = torch.arange(nodes) % 3
    masks = {f"{name}_mask": part == i for i, name in enumerate(("train", "val", "test"))}
    return Data(x=x, y=y, edge_index=edge_index, name="small", **masks)


def new_task(*, several: bool = False, dropout: float = 0.5, **options: Any) -> NodeTask:
    torch.manual_seed(0)
    model = Layers() if several else OneLayer(dropout=dropout)
    return NodeTask(model, num_classes=CLASSES, optimizer=AdamOptions(**options))


def without_time(result: FitResult) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]


@contextmanager
def plain_trainer() -> Iterator[Trainer]:
    with quiet_lightning():
        yield Trainer(
            accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip


@pytest.fixture
def data() -> Data:
    return make_data()
