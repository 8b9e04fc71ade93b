"""Every operation under every transform of torch, as docs/tools.md says."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import functional
from torch.func import grad, jacfwd, jacrev, vjp
from torch.func import vmap as torch_vmap

from graphtheory import Neighborhood, causal, cliques
from graphtheory.ops.backends import numba_csr
from tests.ops.test_every_operation import OPERATIONS, SETS, WITH_SETS

# torch tells of its own operations that it maps one by one.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
vmap: Any = partial(torch_vmap, randomness="same")  # dropout draws by a generator of its own
NB = Neighborhood.from_edge_index(torch.tensor([[3, 2, 1, 1, 0, 0], [3, 0, 2, 1, 0, 2]]))
Loss = Callable[..., Tensor]


def drawn(name: str, nb: Neighborhood) -> list[Tensor]:
    return [t.detach() for t in OPERATIONS[name].leaves(nb)]


def of_autograd(loss: Loss, given: list[Tensor]) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in given]
    return list(torch.autograd.grad(loss(*leaves), leaves, materialize_grads=True))


def by_grad(loss: Loss, given: list[Tensor]) -> Any:
    return list(grad(loss, tuple(range(len(given))))(*given)), of_autograd(loss, given)


def by_vjp(loss: Loss, given: list[Tensor]) -> Any:
    out, back = vjp(loss, *given)
    return list(back(torch.ones_like(out))), of_autograd(loss, given)


def by_jacrev(loss: Loss, given: list[Tensor]) -> Any:
    return list(jacrev(loss, tuple(range(len(given))))(*given)), of_autograd(loss, given)


def two(given: list[Tensor]) -> list[Tensor]:
    return [torch.stack([t, t.flip(0) * 0.7]) for t in given]


def by_vmap(loss: Loss, given: list[Tensor]) -> Any:
    many = two(given)
    return vmap(loss)(*many), torch.stack([loss(*(t[i] for t in many)) for i in range(2)])


def by_vmap_of_grad(loss: Loss, given: list[Tensor]) -> Any:
    many, all_of = two(given), tuple(range(len(given)))
    wanted = [of_autograd(loss, [t[i] for t in many]) for i in range(2)]
    found = vmap(grad(loss, all_of))(*many)
    return list(found), [torch.stack(parts) for parts in zip(*wanted, strict=True)]


def by_vmap_of_grad_of_one(loss: Loss, given: list[Tensor]) -> Any:
    """The first argument alone is a batch, along its last axis."""
    many = torch.stack([given[0], 0.5 * given[0]], -1)
    found = vmap(grad(loss), in_dims=(-1, *[None] * (len(given) - 1)), out_dims=-1)(
        many, *given[1:]
    )
    wanted = [of_autograd(loss, [many[..., i], *given[1:]])[0] for i in range(2)]
    return found, torch.stack(wanted, -1)


def by_grad_of_vmap(loss: Loss, given: list[Tensor]) -> Any:
    many, all_of = two(given), tuple(range(len(given)))
    found = grad(lambda *parts: vmap(loss)(*parts).sum(), all_of)(*many)
    wanted = [of_autograd(loss, [t[i] for t in many]) for i in range(2)]
    return list(found), [torch.stack(parts) for parts in zip(*wanted, strict=True)]


def by_vmap_of_vmap_of_grad(loss: Loss, given: list[Tensor]) -> Any:
    many = [torch.stack([t, -t]) for t in two(given)]
    found = vmap(vmap(grad(loss)))(*many)
    wanted = [[of_autograd(loss, [t[i, j] for t in many])[0] for j in range(2)] for i in range(2)]
    return found, torch.stack([torch.stack(row) for row in wanted])


def by_grad_of_grad(loss: Loss, given: list[Tensor]) -> Any:
    first = grad(lambda *parts: grad(loss)(*parts).sin().sum())
    leaves = [t.clone().requires_grad_() for t in given]
    slope = torch.autograd.grad(loss(*leaves), leaves[0], create_graph=True)[0].sin().sum()
    return first(*given), torch.autograd.grad(slope, leaves[0], materialize_grads=True)[0]


def by_grad_of_another_grad(loss: Loss, given: list[Tensor]) -> Any:
    """By the last argument of the slope by the first: the inner call needs no gradient by it."""
    first = grad(lambda last: grad(loss)(*given[:-1], last).sin().sum())
    leaves = [t.clone().requires_grad_() for t in given]
    slope = torch.autograd.grad(loss(*leaves), leaves[0], create_graph=True)[0].sin().sum()
    wanted = torch.autograd.grad(slope, leaves[-1], materialize_grads=True, allow_unused=True)[0]
    return first(given[-1]), wanted


def with_square(loss: Loss, *given: Tensor) -> Tensor:
    return torch.stack([loss(*given), loss(*given).square()])


def by_batch_of_gradients(loss: Loss, given: list[Tensor]) -> Any:
    leaves = [t.clone().requires_grad_() for t in given]
    found = torch.autograd.grad(
        with_square(loss, *leaves), leaves, torch.eye(2, dtype=torch.float64),
        is_grads_batched=True, materialize_grads=True,
    )  # fmt: skip
    wanted = [
        of_autograd(lambda *parts, k=k: with_square(loss, *parts)[k], given) for k in range(2)
    ]
    return list(found), [torch.stack(parts) for parts in zip(*wanted, strict=True)]


def by_grad_of_batch_of_gradients(loss: Loss, given: list[Tensor]) -> Any:
    found = []
    for batched in (True, False):
        leaves = [t.clone().requires_grad_() for t in given]
        out, eye = with_square(loss, *leaves), torch.eye(2, dtype=torch.float64)
        again = partial(torch.autograd.grad, out, leaves[0], create_graph=True)
        if batched:
            slope = again(eye, is_grads_batched=True)[0]
        else:
            slope = torch.stack([again(up, retain_graph=True)[0] for up in eye])
        found.append(torch.autograd.grad(slope.sin().sum(), leaves, materialize_grads=True))
    return found


def by_vectorized_jacobian(loss: Loss, given: list[Tensor]) -> Any:
    run = partial(with_square, loss)
    return [functional.jacobian(run, tuple(given), vectorize=on) for on in (True, False)]


def by_vectorized_hessian(loss: Loss, given: list[Tensor]) -> Any:
    def of_first(first: Tensor) -> Tensor:
        return loss(first, *given[1:])

    return [functional.hessian(of_first, given[0], vectorize=on) for on in (True, False)]


def by_compile(loss: Loss, given: list[Tensor]) -> Any:
    return of_autograd(torch.compile(loss, backend="eager"), given), of_autograd(loss, given)


TRANSFORMS = {
    by.__name__: by
    for by in (
        by_grad, by_vjp, by_jacrev, by_vmap, by_vmap_of_grad, by_vmap_of_grad_of_one,
        by_grad_of_vmap, by_vmap_of_vmap_of_grad, by_grad_of_grad,
        by_grad_of_another_grad, by_batch_of_gradients, by_grad_of_batch_of_gradients,
        by_vectorized_jacobian, by_vectorized_hessian, by_compile,
    )
}  # fmt: skip
REFUSED = {
    "jvp": lambda loss, given: torch.func.jvp(loss, tuple(given), tuple(given)),
    "jacfwd": lambda loss, given: jacfwd(loss, randomness="same")(*given),
    "hessian": lambda loss, given: jacfwd(jacrev(loss), randomness="same")(*given),
    "vmap of jvp": lambda loss, given: vmap(
        lambda *parts: torch.func.jvp(loss, parts, parts)[1]
    )(*two(given)),
}  # fmt: skip


def loss_of(name: str, nb: Neighborhood, backend: str) -> Loss:
    return lambda *parts: OPERATIONS[name].run(nb, backend, *parts).sin().sum()


@pytest.mark.parametrize("by", TRANSFORMS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_under_a_transform_is_what_autograd_gives(name: str, by: str) -> None:
    others = () if "given order" in name else (cliques([3, 3]), causal([4]))
    for nb, backend in ((NB, "numba_csr"), *((nb, "reference") for nb in others)):
        found, wanted = TRANSFORMS[by](loss_of(name, nb, backend), drawn(name, nb))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("by", ["by_batch_of_gradients", "by_vectorized_hessian"])
@pytest.mark.parametrize(("name", "graph", "backend"), WITH_SETS)
def test_batches_of_gradients_of_sets(name: str, graph: str, backend: str, by: str) -> None:
    nb = SETS[graph]
    torch.testing.assert_close(*TRANSFORMS[by](loss_of(name, nb, backend), drawn(name, nb)))


@pytest.mark.parametrize("by", REFUSED)
def test_forward_derivatives_are_refused_by_name(by: str) -> None:
    for name in OPERATIONS:
        with pytest.raises(NotImplementedError, match=r"graphtheory::.*forward"):
            REFUSED[by](loss_of(name, NB, "numba_csr"), drawn(name, NB))
            pytest.fail(f"{name} is accepted")


@pytest.mark.parametrize("by", ["by_grad_of_another_grad", "by_grad_of_vmap"])
def test_a_backend_that_asks_the_innermost_call_alone_is_seen(by, monkeypatch) -> None:
    monkeypatch.setattr(numba_csr, "innermost_transform", lambda: None)
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        test_an_operation_under_a_transform_is_what_autograd_gives("attention", by)
