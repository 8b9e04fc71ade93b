"""The primitives as torch ops: registered as torch demands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from graphtheory.ops import additive, kernels
from graphtheory.ops.backends import numba_csr, torch_csr
from tests.conformance.check import GRAPHS

TRACED = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")  # without a gradient


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("graph", ["random", "no edges", "more receivers"])
def test_ops_are_registered_as_torch_demands(graph: str, dtype: torch.dtype) -> None:
    nb = GRAPHS[graph](6)
    generator = torch.Generator().manual_seed(0)
    turned = nb.transpose()
    parts = [nb.indptr, nb.indices, turned.indptr, turned.indices, turned.perm]

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    query, key = draw(nb.num_dst, 2, 3), draw(nb.num_src, 2, 3)
    logits = draw(nb.num_edges, 2)
    weights = torch.rand(nb.num_edges, 2, generator=generator).to(dtype).requires_grad_()
    ops = torch.ops.graphtheory
    # opcheck compares eager and traced gradients with tolerances meant for wider types
    checks = {} if dtype != torch.bfloat16 else {"test_utils": TRACED[:2]}
    torch.library.opcheck(ops.edge_dot, (query, key, parts), **checks)
    torch.library.opcheck(ops.aggregate, (weights, key, parts), **checks)
    torch.library.opcheck(ops.aggregate_by_sender, (weights, query, parts), **checks)
    torch.library.opcheck(ops.edge_softmax, (logits, nb.indptr, nb.indices), **checks)
    torch.library.opcheck(ops.edge_softmax_backward, (weights, logits, nb.indptr), **checks)


def test_a_backend_for_each_device() -> None:
    assert kernels.backend_for(torch.zeros(1)) is numba_csr
    assert kernels.backend_for(torch.zeros(1, device="meta")) is torch_csr


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What torch says of a GPU, and whether Triton is there."""
    gpu = SimpleNamespace(capability=(9, 0), triton=object(), hip=None, there=True)
    monkeypatch.setattr(kernels, "find_spec", lambda name: gpu.triton)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu.there)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: gpu.capability)
    return gpu


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"capability": (7, 5)}, ["compute capability 7.5, expected 8.0 or later"]),
        ({"triton": None}, ["triton is not installed"]),
        ({"there": False}, ["torch sees no GPU"]),
    ],
)
def test_triton_says_why_it_cannot(
    change: dict[str, object], words: list[str], a_gpu: SimpleNamespace
) -> None:
    vars(a_gpu).update(change)
    assert kernels.triton_objections(torch.device("cuda")) == words


def test_where_triton_can_it_runs_primitives_and_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from graphtheory.ops.backends import _triton_additive, triton_csr

    for module in (kernels, additive):
        monkeypatch.setattr(module, "triton_objections", lambda device: [])
    on_a_gpu = SimpleNamespace(device=torch.device("cuda"))
    assert kernels.backend_for(on_a_gpu) is triton_csr
    assert additive._backend(on_a_gpu) is _triton_additive
    assert kernels.backend_for(torch.zeros(1)) is numba_csr


def test_the_transposed_structure_is_made_only_for_a_gradient() -> None:
    nb = GRAPHS["random"](6)
    tensor = torch.zeros(1)
    assert len(kernels.structure(nb, tensor, None)) == 2
    assert nb._transpose is None
    tensor.requires_grad_()
    with torch.no_grad():
        assert len(kernels.structure(nb, tensor)) == 2
    parts = kernels.structure(nb, None, tensor)
    turned = nb.transpose()
    same = [nb.indptr, nb.indices, turned.indptr, turned.indices, turned.perm]
    assert all(a is b for a, b in zip(parts, same, strict=True))
