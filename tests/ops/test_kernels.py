"""The primitives as torch ops: registered as torch demands."""

from __future__ import annotations

import pytest
import torch

from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import Call
from graphtheory.ops.kernels import structure
from tests.conformance.check import GRAPHS

NAME = "numba_csr"
TRACED = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")  # without a gradient


@pytest.mark.parametrize(  # each graph in each type would prove no more
    ("graph", "dtype"),
    [
        ("random", torch.float64), ("random", torch.bfloat16), ("no edges", torch.float32),
        ("more targets", torch.float32),
    ],
)  # fmt: skip
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
    torch.library.opcheck(ops.edge_dot, (query, key, parts, NAME), **checks)
    torch.library.opcheck(ops.aggregate, (weights, key, parts, NAME), **checks)
    torch.library.opcheck(ops.aggregate_by_source, (weights, query, parts, NAME), **checks)
    torch.library.opcheck(ops.aggregate_max, (weights, key, parts, NAME), **checks)
    torch.library.opcheck(ops.edge_softmax, (logits, parts[:2], NAME), **checks)
    torch.library.opcheck(ops.edge_softmax_backward, (weights, logits, parts[:2], NAME), **checks)


def test_the_transposed_structure_is_made_only_for_a_gradient() -> None:
    nb, numba_csr = GRAPHS["random"](6), BACKENDS[NAME]
    tensor = torch.zeros(1)

    def parts(*tensors: torch.Tensor | None) -> list[torch.Tensor]:
        return structure(Call("aggregate", nb, tensors), numba_csr)

    assert len(parts(tensor, None)) == 2
    assert nb._transpose is None
    tensor.requires_grad_()
    with torch.no_grad():
        assert len(parts(tensor)) == 2
    found = parts(None, tensor)
    turned = nb.transpose()
    same = [nb.indptr, nb.indices, turned.indptr, turned.indices, turned.perm]
    assert all(a is b for a, b in zip(found, same, strict=True))
