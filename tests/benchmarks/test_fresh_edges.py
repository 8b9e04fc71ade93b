"""The benchmark of edges that are used once: each call gets a list of its own."""

from types import ModuleType

import torch
from torch import nn


def test_every_call_gets_new_edges(module: ModuleType) -> None:
    seen: list[torch.Tensor] = []

    class Layer(nn.Module):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            seen.append(edges)
            return x

    pool = [torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)]
    call = module.call_of(Layer(), torch.randn(3, 1, requires_grad=True), pool, train=False)
    for _ in range(4):
        call()
    assert len({id(edges) for edges in seen}) == 4
    assert [int(edges[0, 0]) for edges in seen] == [1, 0, 1, 0]


def test_a_layer_is_compared_and_timed(module: ModuleType) -> None:
    rows = module.measure("GINConv", 100, 8, torch.get_num_threads(), 1)
    names = [row.name for row in rows if "over" in row.name]
    assert len(names) == 4 and names[0] == "GINConv, forward, processor time, PyG over graphtheory"
