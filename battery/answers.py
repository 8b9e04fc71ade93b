"""Right answers: every operation on every backend against float64 loops of their equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from battery import truth
from battery.draw import Case
from battery.line import Line, timed
from battery.pieces import FAULTS as PIECES
from battery.pieces import computed_as
from graphtheory import ops
from tests.conformance.check import BIASES, assert_conforms, draw_inputs
from tests.test_planted_faults import FAULTS

FULL, FAULTY = 10_000, 300  # cases
TOLERANCE = 5e-6  # in float32
BUCKETS = 5
_SLOPE = 0.2
# Of each tensor by itself, some of which are differences of equal terms.
_CONFORMS = {torch.float64: 1e-12, torch.float32: 10 * TOLERANCE}
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Operation:
    """One operation: tensors for a case, the library's call, and the truth.

    Attributes:
        name: Of the operation.
        function: Of `ops`; its backends are tried.
        tensors: Its differentiable inputs.
        call: (tensors, neighborhood, backend) -> output.
        true: (edges, float64 arrays, gradient from above) -> output and gradients by name.
    """

    name: str
    function: Callable[..., Tensor]
    tensors: Callable[[Case], Tensors]
    call: Callable[..., Tensor]
    true: Callable[..., truth.Named]


def nodes(case: Case) -> Tensors:
    """Query, key, value, and a bias of some kind or none."""
    heads, dim = int(case.rng.integers(1, 5)), int(case.rng.integers(1, 17))
    nb = case.neighborhood
    found = {"query": case.normal(nb.num_dst, heads, dim)}
    found |= {name: case.normal(nb.num_src, heads, dim) for name in ("key", "value")}
    if (kind := case.rng.integers(3)) == 1:
        bucket = torch.from_numpy(case.rng.integers(0, BUCKETS, nb.num_edges)).to(torch.uint8)
        found |= {"bucket": bucket, "table": case.normal(BUCKETS, heads)}
    elif kind == 2:
        bias = case.normal(nb.num_edges, heads)
        if case.rng.random() < 0.5:  # a third of the edges is masked
            bias = bias.masked_fill(
                torch.from_numpy(case.rng.random(bias.shape) < 1 / 3), -torch.inf
            )
        found["bias"] = bias
    return found


def _scores(case: Case) -> Tensors:
    value = nodes(case)["value"]
    sent = case.normal(case.neighborhood.num_src, value.size(1))
    received = case.normal(case.neighborhood.num_dst, value.size(1))
    return {"value": value, "sent": sent, "received": received}


def _weighted(case: Case) -> Tensors:
    value = nodes(case)["value"]
    return {"weights": case.normal(case.neighborhood.num_edges, value.size(1)), "value": value}


def _edge_features(case: Case) -> Tensors:
    value = nodes(case)["value"]
    features = case.normal(case.neighborhood.num_edges, *value.shape[1:])
    return {"value": value, "features": features}


def _gates(case: Case) -> Tensors:
    value = nodes(case)["value"]
    nb, dim, asked = case.neighborhood, value.size(2), int(case.rng.integers(1, 8))
    sizes = {"source": nb.num_src, "target": nb.num_dst, "edge": nb.num_edges}
    given = [name for bit, name in enumerate(sizes) if asked >> bit & 1]
    return {"value": value} | {name: case.normal(sizes[name], dim) for name in given}


def _bias(t: Tensors) -> Tensor | ops.BucketedBias | None:
    return ops.BucketedBias(t["bucket"], t["table"]) if "table" in t else t.get("bias")


def attention(t: Tensors, nb: Any, backend: str | None) -> Tensor:
    """Of the tensors that `nodes` draws."""
    return ops.attention(t["query"], t["key"], t["value"], nb, bias=_bias(t), backend=backend)


def _topk(t: Tensors, nb: Any, backend: str | None) -> Tensor:
    return ops.topk_attention(
        t["query"], t["key"], t["value"], nb, 3, bias=_bias(t), backend=backend
    )


def _true_attention(e: truth.Edges, a: truth.Named, grad: Any, most: int | None) -> truth.Named:
    bucket = a["bucket"].astype(int) if "bucket" in a else None
    bias = a.get("bias") if bucket is None else a["table"][bucket]
    found = truth.attention(e, a["query"], a["key"], a["value"], bias, grad, most)
    if bucket is not None:
        found["table"] = np.zeros_like(a["table"])
        np.add.at(found["table"], bucket, found.pop("bias"))
    return found


def _reduction(reduce: Any) -> Operation:
    return Operation(
        f"aggregate, {reduce}", ops.aggregate, _weighted,
        lambda t, nb, b: ops.aggregate(t["weights"], t["value"], nb, reduce, backend=b),
        lambda e, a, grad: truth.aggregate(e, a["weights"], a["value"], grad, reduce),
    )  # fmt: skip


OPERATIONS = (
    Operation("attention", ops.attention, nodes, attention, partial(_true_attention, most=None)),
    Operation(
        "topk_attention, k = 3", ops.topk_attention, nodes, _topk,
        partial(_true_attention, most=3),
    ),
    Operation(
        "additive_attention (GAT)", ops.additive_attention, _scores,
        lambda t, nb, b: ops.additive_attention(
            t["value"], t["sent"], t["received"], nb, negative_slope=_SLOPE, backend=b
        ),
        lambda e, a, grad: truth.additive_attention(
            e, a["value"], a["sent"], a["received"], grad, _SLOPE
        ),
    ),
    *(_reduction(reduce) for reduce in ("sum", "mean", "max", "min")),
    Operation(
        "relu_sum (GINE)", ops.relu_sum, _edge_features,
        lambda t, nb, b: ops.relu_sum(t["value"], t["features"], nb, backend=b),
        lambda e, a, grad: truth.relu_sum(e, a["value"], a["features"], grad),
    ),
    Operation(
        "gated_sum (gated GCN)", ops.gated_sum, _gates,
        lambda t, nb, b: ops.gated_sum(neighborhood=nb, backend=b, **t),
        lambda e, a, grad: truth.gated_sum(e, grad=grad, **a),
    ),
)  # fmt: skip


def right_answers(share: float, seed: int) -> list[Line]:
    """A line for each operation and backend."""
    return [line for one in OPERATIONS for line in _on_backends(one, round(share * FULL), seed)]


def _on_backends(
    operation: Operation, count: int, seed: int, backends: Sequence[str] = ()
) -> Iterator[Line]:
    lines: dict[str, Line] = {}
    for number in range(count):
        case = Case.draw(number, seed)
        tensors = operation.tensors(case)
        true, grad = true_of(operation, case, tensors)
        with computed_as(number):
            answers = found_by_all(operation, tensors, case, grad, backends)
        for backend, found in answers.items():
            what = f"{operation.name} by {backend}: output and every gradient within {TOLERANCE:g}"
            line = lines.setdefault(
                backend, Line("answers", what, "a sign or one entry of a result changed")
            )
            with timed(line):
                _compare(line, case, true, found, number)
    yield from lines.values()


def true_of(operation: Operation, case: Case, tensors: Tensors) -> tuple[truth.Named, Tensor]:
    """Output and gradients by name, and the gradient from above that they are of."""
    like = tensors["value"]
    grad = case.normal(case.neighborhood.num_dst, *like.shape[1:]).to(like.dtype)
    arrays = {name: t.double().numpy() for name, t in tensors.items()}
    return operation.true(case.edges, arrays, grad.double().numpy()), grad


def found_by(
    call: Callable[..., Tensor], tensors: Tensors, case: Case, grad: Tensor, backend: str | None
) -> Tensors:
    """What a backend makes of the same."""
    leaves = {n: t.detach().requires_grad_() for n, t in tensors.items() if t.is_floating_point()}
    return with_gradients(call(tensors | leaves, case.neighborhood, backend), leaves, grad)


def found_by_all(
    operation: Operation, tensors: Tensors, case: Case, grad: Tensor, backends: Sequence[str] = ()
) -> dict[str, Tensors]:
    """The same of every backend that takes such a call, or of some."""
    found = {}
    for backend in backends or ops.backend_names(operation.function):
        with suppress(NotImplementedError):  # it says that it does not take such a call
            found[backend] = found_by(operation.call, tensors, case, grad, backend)
    return found


def with_gradients(out: Tensor, leaves: Tensors, grad: Tensor) -> Tensors:
    """An output, and the gradients of its leaves by their names; zeros where it has none."""
    grads = torch.autograd.grad(out, list(leaves.values()), grad, allow_unused=True)
    zeros = {name: torch.zeros_like(t) for name, t in leaves.items()}
    named = {n: zeros[n] if g is None else g for n, g in zip(leaves, grads, strict=True)}
    return {"output": out.detach()} | named


def error(true: truth.Named, found: Tensors) -> tuple[float, str]:
    """The largest error relative to the case's largest true entry, and where it is.

    Output and gradients have one size: a gradient that is a difference of equal terms vanishes.
    """
    size = max(truth.size_of(expected) for expected in true.values())
    worst, where = 0.0, ""
    for name, expected in true.items():
        got = found[name].double().numpy()
        if got.shape != expected.shape:
            return np.inf, name
        if expected.size:
            off = np.nan_to_num(np.abs(got - expected), nan=np.inf, posinf=np.inf).max() / size
            worst, where = max((worst, where), (float(off), name))
    return worst, where


def _compare(line: Line, case: Case, true: truth.Named, found: Tensors, number: int) -> None:
    off, where = error(true, found)
    line.trials += 1
    line.figures["largest error"] = f"{max(float(line.figures.get('largest error', 0)), off):.1e}"
    if off > TOLERANCE:
        line.broken.append(f"case {number} ({case.kind}): {where} is off by {off:.1e}")
    spoiled = _spoiled(found, case)
    if spoiled is not None:
        line.planted += 1
        line.caught += error(true, spoiled)[0] > TOLERANCE


def _spoiled(found: Tensors, case: Case) -> Tensors | None:
    """One result with an entry changed by a thousandth of its size; None where all are zeros."""
    names = [name for name, t in found.items() if t.numel() and bool((t.abs() > 1e-2).any())]
    if not names:
        return None
    name = names[int(case.rng.integers(len(names)))]
    changed = found[name].clone()
    place = tuple((changed.abs() > 1e-2).nonzero()[0].tolist())
    changed[place] += 1e-3 * max(float(t.abs().max()) for t in found.values() if t.numel())
    return found | {name: changed}


def planted_faults(share: float, seed: int) -> list[Line]:
    """Faulty ways to compute attention, each on random neighborhoods until one shows it."""
    line = Line(
        "answers", "attention conforms with every bias and dropout where faulty kernels are tried",
        "faults of a kernel", least_caught=0.95,
    )  # fmt: skip
    alive = {name: run for name, (run, _) in FAULTS.items()}
    with timed(line):
        for number in range(max(20, round(share * FAULTY))):
            case = Case.draw(number, seed)
            dtype = (torch.float32, torch.float64)[number // 3 % 2]
            inputs = draw_inputs(case.neighborhood, 2, 8, BIASES[number % len(BIASES)], dtype)
            dropout = (0.0, 0.4)[number // 2 % 2]
            line.trials += 1
            if said := _complaint(ops.attention, case, inputs, dropout):
                line.broken.append(f"case {number} ({case.kind}): {said}")
            for name in list(alive):
                if _complaint(alive[name], case, inputs, dropout):
                    del alive[name]
    line.planted, line.caught = len(FAULTS), len(FAULTS) - len(alive)
    line.figures["survivors"] = ", ".join(alive) or "none"
    return [line]


def faulty_pieces(share: float, seed: int) -> list[Line]:
    """Faults in how the compiled loops are called, each of which breaks rows that chunks share."""
    line = Line(
        "answers", "operations by numba_csr are within the tolerance where faults are planted in "
        "how their loops are called", "each fault for each operation that meets it",
    )  # fmt: skip
    with timed(line):
        for operation in OPERATIONS:
            count = max(40, round(share * FAULTY))
            line.trials += count
            line.broken += _broken_by_numba(operation, count, seed)
            for name, (module, attribute, instead) in PIECES.items():
                with mock.patch.object(module, attribute, side_effect=instead) as planted:
                    broken = _broken_by_numba(operation, count, seed)
                if planted.called:
                    line.planted += 1
                    line.caught += bool(broken)
                    if not broken:
                        line.figures[f"missed: {name}"] = operation.name
    return [line]


def _broken_by_numba(operation: Operation, count: int, seed: int) -> list[str]:
    lines = _on_backends(operation, count, seed, ("numba_csr",))
    return [f"{operation.name}: {what}" for line in lines for what in line.broken]


def _complaint(run: Callable[..., Tensor], case: Case, inputs: Any, dropout: float = 0.0) -> str:
    """What the conformance check says against a way to compute attention; "" if nothing."""
    try:
        assert_conforms(run, case.neighborhood, inputs, dropout=dropout, tolerance=_CONFORMS)
    except (AssertionError, RuntimeError, ValueError, IndexError, TypeError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""
