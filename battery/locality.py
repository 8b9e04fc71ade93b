"""Locality: what is wrong with one node stays where its edges reach."""

from __future__ import annotations

import torch
from torch import Tensor

from battery.answers import attention, nodes
from battery.draw import Case
from battery.line import Line, timed
from battery.pieces import computed_as

CASES = 1_000


def locality(share: float, seed: int) -> list[Line]:
    """NaN or infinity in one source changes the rows that its edges reach, and no others."""
    control, lines = "a mean over all nodes added", []
    for bad, promise, near in (
        (torch.nan, "NaN in one node changes no bit where its edges do not reach", 0.0),
        (torch.inf, "infinity in one node changes nothing there beyond rounding", 1e-6),
    ):
        line = Line("answers", promise, control)
        with timed(line):
            for number in range(round(share * CASES)):
                with computed_as(number):
                    _poison(line, Case.draw(number, seed), bad, near, number)
        lines.append(line)
    return lines


def _poison(line: Line, case: Case, bad: float, near: float, number: int) -> None:
    nb, tensors = case.neighborhood, nodes(case)
    if not nb.num_src:
        return
    node = int(case.rng.integers(nb.num_src))
    elsewhere = torch.ones(nb.num_dst, dtype=torch.bool)
    elsewhere[torch.from_numpy(case.edges.dst[case.edges.src == node])] = False
    with_bad = {name: t.clone() for name, t in tensors.items()}
    for name in ("key", "value"):
        with_bad[name][node] = bad
    before, after = (attention(t, nb, None) for t in (tensors, with_bad))
    line.trials += 1
    if not same(before[elsewhere], after[elsewhere], near):
        line.broken.append(f"case {number} ({case.kind})")
    if bool(elsewhere.any()):
        line.planted += 1
        leaked = after + 0 * with_bad["value"].mean()
        line.caught += not same(before[elsewhere], leaked[elsewhere], near)


def same(one: Tensor, other: Tensor, near: float) -> bool:
    """Whether they differ by at most `near` of the largest entry of the first."""
    return torch.equal(one, other) or bool(((one - other).abs() <= near * one.abs().max()).all())
