"""The transposed structure of the primitives is made for gradients alone."""

from __future__ import annotations

import torch

from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import Call, structure
from tests.conformance.check import GRAPHS

NAME = "numba_csr"


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
