"""A small graph whose classes can be learned, and small models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.lab.train import AdamOptions, NodeTask

NODES, FEATURES, CLASSES = 60, 8, 3


class OneLayer(nn.Module):
    """Sum of the neighbors' transformed features."""

    def __init__(self, classes: int = CLASSES, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(FEATURES, classes), nn.Dropout(dropout)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return neighborhood.to_dense() @ self.linear(self.drop(x))


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


def make_task(**options: Any) -> NodeTask:
    torch.manual_seed(0)
    model = OneLayer(dropout=options.pop("dropout", 0.5))
    return NodeTask(model, num_classes=CLASSES, optimizer=AdamOptions(**options))


@pytest.fixture
def data() -> Data:
    return make_data()


@pytest.fixture
def table() -> type[nn.Module]:
    return Table


@pytest.fixture
def one_layer() -> type[nn.Module]:
    return OneLayer


@pytest.fixture
def new_task() -> Callable[..., NodeTask]:
    return make_task
