"""Second derivatives by `torch.func`, whose first pass has ended when the second one runs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.ops.test_every_operation import OPERATIONS, WITH_SETS, graph_of

CASES = [(name, "random", by) for name in OPERATIONS for by in OPERATIONS[name].backends]
CASES += [case for case in WITH_SETS if case[1] == "equal"]


def loss_of(name: str, graph: str, backend: str) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The first tensor of an operation, and a loss of it on which the others depend, too."""
    nb = graph_of(graph, 3)
    first, *others = (t.detach() for t in OPERATIONS[name].leaves(nb))

    def loss(v: Tensor) -> Tensor:
        rest = [t * (1 + v.mean()) for t in others]
        return OPERATIONS[name].run(nb, backend, v, *rest).pow(3).sum()

    return first, loss


def drawn_as(v: Tensor) -> Tensor:
    return torch.randn(v.shape, generator=torch.Generator().manual_seed(11), dtype=v.dtype)


@pytest.mark.parametrize(("name", "graph", "backend"), CASES)
def test_jacrev_and_vjp_of_a_gradient(name: str, graph: str, backend: str) -> None:
    v, loss = loss_of(name, graph, backend)
    weight = drawn_as(v[0]).requires_grad_()  # beside it, what torch.func follows says nothing

    def weighted(v: Tensor) -> Tensor:
        return loss(v * weight)

    wanted = torch.autograd.functional.hessian(weighted, v)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(weighted))(v), wanted)
    _, back = torch.func.vjp(torch.func.grad(weighted), v)
    up = drawn_as(v)
    along = (up.flatten() @ wanted.view(v.numel(), v.numel())).view_as(v)
    torch.testing.assert_close(back(up)[0], along)


@pytest.mark.parametrize(
    ("name", "graph", "backend"),
    [case for case in CASES if case[0] in (
        "relu_sum of a matrix", "gated_sum", "attention", "additive_score"
    ) and case[1] == "random"],
)  # fmt: skip
def test_third_derivatives(name: str, graph: str, backend: str) -> None:
    v, loss = loss_of(name, graph, backend)
    up = drawn_as(v)

    def curved(v: Tensor) -> Tensor:
        _, back = torch.func.vjp(torch.func.grad(loss), v)
        return back(up)[0]

    _, back = torch.func.vjp(curved, v)
    eps = 1e-5
    slope = ((curved(v + eps * up) - curved(v - eps * up)) / (2 * eps) * up).sum()
    torch.testing.assert_close((back(up)[0] * up).sum(), slope, rtol=1e-5, atol=1e-5)
