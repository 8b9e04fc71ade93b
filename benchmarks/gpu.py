"""Time and memory of attention on a GPU, forward and backward, beside what else can do it there.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --graphs pubmed --shapes 4x64 --repeats 50

Before a shape is timed, output and gradients are held against float64: an error may be twice the
one of plain torch (PyG's `TransformerConv`) in the same precision. Linear maps are left out, except
from GATConv, which is timed as a whole layer on both sides. A rival that cannot run a case is left
out, and the run says why. Rows are written case by case; a case that fails says why, stops nothing
else, and makes the script end with code 1. When its time is over the rest is left out. Without a
GPU it ends with code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import torch
import tyro
from _gpu import Job, Step, attempted, extra_memory, milliseconds, results_of, runnable
from _gpu_attention import DTYPES, GRAPHS, Case, contestants, step
from _graphs import Shape
from _rows import green, ratios, save, show
from torch import Tensor

from graphtheory import ops
from graphtheory.lab.bench.rows import Row

# Of the largest true entry: what the order of sums alone may cost where plain torch makes no error.
SLACK = {torch.bfloat16: 2**-8, torch.float32: 1e-6, torch.float16: 2**-10}
ROUNDS = 3.0  # seconds after which a case has no more rounds than it must
OUT = results_of("cuda")


def check(case: Case, found: Sequence[Tensor], plain: Sequence[Tensor]) -> None:
    """Raise unless no error against float64 is more than twice that of plain torch."""
    exact = [t.detach().double().requires_grad_() for t in case.leaves]
    reference = partial(ops.attention, neighborhood=case.nb, backend="reference")
    true = step(reference, exact, case.grad.double())
    for name, ours, theirs, wanted in zip(
        ("output", "query", "key", "value"), found, plain, true, strict=True
    ):
        error, other = ((t.double() - wanted).abs().max().item() for t in (ours, theirs))
        allowed = 2 * other + SLACK[case.grad.dtype] * wanted.abs().max().item()
        if not error <= allowed:  # not a number is not
            raise AssertionError(f"{case.name}: {name} errs by {error:.2e}, allowed {allowed:.2e}")


def checked(case: Case, steps: dict[str, Step]) -> None:
    """Raise unless ours is as exact as plain torch, and the same the second time."""
    plain = steps.get("TransformerConv") or partial(
        step, partial(ops.attention, neighborhood=case.nb, backend="torch_csr"), case.leaves,
        case.grad,
    )  # fmt: skip
    check(case, steps["graphtheory"](), plain())
    for name in ("graphtheory", "graphtheory, bucket bias"):
        once, again = ([t.clone() for t in steps[name]()] for _ in range(2))
        if not all(torch.equal(a, b) for a, b in zip(once, again, strict=True)):
            raise AssertionError(f"{case.name}: {name} gives other bits the second time")


def ours(name: str) -> bool:
    """Whether a failure is one of the library; a graph cannot be recorded of everything."""
    return "graphtheory" in name and "CUDA graph" not in name


def measured(graph: str, shape: str, dtype: str, repeats: int, compiled: bool) -> list[Row]:
    """Check a case, time it, and say how it compares."""
    heads, dim = (int(n) for n in shape.split("x"))
    case = Case.of(graph, heads, dim, DTYPES[dtype])
    makers = dict(contestants(case, compiled))
    steps = runnable(case.name, makers, ours)
    checked(case, steps)
    about = {"nodes": case.nb.num_dst, "edges": case.nb.num_edges, "heads": heads, "head_dim": dim}
    rows = []
    for state in ("cold", "warm"):
        times = milliseconds(steps, repeats, state == "cold", limit=ROUNDS)
        label = f"{case.name}, {state} cache"
        rows += [Row.of(f"{label}: {n}", t, "ms", **about) for n, t in times.items()]
        moved = [case.gathered / t * 1e-9 for t in times["graphtheory"]]
        rows.append(Row.of(f"{label}: gathered by graphtheory", moved, "TB/s", **about))
        for name, taken in times.items():
            if "graphtheory" not in name and " layer" not in name:
                faster = ratios(taken, times["graphtheory"])
                rows.append(Row.of(f"{label}: times faster than {name}", faster, "1", **about))
    for name, work in steps.items():
        if "CUDA graph" not in name:  # it has its memory already
            rows.append(
                Row.of(f"{case.name}: memory of {name}", extra_memory(work), "MiB", **about)
            )
    return rows


def ceilings(repeats: int) -> list[Row]:
    """What the memory can do, in bytes read and written: a copy, rows in random order."""
    rows, bytes_ = [], 2 * 2**30
    source = torch.rand(bytes_ // 4, device="cuda")
    target = torch.empty_like(source)
    steps: dict[str, Step] = {"copy": lambda: [target.copy_(source)]}
    for width in (64, 128, 256):
        table = source.view(-1, width)
        order = torch.randperm(table.size(0), device="cuda")
        into = target.view(-1, width)
        steps[f"random gather of rows of {4 * width} bytes"] = partial(
            lambda t, o, i: [torch.index_select(t, 0, o, out=i)], table, order, into
        )
    for name, taken in milliseconds(steps, repeats, cold=False).items():
        rows.append(Row.of(f"ceiling: {name}", [2 * bytes_ / t * 1e-9 for t in taken], "TB/s"))
    return rows


def jobs(
    graphs: Sequence[str], shapes: Sequence[str], dtypes: Sequence[str], repeats: int, compiled: int
) -> Iterator[Job]:
    """What the memory can do, then every graph in one shape and precision after the other."""
    yield "ceilings", partial(ceilings, repeats)
    for number, (dtype, shape, graph) in enumerate(product(dtypes, shapes, graphs)):
        given = (graph, shape, dtype, repeats, number < compiled)
        yield f"{graph} {shape} {dtype}", partial(measured, *given)


def main(
    graphs: tuple[Literal[tuple(GRAPHS)], ...] = tuple(GRAPHS),
    shapes: tuple[Shape, ...] = ("4x64", "8x16", "1x128"),
    dtypes: tuple[Literal[tuple(DTYPES)], ...] = tuple(DTYPES),
    repeats: int = 30,
    compiled: int = 3,
    seconds: float = 450.0,
    tested: bool = False,
    names: str = "",
    out: Path | None = OUT,
) -> None:
    """Time attention forward and backward on a GPU beside PyG, FlexAttention and others.

    Args:
        graphs: Of uniform, pubmed, arxiv, k16, molecules, vit, long, sentences.
        shapes: Heads x head_dim.
        dtypes: Of bf16, fp32, fp16.
        repeats: Rounds at most; every round runs everything once.
        compiled: So many cases, the first ones, are also run by what `torch.compile` makes.
        seconds: After which what is left is left out.
        tested: tests/conformance has passed on this device already, in a call before. Otherwise it
            runs first, and its time comes on top.
        names: Regular expression that is found in the names of what to run, such as
            "ceilings|arxiv 4x64".
        out: CSV file to put the rows in, case by case; None writes nothing.
    """
    if not torch.cuda.is_available():
        print("gpu.py needs a GPU that torch can use, and finds none", file=sys.stderr)
        sys.exit(2)
    if out is not None and not tested and not green():
        sys.exit(f"{out} not written: the conformance tests fail")
    failed: list[str] = []
    for rows in attempted(jobs(graphs, shapes, dtypes, repeats, compiled), seconds, failed, names):
        show(rows)
        if out is not None:
            save(rows, out, tested=True)
    if failed:
        print(f"failed: {'; '.join(failed)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    tyro.cli(main)
