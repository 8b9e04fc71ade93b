"""Half precision: at most twice the error of plain torch, at any degree."""

from __future__ import annotations

import torch

from battery.answers import OPERATIONS, Operation, Tensors, error, found_by_all, true_of
from battery.draw import Case
from battery.line import Line, timed
from battery.pieces import computed_as

CASES, DEGREES = 1_000, 20  # of each operation
_CHOICES = 2  # roundings: what plain torch's error counts at most, which may choose another maximum


def half_precision(share: float, seed: int) -> list[Line]:
    """Every operation on every backend."""
    lines = []
    for dtype in (torch.bfloat16, torch.float16):
        kind = str(dtype).removeprefix("torch.")
        small = Line(
            "answers", f"every operation in {kind}: an error of at most one rounding beyond twice "
            f"plain torch's, of which at most {_CHOICES} roundings count",
            "an output off by a quarter",
        )  # fmt: skip
        with timed(small):
            for number in range(round(share * CASES)):
                with computed_as(number):
                    for operation in OPERATIONS:
                        _try(small, Case.draw(number, seed), operation, dtype, number)
        large = Line(
            "answers", f"the same in {kind} where one row has more than 65,504 edges, which is the "
            "largest number of float16", "rows divided by a degree that was counted in this type",
        )  # fmt: skip
        with timed(large):
            for number in range(max(1, round(share * DEGREES))):
                for operation in OPERATIONS:
                    _try(large, Case.of_large_degree(number, seed), operation, dtype, number)
        lines += [small, large]
    return lines


def _try(line: Line, case: Case, operation: Operation, dtype: torch.dtype, number: int) -> None:
    drawn = operation.tensors(case)
    tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in drawn.items()}
    true, grad = true_of(operation, case, tensors)
    found = found_by_all(operation, tensors, case, grad)
    rounding = torch.finfo(dtype).eps
    plain = error(true, found.pop("reference"))[0] / rounding
    allowed = 1 + 2 * min(plain, _CHOICES)
    for backend, answer in found.items():
        off, where = error(true, answer)
        _note(line, off / rounding, plain)
        line.trials += 1
        if off > allowed * rounding:
            line.broken.append(
                f"case {number} ({case.kind}), {operation.name} by {backend}: {where} is off by "
                f"{off / rounding:.1f} roundings, plain torch by {plain:.1f}"
            )
    spoiled = _spoiled(next(iter(found.values())), case)
    if bool(spoiled["output"].any()):
        line.planted += 1
        line.caught += error(true, spoiled)[0] > allowed * rounding


def _note(line: Line, ours: float, plain: float) -> None:
    for name, value in (("largest error in roundings", ours), ("of plain torch", plain)):
        line.figures[name] = round(max(line.figures.get(name, 0), value), 2)


def _spoiled(answer: Tensors, case: Case) -> Tensors:
    """As if degrees were counted in the type of the answer; off by a quarter if that is right."""
    out, dst = answer["output"], torch.from_numpy(case.edges.dst)
    degree = torch.bincount(dst, minlength=len(out))
    counted = out.new_zeros(len(out)).index_add_(0, dst, out.new_ones(len(dst)))
    wrong = torch.where(counted == degree, 1.25, degree / counted)
    return answer | {"output": (out * wrong[:, None, None]).to(out.dtype)}
