"""What gradients need: the transposed structure of primitives, and rows that a table gives."""

import torch

from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import Call, structure
from graphtheory.ops.look_up import look_up
from tests.conformance.check import GRAPHS


def test_the_transposed_structure_is_made_only_for_a_gradient() -> None:
    nb, numba_csr = GRAPHS["random"](6), BACKENDS["numba_csr"]
    tensor = torch.zeros(1)

    def parts(*tensors: torch.Tensor | None) -> list[torch.Tensor]:
        return structure(Call("aggregate", nb, tensors), numba_csr)

    assert len(parts(tensor, None)) == 2 and nb._transpose is None
    tensor.requires_grad_()
    with torch.no_grad():
        assert len(parts(tensor)) == 2
    found = parts(None, tensor)
    turned = nb.transpose()
    same = [nb.indptr, nb.indices, turned.indptr, turned.indices, turned.perm]
    assert all(a is b for a, b in zip(found, same, strict=True))


def test_as_indexing_and_beside_a_cpu_an_embedding() -> None:
    row = torch.tensor([2, 0, 2], dtype=torch.uint8)
    for shape in ((3,), (3, 4), (3, 2, 5)):
        table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        found = look_up(table, row)
        assert torch.equal(found, table[row.long()])
        (grad,) = torch.autograd.grad(found.sum(), table)
        assert grad.view(3, -1)[:, -1].tolist() == [1, 0, 2]
    table = torch.randn(3, device="meta", requires_grad=True)
    row = torch.zeros(7, dtype=torch.uint8, device="meta")
    assert look_up(table, row).shape == (7,)
    found = look_up(table[:, None, None].expand(3, 2, 5), row)
    assert found.shape == (7, 2, 5) and found.grad_fn is not None
    assert "Embedding" in type(found.grad_fn.next_functions[0][0]).__name__
