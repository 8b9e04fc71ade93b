"""edge_dot, edge_softmax, aggregate and sums of messages on every backend against float64."""

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.ops import reference
from tests.conformance import check
from tests.conformance.check import FEW, GRAPHS, NARROW, SIZES, TYPED_SIZES, is_slow, runs_here
from tests.conftest import case

TOLERANCE = {torch.float64: 1e-12, torch.float32: 5e-6}
# Shapes of an operation's tensors, from (neighborhood, heads, head_dim).
SHAPES: dict[str, Callable[[Neighborhood, int, int], list[tuple[int, ...]]]] = {
    "edge_dot": lambda nb, h, d: [(nb.num_dst, h, d), (nb.num_src, h, d)],
    "edge_softmax": lambda nb, h, d: [(nb.num_edges, h)],
    "aggregate": lambda nb, h, d: [(nb.num_edges, h), (nb.num_src, h, d)],
}
SHAPES["relu_sum"] = lambda nb, h, d: [(nb.num_src, h, d), (nb.num_edges, h, d)]
TERMS = {  # of the gates
    "source": lambda nb, d: (nb.num_src, d), "target": lambda nb, d: (nb.num_dst, d),
    "edge": lambda nb, d: (nb.num_edges, d),
}  # fmt: skip
SHAPES |= {
    f"gated_sum from {' '.join(terms)}": lambda nb, h, d, terms=terms: [
        (nb.num_src, h, d), *(TERMS[term](nb, d) for term in terms)
    ]
    for terms in (("source", "target"), ("edge",), tuple(TERMS))
}  # fmt: skip
SHAPES |= {f"aggregate by {r}": SHAPES["aggregate"] for r in ("mean", "max", "min")}


def called(name: str, of: object) -> Callable[..., Tensor]:
    """An operation of a module by name, with its reduction or the terms of its gates."""
    name, _, terms = name.partition(" from ")
    if terms:
        return partial(gated, of, terms.split())
    name, _, reduce = name.partition(" by ")
    return partial(getattr(of, name), reduce=reduce) if reduce else getattr(of, name)


def gated(of: object, terms: list[str], value: Tensor, *rest: Any, **options: Any) -> Tensor:
    """A gated sum whose terms stand before the neighborhood, by the definition or by `ops`."""
    *tensors, nb = rest
    given = dict(zip(terms, tensors, strict=True))
    if of is reference:
        return reference.gated_sum(value, *map(given.get, TERMS), nb)
    return ops.gated_sum(value, nb, **given, **options)


def run_by(backend: str, name: str) -> Callable[..., Tensor]:
    return partial(called(name, ops), backend=backend)


def draw(name: str, nb: Neighborhood, nodes: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    shapes = SHAPES[name](nb, *SIZES[nodes])
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


@cache
def ran_by(*names: str) -> list[tuple[str, str]]:
    """(operation, backend) for every registered backend that runs the operation on a CPU."""
    nb, pairs = FEW, []
    for name in names:
        inputs = draw(name, nb, 7, torch.float32)
        function, _, reduce = name.partition(" by ")
        options: dict[str, Any] = {"reduce": reduce} if reduce else {}
        function, _, terms = function.partition(" from ")
        if terms:
            inputs, options = inputs[:1], dict(zip(terms.split(), inputs[1:], strict=True))
        pairs += [(name, b) for b in runs_here(getattr(ops, function), *inputs, nb, **options)]
    return [(name, backend) for name, backend in pairs if backend != "reference"]


EVERY = pytest.mark.parametrize(("name", "backend"), ran_by(*SHAPES))
OF_SOFTMAX = pytest.mark.parametrize("backend", [b for _, b in ran_by("edge_softmax")])


def results(
    run: Callable[..., Tensor], leaves: list[Tensor], nb: Neighborhood, grad: Tensor | None = None
) -> list[Tensor]:
    """The output, and the gradients for a gradient of ones or the given one."""
    out = run(*leaves, nb)
    grad = torch.linspace(-1, 1, out.numel()).view_as(out) if grad is None else grad
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


def conforms(graph: str, nodes: int, dtype: torch.dtype, name: str, backends: list[str]) -> None:
    nb = GRAPHS[graph](nodes)
    leaves = draw(name, nb, nodes, dtype)
    exact_leaves = [t.detach().double().requires_grad_() for t in leaves]
    true = results(called(name, reference), exact_leaves, nb)
    plain = results(called(name, reference), leaves, nb)
    for backend in backends:
        found = results(run_by(backend, name), leaves, nb)
        with case(backend, graph, nodes, dtype):
            check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_and_gradients(name: str) -> None:
    for graph, (nodes, dtype) in product(GRAPHS, TYPED_SIZES):
        backends = [b for _, b in ran_by(name) if not is_slow(graph, dtype, b)]
        conforms(graph, nodes, dtype, name, backends)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_narrow_ids_with_sums_in_float64(name: str) -> None:
    backends = [b for _, b in ran_by(name) if is_slow(NARROW, torch.float64, b)]
    for nodes in SIZES:
        conforms(NARROW, nodes, torch.float64, name, backends)


@pytest.mark.usefixtures("poisoned_memory")
@EVERY
def test_nothing_is_read_before_it_is_written(backend: str, name: str) -> None:
    for make in GRAPHS.values():
        nb = make(7)
        assert all(
            t.isfinite().all()
            for t in results(run_by(backend, name), draw(name, nb, 7, torch.float32), nb)
        )


@EVERY
def test_strides_do_not_matter(backend: str, name: str) -> None:
    nb = GRAPHS["random"](7)
    leaves = draw(name, nb, 7, torch.float32)
    strided = [t.detach().repeat_interleave(2, -1)[..., ::2].requires_grad_() for t in leaves]
    assert not any(t.is_contiguous() for t in strided)
    one = torch.tensor(1.0).expand(results(run_by(backend, name), leaves, nb)[0].shape)
    plain = results(run_by(backend, name), leaves, nb, one.contiguous())
    views = results(run_by(backend, name), strided, nb, one)
    assert all(torch.equal(a, b) for a, b in zip(plain, views, strict=True))


@OF_SOFTMAX
def test_rows_of_minus_infinity_and_nan_stay_to_themselves(backend: str) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 0, 1], [0, 0, 1, 1]]))
    logits = torch.tensor([[-torch.inf], [-torch.inf], [-torch.inf], [3e38]], requires_grad=True)
    weights = ops.edge_softmax(logits, nb, backend=backend)
    assert weights.flatten().tolist() == [0, 0, 0, 1]
    (grad,) = torch.autograd.grad(weights, logits, torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert grad.eq(0).all()
    nb = GRAPHS["random"](63)
    logits = torch.zeros(nb.num_edges, 2)
    logits[10] = torch.nan
    rows = nb.targets() == nb.targets()[10]
    weights = ops.edge_softmax(logits, nb, backend=backend)
    assert weights[rows].isnan().all() and weights[~rows].isfinite().all()


def test_aggregate_takes_the_weight_of_the_neighborhood() -> None:
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2, weight=weight.flip(0))
    value = torch.tensor([[[1.0], [10.0]], [[100.0], [1000.0]]])
    out = ops.aggregate(None, value, nb)
    assert out.flatten().tolist() == [0, 0, 203, 2030]
    out[1, 0].backward()
    assert weight.grad.tolist() == [100, 1]  # of node 1, then of node 0


@pytest.mark.parametrize("backend", [b for _, b in ran_by("aggregate by max")])
@pytest.mark.parametrize(("reduce", "best"), [("max", 2.0), ("min", -3.0)])
def test_equal_edges_share_the_gradient_of_the_largest(backend, reduce, best) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2, 2], [0, 0, 0, 1]]), 3)
    value = torch.tensor([[[1.0]], [[best / 2]], [[best]]], requires_grad=True)
    weights = torch.tensor([[0.0], [2.0], [1.0], [0.0]], requires_grad=True)
    out = ops.aggregate(weights, value, nb, reduce, backend=backend)
    assert out.flatten().tolist() == [best, 0, 0]
    grads = torch.autograd.grad(
        out, (weights, value), torch.tensor([4.0, 8.0, 16.0])[:, None, None]
    )
    assert [g.flatten().tolist() for g in grads] == [[0, best, 2 * best, 8 * best], [0, 4, 2]]


@pytest.mark.parametrize("backend", [b for _, b in ran_by("aggregate by max")])
def test_the_largest_of_nan_is_nan(backend: str) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2, 0, 2], [0, 0, 0, 1, 1]]), 3)
    value = torch.tensor([1.0, torch.nan, 2.0])[:, None, None].expand(3, 1, 19)
    out = ops.aggregate(None, value, nb, "max", backend=backend)
    assert out[0].isnan().all() and out[1].eq(2).all()
