"""Derivatives by finite differences, registration with torch, compiled layers, long indices."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from battery.answers import OPERATIONS, Operation, Tensors
from battery.draw import Case
from battery.line import Line, timed
from graphtheory import Neighborhood, nn, ops
from graphtheory.graph.csr import csr_from_edges

CASES, SHAPES, ARGUMENTS = 400, 20, 6
COMPILERS = ("aot_eager", "inductor")  # the traced graph step by step; code made of it
LAYERS: dict[str, Callable[[], Any]] = {
    "GATConv": lambda: nn.GATConv(8, 4, heads=2),
    "GATv2Conv": lambda: nn.GATv2Conv(8, 4, heads=2),
    "TransformerConv": lambda: nn.TransformerConv(8, 4, heads=2),
    "GCNConv": lambda: nn.GCNConv(8, 4),
    "SPDTransformerConv": lambda: nn.SPDTransformerConv(8, 4, heads=2),
}
_LONG, _FEW = 2**31, 200


class _Wrong(torch.autograd.Function):
    """The identity with a gradient a hundredth too large, itself taken for a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        return 1.01 * grads[0].detach()


def by_differences(share: float, seed: int) -> list[Line]:
    """First and second derivatives of every operation on random neighborhoods, in float64.

    Of up to 200 inputs entry by entry, of more along random directions.
    """
    control = "a gradient a hundredth too large, a constant for the second"
    first = Line("derivatives", "every gradient agrees with finite differences", control)
    second = Line(
        "derivatives", "every gradient's gradient agrees with finite differences, or is refused "
        "in a sentence", control,
    )  # fmt: skip
    with timed(first), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(max(4, round(share * CASES))):
            case = Case.draw(number, seed)
            operation = OPERATIONS[number % len(OPERATIONS)]
            tensors = operation.tensors(case)
            for backend in ops.backend_names(operation.function):
                _differences(first, second, operation, case, tensors, backend)
    return [first, second]


def _differences(
    first: Line, second: Line, operation: Operation, case: Case, tensors: Tensors, backend: str
) -> None:
    doubles = {n: t.double() for n, t in tensors.items() if t.is_floating_point()}
    leaves = [t.requires_grad_() for t in doubles.values() if t.numel()]
    names = [n for n, t in doubles.items() if t.numel()]

    def call(*values: Tensor, spoil: bool = False) -> Tensor:
        given = tensors | doubles | dict(zip(names, values, strict=True))
        out = operation.call(given, case.neighborhood, backend)
        return _Wrong.apply(out) if spoil else out  # type: ignore[no-untyped-call]

    try:
        if not leaves or not call(*leaves).numel():
            return
    except NotImplementedError:
        return  # it says that it does not take such a call
    where = f"{case.kind}, {operation.name} by {backend}"
    checks: tuple[tuple[Line, Callable[..., bool]], ...] = (
        (first, torch.autograd.gradcheck), (second, torch.autograd.gradgradcheck),
    )  # fmt: skip
    few = sum(t.numel() for t in leaves) <= _FEW
    for line, check in checks:
        line.trials += 1
        said = _checked(check, call, leaves, few)
        if line is second and said.startswith("NotImplementedError"):
            line.figures["refused"] = line.figures.get("refused", 0) + 1
        elif said:
            line.broken.append(f"{where}: {said}")
    if few and float(call(*leaves).abs().max()) > 0.1:
        for line, check in checks:
            line.planted += 1
            line.caught += bool(_checked(check, partial(call, spoil=True), leaves, few))


def _checked(
    check: Callable[..., bool], call: Callable[..., Tensor], leaves: list[Tensor], every: bool
) -> str:
    try:
        check(call, leaves, fast_mode=not every)
    except (RuntimeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


class _Seen(TorchDispatchMode):
    """Arguments of every op of ours that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, list[tuple[Any, ...]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "graphtheory":
            kept = self.calls.setdefault(func, [])
            if len(kept) < ARGUMENTS:
                kept.append(_again(args))
        return func(*args, **(kwargs or {}))


def _again(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return type(value)(map(_again, value)) if isinstance(value, (list, tuple)) else value


def registration(share: float, seed: int) -> list[Line]:
    """Schema, fake tensors and autograd of every registered op, with arguments it was called with.

    The share does not matter.
    """
    line = Line(
        "derivatives", "every op is registered as torch demands: schema, fake tensors, autograd",
        "an op whose fake result has another shape",
    )  # fmt: skip
    seen = _Seen()
    with timed(line), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(4 * 13):
            with seen:
                _call_everything(Case.draw(number, seed))
        for op, calls in seen.calls.items():
            for args in calls:
                line.trials += 1
                if said := _opcheck(op, args):
                    line.broken.append(f"{op}: {said}")
        known = {
            name.partition("::")[2]
            for name in torch._C._dispatch_get_all_op_names()
            if name.startswith("graphtheory::")
        }
        missing = known - {op.name().partition("::")[2].partition(".")[0] for op in seen.calls}
        line.figures = {"ops": len(seen.calls), "not called": ", ".join(sorted(missing)) or "none"}
        line.planted, line.caught = 1, int(bool(_opcheck(_misregistered(), (torch.rand(3),))))
    return [line]


def _opcheck(op: Any, args: tuple[Any, ...]) -> str:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    try:
        torch.library.opcheck(op, args, test_utils=tests)
    except Exception as error:  # of many classes
        return str(error)[-300:]
    return ""


def _misregistered() -> Any:
    @torch.library.custom_op("battery::misregistered", mutates_args=())
    def op(x: Tensor) -> Tensor:
        return x.clone()

    op.register_fake(lambda x: x.new_empty(len(x) + 1))
    return torch.ops.battery.misregistered.default


def _call_everything(case: Case) -> None:
    nb, heads, dim = case.neighborhood, 2, 4
    for operation in OPERATIONS:
        tensors = operation.tensors(case)
        leaves = {n: t.requires_grad_() for n, t in tensors.items() if t.is_floating_point()}
        operation.call(tensors | leaves, nb, None).sum().backward()
    query, key = (case.normal(n, heads, dim).requires_grad_() for n in (nb.num_dst, nb.num_src))
    ops.edge_softmax(ops.edge_dot(query, key, nb), nb).sum().backward()
    att = case.normal(heads, dim).requires_grad_()
    ops.additive_score(key, query, att, nb).sum().backward()
    features = ops.EdgeFeatures(case.normal(nb.num_edges, 3), query=case.normal(nb.num_dst, 2, 3))
    ops.attention(query, key, key, nb, edges=features)[0].sum().backward()  # type: ignore[union-attr]
    edge_index = nb.edge_index()
    csr_from_edges(edge_index.long(), nb.num_src, nb.num_dst)
    Neighborhood.from_edge_index(
        edge_index.long(), num_src=nb.num_src, num_dst=nb.num_dst
    ).transpose()


def compiled(share: float, seed: int) -> list[Line]:
    """Layers compiled once with dynamic shapes, by each of `COMPILERS`."""
    lines = []
    for compiler in COMPILERS:
        line = Line(
            "derivatives", f"a layer compiled by {compiler}, whole and with dynamic shapes, equals "
            "the one that is not, outputs and gradients",
            "a layer whose weights are a thousandth larger",
        )  # fmt: skip
        with timed(line):
            for name, make in LAYERS.items():
                _compiled(line, compiler, name, make, max(3, round(share * SHAPES)), seed)
        lines.append(line)
    return lines


def _compiled(
    line: Line, compiler: str, name: str, make: Callable[[], Any], shapes: int, seed: int
) -> None:
    torch.manual_seed(seed)
    torch._dynamo.reset()
    layer = make()
    fast = torch.compile(layer, fullgraph=True, dynamic=True, backend=compiler)
    for number in range(shapes):
        generator = torch.Generator().manual_seed(number)
        nodes = 5 + 3 * number
        x = torch.randn(nodes, 8, generator=generator)
        edges = torch.randint(nodes, (2, 4 * nodes + number), generator=generator)
        line.trials += 1
        expected = _with_gradients(layer, layer, x, edges)
        if not _near(_with_gradients(fast, layer, x, edges), expected):
            line.broken.append(f"{name}, {nodes} nodes")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1.001)
    line.planted += 1
    line.caught += not _near(_with_gradients(fast, layer, x, edges), expected)


def _with_gradients(call: Any, layer: Any, x: Tensor, edges: Tensor) -> list[Tensor]:
    out = call(x, edges)
    return [out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]


def _near(found: list[Tensor], expected: list[Tensor]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


def long_offsets(share: float, seed: int) -> list[Line]:
    """Rows of values beyond 2^31 entries, in a file with holes; gradients too at share 1."""
    line = Line(
        "derivatives", "values beyond 2^31 entries are read where they are, forward, by every "
        "backend", "an offset in 32 bits",
    )  # fmt: skip
    dim, rows = 2**15, 2**16 + 8
    with timed(line), _holes(rows, dim) as flat:
        value = flat.view(rows, 1, dim)
        sources = torch.tensor([1, rows - 3, rows - 1])
        for place in sources.tolist():
            value[place] = float(place)
        graph = Neighborhood.from_edge_index(
            torch.stack([sources, torch.arange(3)]), num_src=rows, num_dst=3
        )
        query, weights = torch.zeros(3, 1, dim), torch.ones(3, 1)
        calls = {
            ops.attention: lambda b: ops.attention(query, value, value, graph, backend=b),
            ops.aggregate: lambda b: ops.aggregate(weights, value, graph, backend=b),
        }
        for function, call in calls.items():
            for backend in ops.backend_names(function):
                with torch.no_grad():
                    try:
                        found = call(backend)
                    except NotImplementedError:
                        continue
                line.trials += 1
                if not torch.equal(found[:, 0, 0], sources.float()):
                    line.broken.append(f"{function.__name__} by {backend}: {found[:, 0, 0]}")
        wrapped = [_in_32_bits(place * dim) for place in sources.tolist()]
        line.planted = sum(place * dim >= _LONG for place in sources.tolist())
        line.caught = sum(place < 0 or float(flat[place]) == 0 for place in wrapped[1:])
    return [line, _long_gradients(dim, rows)] if share >= 1 else [line]


def _in_32_bits(place: int) -> int:
    return (place + _LONG) % 2**32 - _LONG


def _long_gradients(dim: int, rows: int) -> Line:
    """A gradient of more than 2^31 entries, 9 GB, and as many edges times heads; fused loops."""
    line = Line(
        "derivatives", "gradients beyond 2^31 entries, and edges times heads beyond it, by the "
        "fused loops", "an offset in 32 bits",
    )  # fmt: skip
    with timed(line), _holes(rows, dim) as flat:
        value, sources = flat.view(rows, 1, dim).requires_grad_(), torch.tensor([1, rows - 1])
        graph = Neighborhood.from_edge_index(
            torch.stack([sources, torch.arange(2)]), num_src=rows, num_dst=2
        )
        out = ops.aggregate(torch.ones(2, 1), value, graph, backend="numba_csr")
        found = torch.autograd.grad(out, value, torch.ones_like(out))[0][:, 0, ::1024]
        line.trials += 1
        if float(found.sum()) != 2 * dim / 1024 or not bool((found[sources] == 1).all()):
            line.broken.append("gradient of the values of aggregate")
        del found
    heads, edges, nodes = 2**12, 2**19 + 8, 8
    with timed(line), _holes(edges, heads) as flat:
        weights = flat.view(edges, heads)
        weights[-1] = 2.0
        rank = torch.arange(edges)
        graph = Neighborhood.from_edge_index(
            torch.stack([rank % nodes, rank * nodes // edges]), num_src=nodes, num_dst=nodes
        )
        value = torch.arange(1.0, nodes + 1).view(-1, 1, 1).repeat(1, heads, 1).requires_grad_()
        out = ops.aggregate(weights, value, graph, backend="numba_csr")
        grad = torch.autograd.grad(out, value, torch.ones_like(out))[0]
        line.trials += 1
        if not bool((out[-1] == 2 * nodes).all() and (grad[-1] == 2).all()):
            line.broken.append("aggregate of edges times heads")
        if bool(out[:-1].any()) or bool(grad[:-1].any()):
            line.broken.append("aggregate of edges times heads: other rows")
    for last in ((rows - 1) * dim, (edges - 1) * heads):
        line.planted += 1
        line.caught += _in_32_bits(last) < 0
    return line


@contextmanager
def _holes(rows: int, columns: int) -> Iterator[Tensor]:
    """float32 zeros of a file that takes no space until they are written."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(4 * rows * columns)
        yield torch.from_file(file.name, shared=True, size=rows * columns)


def derivatives(share: float, seed: int) -> list[Line]:
    """All checks of derivatives of this module."""
    parts = (by_differences, registration, compiled, long_offsets)
    return [line for part in parts for line in part(share, seed)]
