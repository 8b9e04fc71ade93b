"""What the GPU backend says of itself, where there is no GPU and no Triton."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from graphtheory import Neighborhood, ops
from graphtheory.ops.backends import triton_csr


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What torch says of a GPU, and whether Triton is there."""
    triton_csr._lacking.cache_clear()
    gpu = SimpleNamespace(capability=(9, 0), triton=object(), hip=None, there=True)
    monkeypatch.setattr(triton_csr, "find_spec", lambda name: gpu.triton)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu.there)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu.capability)
    yield gpu
    triton_csr._lacking.cache_clear()


@pytest.mark.parametrize(("change", "words"), [
    ({}, []),
    ({"capability": (7, 5)}, ["compute capability 7.5, expected 8.0 or later"]),
    ({"triton": None}, ["triton is not installed"]),
    ({"there": False}, ["torch sees no GPU"]),
])  # fmt: skip
def test_triton_says_why_it_cannot(change, words, a_gpu) -> None:
    vars(a_gpu).update(change)
    assert triton_csr.triton_objections(torch.device("cuda")) == words


def test_where_triton_can_it_runs_primitives_and_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2).to("meta")
    x, edges = torch.zeros(2, 1, 3, device="meta"), torch.zeros(2, 1, device="meta")
    matrix = torch.zeros(1, 1, 3, device="meta")

    def chosen() -> list[str]:
        asked = [
            ops.explain(ops.edge_dot, x, x, nb),
            ops.explain(ops.edge_softmax, edges, nb),
            ops.explain(ops.aggregate, edges, x, nb),
            ops.explain(ops.additive_attention, x, edges, edges, nb),
            ops.explain(
                ops.additive_score, x, x, x[0], nb, edge_features=edges, edge_matrix=matrix
            ),
        ]
        return [explanation.chosen for explanation in asked]

    assert chosen() == ["torch_csr"] * 5
    monkeypatch.setattr(triton_csr, "triton_objections", lambda device: [])
    assert chosen() == ["triton_csr"] * 5
    largest = ops.explain(ops.aggregate, edges, x, nb, "max")
    assert largest.chosen == "torch_csr"
    assert "no kernel for reduce='max'" in largest.reasons["triton_csr"]
