"""The op that a trace sees and the function that a plain call runs are one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphtheory import Neighborhood, ops
from graphtheory.ops.operator import Operator

calls: list[str] = []


def _scaled(x: Tensor, many: Sequence[Tensor], factor: float) -> tuple[Tensor, Tensor]:
    calls.append("function")
    return x * factor * many[0], x + 1


scaled = Operator("graphtheory_test::scaled", "x:X many:tensors factor:float", ["X", "X"], _scaled)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, parts, ctx.factor = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*parts)


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Any, ...]:
    return scaled(grad, list(ctx.saved_tensors), ctx.factor)[0], [None], None


scaled.register_autograd(_backward, setup_context=_save)


flat = Operator(
    "graphtheory_test::flat", "x:X", ["X"], lambda x: torch.from_numpy(x.numpy().sum(keepdims=True))
)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _leaf() -> tuple[Tensor, list[Tensor]]:
    return torch.tensor([1.0, 2.0], requires_grad=True), [torch.tensor([3.0, 5.0])]


def test_both_ways_have_the_same_value_and_every_derivative() -> None:
    def run(call: Any) -> list[Tensor]:
        x, parts = _leaf()
        out = call(x, parts, 2.0)[0]
        (first,) = torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return [out.detach(), first.detach(), second]

    direct, through = run(scaled), run(scaled.op)
    assert all(a.equal(b) for a, b in zip(direct, through, strict=True))
    assert direct[2].equal(torch.tensor([72.0, 200.0]))  # 2 (2 * 3)^2 and 2 (2 * 5)^2
    _, parts = _leaf()
    x = torch.tensor([1.0, 2.0], requires_grad=True)  # as the parameters of a layer do
    first = torch.func.grad(lambda x: scaled(x, parts, 2.0)[0].pow(2).sum())
    assert first(x).equal(torch.tensor([72.0, 400.0]))
    assert torch.func.grad(lambda x: first(x).sum())(x).equal(torch.tensor([72.0, 200.0]))


@pytest.mark.parametrize("again", [False, True])
def test_gradients_of_functions_leave_the_neighborhood_as_it_was(again: bool) -> None:
    nb = Neighborhood.from_edge_index(torch.randint(5, (2, 15)), num_nodes=5)
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        weights = ops.edge_softmax(ops.edge_dot(x, x, nb), nb)
        return ops.aggregate(weights, x, nb).pow(2).sum()

    first = torch.func.grad(loss)
    second = torch.func.grad(lambda x: first(x).pow(2).sum())(x)
    if again:
        second = torch.func.grad(lambda x: first(x).pow(2).sum())(x)
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    torch.testing.assert_close(first(x), slope.detach())
    torch.testing.assert_close(second, torch.autograd.grad(slope.pow(2).sum(), leaf)[0])


def test_an_output_without_gradient_has_none() -> None:
    x, parts = _leaf()
    first, second = scaled(x, parts, 2.0)
    assert first.requires_grad and not second.requires_grad


def test_a_mode_sees_the_op_and_a_plain_call_does_not_pass_the_dispatcher() -> None:
    x, parts = _leaf()
    with Seen() as seen:
        scaled(x, parts, 2.0)
    assert "graphtheory_test.scaled.default" in seen.names
    with torch.profiler.profile() as profile:
        scaled(x, parts, 2.0)
    passed = [event.key for event in profile.key_averages()]
    assert "aten::mul" in passed and not any("graphtheory_test" in name for name in passed)


@pytest.mark.parametrize("transform", ["vmap", "jit", "fake", "compile"])
def test_what_traces_gets_the_op_and_never_a_constant(transform: str) -> None:
    x, parts = torch.ones(2), [torch.tensor([3.0, 5.0])]
    before = len(calls)
    if transform == "vmap":
        batch = torch.arange(6.0).view(2, 3).T  # entries are columns, factors come in a list
        mapped = torch.func.vmap(lambda a, b: scaled(a, [b], 2.0), in_dims=(1, 0))
        double, more = mapped(batch.T, parts[0].expand(3, 2))
        assert double.equal(batch * torch.tensor([6.0, 10.0])) and more.equal(batch + 1)
        assert len(calls) == before + 3
    elif transform == "jit":
        with pytest.warns(DeprecationWarning):
            traced = torch.jit.trace(lambda a: scaled(a, parts, 2.0)[0], (x,))
        assert traced(2 * x).equal(torch.tensor([12.0, 20.0]))
    elif transform == "fake":
        from torch._subclasses import FakeTensorMode

        fakes = FakeTensorMode()
        given = fakes.from_tensor(x), [fakes.from_tensor(parts[0])]
        assert type(scaled(*given, 2.0)[0]) is type(given[0]) and len(calls) == before
    else:
        compiled = torch.compile(
            lambda a: scaled(a, parts, 2.0)[0] + 1, fullgraph=True, backend="eager"
        )
        assert compiled(x).equal(torch.tensor([7.0, 11.0]))
        assert compiled(2 * x).equal(torch.tensor([13.0, 21.0]))


def test_without_a_gradient_it_is_asked_of_the_op_which_refuses() -> None:
    assert flat(torch.ones(3)).item() == 3
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert flat(x.detach()).item() == 3
    with pytest.raises(RuntimeError, match="autograd"):
        flat(x).sum().backward()


def test_forward_mode_is_refused_by_name() -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
    q = torch.randn(2, 1, 3)
    message = "graphtheory::.*: no forward-mode derivatives"
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jvp(lambda z: ops.attention(q, q, z, nb), (q,), (q,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        with pytest.raises(NotImplementedError, match=message):
            ops.attention(q, q, dual, nb)
        ops.attention(q, q, q, nb)
    with pytest.raises(NotImplementedError, match=message):
        torch.func.hessian(lambda z: ops.attention(q, q, z, nb).square().sum())(q)
    with pytest.raises(NotImplementedError, match=message):
        torch.autograd.functional.jacobian(
            lambda z: ops.attention(q, q, z, nb), q, vectorize=True, strategy="forward-mode"
        )
