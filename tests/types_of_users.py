"""What type checkers and editors know of the library, in a file as a user writes it.

`make check` lets mypy read it: a type that is not the one asserted is an error there, and so is a
call that mypy no longer finds wrong.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from typing_extensions import assert_type

import graphtheory
from graphtheory import Neighborhood, nn, patterns
from graphtheory.integrations.pyg import Acceleration
from graphtheory.models import GraphTransformer


def calls() -> None:
    x, edge_index = torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])
    near = patterns.KHop(2)(edge_index)
    conv = nn.GATConv(16, 8)
    assert_type(near, Neighborhood)
    assert_type(nn.GCNConv(16, 8)(x, edge_index), Tensor)
    assert_type(nn.TransformerConv(16, 8)(x, edge_index), Tensor)
    assert_type(nn.SPDTransformerConv(16, 8)(x, near), Tensor)
    assert_type(nn.GPSConv(16, conv)(x, edge_index), Tensor)
    assert_type(nn.Attention(16, 2)(x, near), Tensor)
    assert_type(GraphTransformer(16, 8, 3)(x, edge_index), Tensor)
    assert_type(conv(x, edge_index, return_attention_weights=True), tuple[Tensor, Any])
    assert_type(graphtheory.accelerate(conv, report=(x, edge_index)), Acceleration)
    graphtheory.accelerate(conv, sparse=True)  # type: ignore[call-arg]
    graphtheory.bench("Cora", seeds="3")  # type: ignore[arg-type]
    graphtheory.bench([Data()], {"m": lambda i, o: torch.nn.Linear(i, o), "gt": "gt"}, device="cpu")
