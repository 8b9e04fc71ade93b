"""Random calls: a right answer, or an error that is meant, and no crash."""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import graphtheory
from battery.answers import OPERATIONS, Operation, error
from battery.draw import Case
from battery.forked import printed
from battery.line import Line, timed
from graphtheory import nn

CALLS, BATCH = 2_000, 100  # calls, and those of one child process
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.06, torch.float16: 0.01}
TYPED = (ValueError, TypeError, IndexError, NotImplementedError, OverflowError)
_MISFIT = re.compile("same dtype|not on the expected device")
_OURS = str(Path(graphtheory.__file__).parent)
DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64)
LAYERS = ("GATConv", "GATv2Conv", "TransformerConv", "GCNConv", "SPDTransformerConv")


def _broken(tensor: Tensor, rng: np.random.Generator) -> Any:
    """Something else in a tensor's place: often wrong, sometimes as good."""
    choice = int(rng.integers(12))
    if choice < len(DTYPES):
        return tensor.detach().to(DTYPES[choice])
    if choice == 6:
        return tensor[..., :-1] if tensor.dim() and tensor.size(-1) else tensor
    if choice == 7:
        return tensor[: len(tensor) // 2]
    if choice == 8:
        return tensor.unsqueeze(int(rng.integers(tensor.dim() + 1)))
    if choice == 9:
        return tensor.to("meta")
    if choice == 10:
        return (None, tensor.tolist(), tensor.numpy(), "x", 3.5, float("nan"))[rng.integers(6)]
    return tensor.flatten()


def _operation(rng: np.random.Generator, number: int, spoil: bool) -> str:
    case = Case.draw(number, int(rng.integers(10)))
    operation = OPERATIONS[int(rng.integers(len(OPERATIONS)))]
    tensors = operation.tensors(case)
    for name in tensors:
        if rng.random() < 0.25:
            tensors[name] = _broken(tensors[name], rng)
    if rng.random() < 0.2:  # all of them alike
        dtype = list(TOLERANCE)[int(rng.integers(4))]
        floats = {n: t for n, t in tensors.items() if isinstance(t, Tensor)}
        tensors |= {n: t.to(dtype) for n, t in floats.items() if t.is_floating_point()}
    found = operation.call(tensors, case.neighborhood, None)
    if spoil and found.numel():
        found = found + 1
    return _judged(operation, case, tensors, found)


def _judged(operation: Operation, case: Case, tensors: dict[str, Any], found: Tensor) -> str:
    """What is wrong with an answer; "" if nothing, or if nothing is known."""
    if found.device.type == "meta" or not all(isinstance(t, Tensor) for t in tensors.values()):
        return ""
    arrays = {n: t.detach().double().numpy() for n, t in tensors.items()}
    grad = np.zeros((case.neighborhood.num_dst, *arrays["value"].shape[1:]))
    true = operation.true(case.edges, arrays, grad)["output"]
    off, _ = error({"output": true}, {"output": found.detach()})
    allowed = max(TOLERANCE.get(t.dtype, 0.0) for t in tensors.values())
    return f"{operation.name}: off by {off:.1e} in {found.dtype}" if off > allowed else ""


def _layer(rng: np.random.Generator, number: int, spoil: bool) -> str:
    case = Case.draw(number, int(rng.integers(10)))
    nb = case.neighborhood
    heads = {} if (name := LAYERS[number % 5]) == "GCNConv" else {"heads": int(rng.integers(-1, 4))}
    layer = getattr(nn, name)(int(rng.integers(-1, 6)), int(rng.integers(0, 5)), **heads)
    x: Any = case.normal(max(nb.num_src, nb.num_dst), int(rng.integers(1, 6)))
    edges: Any = nb.edge_index().long()
    if rng.random() < 0.3:
        x = _broken(x, rng)
    if rng.random() < 0.4:
        shifted = edges + int(rng.integers(-1, 3)) * 10 ** int(rng.integers(1, 12))
        edges = (edges.T, shifted, edges.float(), edges.int(), nb, edges.to("meta"))[
            rng.integers(6)
        ]
    out = layer(x, edges)
    rows = x.size(0) if isinstance(x, Tensor) else -1
    if spoil:
        out = out[:-1]
    if out.dim() < 2 or out.size(-2) not in (rows, nb.num_dst):
        return f"{name}: {tuple(out.shape)} of {rows} nodes"
    return ""


def _neighborhood(rng: np.random.Generator, number: int, spoil: bool) -> str:
    def numbers() -> Any:
        size, most = int(rng.integers(0, 6)), int(rng.integers(1, 8))
        drawn = torch.from_numpy(rng.integers(-1, most, size))
        return _broken(drawn, rng) if rng.random() < 0.3 else drawn.sort().values

    maker = int(rng.integers(4))
    if maker == 0:
        nb = graphtheory.Neighborhood(numbers(), numbers(), int(rng.integers(-1, 9)))
    elif maker == 1:
        edges = torch.from_numpy(rng.integers(-1, 9, (2, int(rng.integers(0, 9)))))
        edges = _broken(edges, rng) if rng.random() < 0.3 else edges
        nb = graphtheory.Neighborhood.from_edge_index(edges, num_nodes=int(rng.integers(-1, 12)))
    elif maker == 2:
        nb = graphtheory.bipartite(numbers(), numbers())
    else:
        nb = graphtheory.cliques(numbers())
    src, dst = nb.edge_index()
    good = spoil is False and bool((src < nb.num_src).all() and (dst < nb.num_dst).all())
    return "" if good and (not len(src) or int(src.min()) >= 0) else f"{nb} has edges outside"


def verdict(call: Callable[[], str]) -> tuple[str, str]:
    """("right" or "refused" or "wrong", what is wrong) of a call."""
    try:
        said = call()
    except TYPED as refusal:
        return _of_error(refusal)
    except Exception as other:  # of a class that nobody meant
        # Of inputs that do not go with a layer's weights torch's own linear map says so.
        if getattr(call, "func", None) is _layer and _MISFIT.search(str(other)):
            return "refused", ""
        return "wrong", f"{type(other).__name__}: {str(other)[:200]}"
    return ("wrong", said) if said else ("right", "")


def _of_error(refusal: Exception) -> tuple[str, str]:
    """Raised by a line of ours, with a sentence."""
    last = traceback.extract_tb(refusal.__traceback__)[-1]
    if last.filename.startswith(_OURS) and " " in str(refusal):
        return "refused", ""
    where = f"{Path(last.filename).name}:{last.lineno}"
    return "wrong", f"{type(refusal).__name__} of {where}: {str(refusal)[:200]}"


def child(first: int, last: int, seed: int, plant: str) -> None:
    """Calls of these numbers; a line of JSON for each. `plant`: "" or "crash" or "wrong"."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kinds = (_operation, _layer, _neighborhood)
    for number in range(first, last):
        rng = np.random.default_rng([seed, number])
        if plant == "crash" and number == last - 1:
            import ctypes

            ctypes.string_at(0)
        call = partial(kinds[number % 3], rng, number, plant == "wrong")
        print(json.dumps([number, kinds[number % 3].__name__, *verdict(call)]), flush=True)


def _batch(first: int, last: int, seed: int, plant: str = "") -> tuple[list[Any], int]:
    said, code = printed(child, first, last, seed, plant)
    return [json.loads(text) for text in said.splitlines()], code


def fuzz(share: float, seed: int) -> list[Line]:
    """2,000 calls of operations, layers and constructors, one or more arguments of many spoiled."""
    line = Line(
        "fuzz", "a random call gives a right answer, or an error of ours in a sentence; no crash",
        "a read of address 0, and answers that are changed", least_caught=0.9,
    )  # fmt: skip
    count = max(60, round(share * CALLS))
    told: dict[str, list[int]] = {"right": [], "refused": [], "wrong": []}
    with timed(line):
        for first in range(0, count, BATCH):
            last = min(count, first + BATCH)
            found, code = _batch(first, last, seed)
            line.trials += last - first
            for number, kind, what, said in found:
                told[what].append(number)
                if what == "wrong":
                    line.broken.append(f"call {number} ({kind}): {said}")
            if code != 0 or len(found) < last - first:
                line.broken.append(f"call {first + len(found)} ends the process with {code}")
        spoiled = _batch(0, 60, seed, "wrong")[0]
        wrong = [what for n, _, what, _ in spoiled if n in told["right"]]
        line.planted, line.caught = 1 + len(wrong), wrong.count("wrong")
        line.caught += _batch(0, 1, seed, "crash")[1] < 0
    line.figures = {what: len(told[what]) for what in ("right", "refused")}
    return [line]
