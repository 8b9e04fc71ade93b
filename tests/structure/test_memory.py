"""What is counted before a result is computed: the bytes that the docstrings name, not one more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphtheory import Neighborhood, structure
from graphtheory.graph import memory

NODES = 7
RING = Neighborhood.from_edge_index(
    torch.tensor([[*range(NODES)], [*range(1, NODES), 0]]), num_nodes=NODES
)
PATTERN = torch.tensor([0, 1, -1, 1, 0, -1, 1])


@pytest.mark.parametrize(
    ("call", "needed"),
    [
        (lambda: structure.shortest_path_distance(RING), NODES * NODES),
        (
            lambda: structure.shortest_path_distance(RING, sources=torch.tensor([0, 2, 2])),
            NODES * 3,
        ),
        (lambda: structure.shortest_path_edges(RING, 5), NODES * NODES * 5 * 2),
        (lambda: structure.resistance_distance(RING), 4 * 8 * NODES**2),
        (
            lambda: structure.count_by_distance(RING, PATTERN, 2, max_distance=4),
            4 * NODES * (4 + 1) * (2 + 1),
        ),
        (lambda: structure.hop_ball(RING, 2), 9 * NODES * 3),
    ],
    ids=["distances", "columns", "paths", "resistances", "counts", "balls"],
)
def test_what_fits_exactly_is_computed_and_a_byte_less_is_refused(
    call: Callable[[], Any], needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    call()
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(MemoryError, match=rf"\({needed} bytes\), .*GiB are available; "):
        call()
