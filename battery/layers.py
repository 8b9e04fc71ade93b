"""Layers against PyG's in float64, and laws that need no other implementation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from battery.answers import OPERATIONS, TOLERANCE, Operation, Tensors, with_gradients
from battery.draw import Case
from battery.drawn_calls import mostly_ours
from battery.line import Line, timed
from battery.locality import same
from battery.pieces import computed_as, in_one_chunk
from graphtheory import Neighborhood, accelerate

LAYERS, LAWS = 10_000, 1_000  # cases
_WIDTH, _OUT, _HEADS, _EDGE = 6, 3, 2, 4


Draw = Callable[..., Any]  # any of its arguments


def _linear() -> torch.nn.Module:
    return torch.nn.Linear(_WIDTH, _OUT)


def _with_heads(layer: Callable[..., Any], edges: bool, **options: Any) -> Any:
    options |= {"edge_dim": _EDGE} if edges else {}
    return layer(_WIDTH, _OUT, _HEADS, **options)


# PyG's layers with options as drawn, for which `accelerate` puts ours.
PYG_LAYERS: dict[str, Callable[[bool, Draw], Any]] = {
    "TransformerConv": lambda edges, draw: _with_heads(
        pyg.TransformerConv, edges, concat=draw(True, False), beta=draw(False, True),
        root_weight=draw(True, False), flow=draw(*_FLOWS),
    ),
    "GATConv": lambda edges, draw: _with_heads(
        pyg.GATConv, edges, concat=draw(True, False), residual=draw(False, True),
        add_self_loops=draw(True, False), flow=draw(*_FLOWS),
    ),
    "GATv2Conv": lambda edges, draw: _with_heads(
        pyg.GATv2Conv, edges, concat=draw(True, False), residual=draw(False, True),
        share_weights=draw(False, True), flow=draw(*_FLOWS),
    ),
    "GCNConv": lambda edges, draw: pyg.GCNConv(
        _WIDTH, _OUT, improved=draw(False, True), normalize=draw(True, False), flow=draw(*_FLOWS)
    ),
    "SAGEConv": lambda edges, draw: pyg.SAGEConv(
        _WIDTH, _OUT, draw("mean", "sum"), normalize=draw(False, True),
        root_weight=draw(True, False), flow=draw(*_FLOWS),
    ),
    "GraphConv": lambda edges, draw: pyg.GraphConv(_WIDTH, _OUT, draw("add", "mean")),
    "GINConv": lambda edges, draw: pyg.GINConv(_linear(), draw(0.0, 0.3), draw(False, True)),
    "GINEConv": lambda edges, draw: pyg.GINEConv(_linear(), draw(0.0, 0.3), edge_dim=_EDGE),
    "SGConv": lambda edges, draw: pyg.SGConv(_WIDTH, _OUT, draw(1, 2, 3)),
    "ChebConv": lambda edges, draw: pyg.ChebConv(_WIDTH, _OUT, draw(1, 2, 3)),
}  # fmt: skip
_FLOWS = ("source_to_target", "target_to_source")
_WEIGHTED = ("GCNConv", "GraphConv", "SGConv", "ChebConv")


def against_pyg(share: float, seed: int) -> list[Line]:
    """Output and gradients of every parameter, in float32 and, of PyG's layer, in float64."""
    lines = []
    for name in PYG_LAYERS:
        line = Line(
            "answers", f"{name} by itself: output and every gradient within {TOLERANCE:g} of "
            "PyG's in float64, or at most twice as far off as PyG's in float32",
            "parameters a thousandth larger",
        )  # fmt: skip
        with timed(line):
            for number in count():
                if line.trials >= round(share * LAYERS):
                    break  # cases without nodes are none
                with computed_as(number), mostly_ours(number // 20):
                    _beside_pyg(line, name, Case.draw(number, seed), number)
        lines.append(line)
    return lines


def _beside_pyg(line: Line, name: str, case: Case, number: int) -> None:
    nb = case.neighborhood
    nodes = max(nb.num_src, nb.num_dst)  # PyG's self-loops need one set of nodes
    if not nodes:
        return
    with_edges = number % 2 == 1
    torch.manual_seed(number)
    theirs = PYG_LAYERS[name](with_edges, lambda *values: values[case.rng.integers(len(values))])
    model = torch.nn.Sequential(copy.deepcopy(theirs))
    accelerate(model)
    ours: Any = model[0]
    assert type(ours) is not type(theirs), f"{name} was not accelerated"
    with torch.no_grad():
        for parameter in ours.parameters():
            if parameter.dim() == 1:  # biases, which begin with zeros
                parameter.copy_(case.normal(*parameter.shape))
    theirs.load_state_dict(ours.state_dict())
    theirs = theirs.double()
    x, edge_index = case.normal(nodes, _WIDTH), nb.edge_index().long()
    named = {}
    if with_edges and name in _WEIGHTED:
        # Not near 0, where both layers' gradients are differences of large terms.
        named["edge_weight"] = 0.5 + case.normal(nb.num_edges).abs()
    elif (with_edges and hasattr(ours, "edge_dim")) or name == "GINEConv":
        named["edge_attr"] = case.normal(nb.num_edges, _EDGE)
    joined = _HEADS if getattr(ours, "concat", False) else 1
    grad = case.normal(nodes, _OUT * joined)
    expected = _answer(theirs, grad, x, edge_index, named, torch.float64)
    off = _off(_answer(ours, grad, x, edge_index, named, torch.float32), expected)
    line.trials += 1
    if off > TOLERANCE:  # at a kink of LeakyReLU the gradient hangs on the last bit of its input
        theirs_too = _answer(theirs.float(), grad, x, edge_index, named, torch.float32)
        if off > 2 * _off(theirs_too, expected):
            line.broken.append(f"case {number} ({case.kind}): off by {off:.1e}")
        else:
            line.figures["off as PyG's in float32 is"] = (
                line.figures.get("off as PyG's in float32 is", 0) + 1
            )
    else:
        worst = max(float(line.figures.get("largest error", 0)), off)
        line.figures["largest error"] = f"{worst:.1e}"
    if number % 20 == 0 and _size(expected):
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.mul_(1.001)
        found = _answer(ours, grad, x, edge_index, named, torch.float32)
        line.planted += 1
        line.caught += _off(found, expected) > TOLERANCE


def _answer(
    layer: Any, grad: Tensor, x: Tensor, edge_index: Tensor, named: Tensors, dtype: torch.dtype
) -> Tensors:
    given = {name: t.to(dtype).requires_grad_() for name, t in {"x": x, **named}.items()}
    out = layer(given["x"], edge_index, **{n: t for n, t in given.items() if n != "x"})
    return with_gradients(out, given | dict(layer.named_parameters()), grad.to(dtype))


def _size(tensors: Tensors) -> float:
    return max(float(t.abs().max()) for t in tensors.values() if t.numel())


def _off(found: Tensors, expected: Tensors) -> float:
    size = _size(expected) or 1.0
    off = (
        float((found[name].double() - t).abs().max()) for name, t in expected.items() if t.numel()
    )
    return float(max(np.nan_to_num(list(off), nan=np.inf))) / size


def laws(share: float, seed: int) -> list[Line]:
    """Relabeled nodes, edges in another order, graphs side by side, and one node more."""
    lines = {
        name: Line("answers", promise, "the same with the last two rows exchanged")
        for name, promise in (
            ("relabeled", "nodes under other numbers give the same rows, under these"),
            ("reordered", "edges in another order give the same rows"),
            ("batched", "a graph among others gives the rows that it gives alone"),
            (
                "isolated",
                "a node without edges changes no bit of the others' rows in one chunk, "
                "and by a rounding those of many",
            ),
        )
    }
    for number in range(round(share * LAWS)):
        case = Case.draw(number, seed)
        for operation in OPERATIONS:
            with computed_as(number):
                _obeys(lines, case, operation, number)
    return list(lines.values())


def _obeys(lines: dict[str, Line], case: Case, operation: Operation, number: int) -> None:
    known, tensors = case.neighborhood, operation.tensors(case)
    nb = Neighborhood(known.indptr, known.indices, known.num_src)  # one path for all
    src, dst = (side.long() for side in nb.edge_index())
    sent, received = (torch.from_numpy(case.rng.permutation(n)) for n in (nb.num_src, nb.num_dst))
    order = torch.from_numpy(case.rng.permutation(nb.num_edges))
    plain = operation.call(tensors, nb, None)
    same = torch.arange(nb.num_dst)
    tries = {
        "relabeled": (
            sent[src],
            received[dst],
            torch.arange(nb.num_edges),
            sent,
            received,
            0,
        ),
        "reordered": (src[order], dst[order], order, torch.arange(nb.num_src), same, 0),
        "isolated": (src, dst, torch.arange(nb.num_edges), torch.arange(nb.num_src), same, 1),
    }
    for name, (sources, targets, edges, new_src, new_dst, more) in tries.items():
        graph = Neighborhood.from_edge_index(
            torch.stack([sources, targets]), num_src=nb.num_src + more, num_dst=nb.num_dst + more
        )
        place = graph.perm if graph.perm is not None else torch.arange(nb.num_edges)
        moved = _moved(tensors, edges[place], new_src, new_dst, more)
        found = operation.call(moved, graph, None)[new_dst]
        alone = name == "isolated" and in_one_chunk(number)
        near = 0.0 if alone else TOLERANCE
        with timed(lines[name]):
            _told(lines[name], case, operation, number, plain, found, near)
    if operation is OPERATIONS[0] and nb.num_dst:
        _batched(lines["batched"], case, operation, number, plain, tensors)


def _moved(tensors: Tensors, edges: Tensor, src: Tensor, dst: Tensor, more: int) -> Tensors:
    """The tensors of nodes at their new places and of edges in their new order."""
    found = {}
    for name, t in tensors.items():
        if name in ("bucket", "bias", "weights", "features", "edge"):
            found[name] = t[edges]
        elif name == "table":
            found[name] = t
        else:
            place = dst if name in ("query", "received", "target") else src
            found[name] = t.new_zeros(len(t) + more, *t.shape[1:])
            found[name][place] = t
    return found


def _batched(
    line: Line, case: Case, operation: Operation, number: int, plain: Tensor, tensors: Tensors
) -> None:
    """Beside a copy of itself, of whose numbers the first are beyond its own."""
    nb = case.neighborhood
    src, dst = (side.long() for side in nb.edge_index())
    twice = Neighborhood.from_edge_index(
        torch.stack([torch.cat([src, src + nb.num_src]), torch.cat([dst, dst + nb.num_dst])]),
        num_src=2 * nb.num_src, num_dst=2 * nb.num_dst,
    )  # fmt: skip
    both = {n: t if n == "table" else torch.cat([t, t]) for n, t in tensors.items()}
    with timed(line):
        found = operation.call(both, twice, None)
        for part in found.split(nb.num_dst):
            _told(line, case, operation, number, plain, part, TOLERANCE)


def _told(
    line: Line, case: Case, operation: Operation, number: int, plain: Tensor, found: Tensor,
    near: float,
) -> None:  # fmt: skip
    line.trials += 1
    if not same(plain, found, near):
        line.broken.append(f"case {number} ({case.kind}), {operation.name}")
    exchanged = found.clone()
    exchanged[-2:] = found[-2:].flip(0)
    if len(found) > 1 and not same(found[-2:-1], found[-1:], TOLERANCE):
        line.planted += 1
        line.caught += not same(plain, exchanged, near)
