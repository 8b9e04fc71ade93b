"""Graphs with several kinds of nodes and edges, for tests of hetero layers."""

import torch
from torch import Tensor

Kind = tuple[str, str, str]


def typed_graph(
    nodes: dict[str, int], widths: dict[str, int], kinds: list[Kind]
) -> tuple[dict[str, Tensor], dict[Kind, Tensor]]:
    """Normal features in float64 of each kind of node, and 15 random edges of each kind."""
    generator = torch.Generator().manual_seed(0)
    x = {
        t: torch.randn(n, widths[t], generator=generator, dtype=torch.float64)
        for t, n in nodes.items()
    }
    edges = {
        kind: torch.stack(
            [torch.randint(nodes[t], (15,), generator=generator) for t in (kind[0], kind[2])]
        )
        for kind in kinds
    }
    return x, edges
