"""Triton's kernels without a GPU: interpreted against the definition, and compiled for two GPUs.

Triton decides when it is imported whether it interprets, so that interpreted kernels have a process
of their own; compiled ones come from a launching side whose programs are not run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood

triton = pytest.importorskip("triton", reason="triton is not installed")
bins, kernels, launch, ranks, score, topk = (
    import_module(f"graphtheory.ops.backends.triton.{name}")
    for name in ("bins", "kernels", "launch", "ranks", "score", "topk")
)

HERE = Path(__file__).parent
NAMES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16",
    torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
}  # fmt: skip
SHARED = 48 * 1024  # bytes that every GPU gives a program unasked
# In parts, so that none takes long on a busy machine.
INTERPRETED = ["conforms", "attention and not conforms", "not attention and not conforms"]


@pytest.mark.timeout(400)  # interpreted, on a machine that may be busy
@pytest.mark.parametrize(
    ("file", "options"),
    [("interpreted.py", ["-k", which]) for which in INTERPRETED]
    + [("interpreted_replays.py", ["-k", which]) for which in ("done_again", "not done_again")]
    + [("interpreted_topk.py", [])],
)
def test_interpreted_kernels_fulfil_the_definition(file: str, options: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", str(HERE / file), *options]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment["INTERPRETED_GPU"] = "1" if file == "interpreted_replays.py" else "0"
    environment.pop("PYTEST_XDIST_WORKER", None)
    command += ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert "passed" in run.stdout and "skipped" not in run.stdout


class Launches:
    """Collects what would be launched, each different program once."""

    def __init__(self) -> None:
        self.programs: dict[str, tuple[Any, dict[str, str], dict[str, Any], int]] = {}

    def __call__(
        self, kernel: Any, grid: tuple[int, ...], like: Tensor, *args: Any,
        warps: int = 4, **constants: Any,
    ) -> None:  # fmt: skip
        if "ACC" in constants:
            constants["ACC"] = launch._TYPES[constants["ACC"]]
        signature = {}
        for parameter, arg in zip(kernel.params, args, strict=False):
            if isinstance(arg, Tensor):
                signature[parameter.name] = f"*{NAMES[arg.dtype]}"
            elif arg is None:
                constants[parameter.name] = None
            else:
                signature[parameter.name] = parameter.annotation_type or "i32"
        signature |= dict.fromkeys(constants, "constexpr")
        signature = {name: signature[name] for name in kernel.arg_names}
        name = f"{kernel.fn.__name__} {signature} {constants} {warps}"
        self.programs[name] = kernel, signature, constants, warps

    def assert_fits(self, capability: int, folder: Path, shared: int, spilled: int) -> None:
        """Compile every program: no more than so many bytes shared, and of registers in memory."""
        for name, compiled in self._compile(capability):
            assert compiled.metadata.shared <= shared, name
            assert stack(compiled.asm["cubin"], folder) <= spilled, name

    def _compile(self, capability: int) -> Iterator[tuple[str, Any]]:
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        for name, (kernel, signature, constants, warps) in self.programs.items():
            pointers = [i for i, kind in enumerate(signature.values()) if kind[0] == "*"]
            aligned = {(i,): [["tt.divisibility", 16]] for i in pointers}
            source = ASTSource(kernel, signature, constants, aligned)
            target = GPUTarget("cuda", capability, 32)
            options = {"num_warps": warps} | launch.OPTIONS
            yield name, triton.compile(source, target=target, options=options)


def stack(binary: bytes, folder: Path) -> int:
    """Bytes a thread keeps in memory for want of registers."""
    from triton import knobs

    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(usage.partition("STACK:")[2].split()[0])


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launches:
    """Nothing runs; the launching side is asked what it would run, on chunks of 20 edges."""
    found = Launches()
    for module in (kernels, launch, ranks, score, topk):
        monkeypatch.setattr(module, "launch", found)
    monkeypatch.setattr(bins, "_OF_SMALL", 20)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return found


def graph(degrees: list[int], narrow: bool = False) -> Neighborhood:
    """Rows of these lengths, and columns as well; all bins both ways; `narrow` ids have 32 bits."""
    nb = Neighborhood.from_edge_index(
        torch.stack([torch.zeros(sum(degrees)).long(), torch.arange(len(degrees)).repeat_interleave(
            torch.tensor(degrees))]), len(degrees),
    )  # fmt: skip
    nb, perm = (nb.to_int32() if narrow else nb), torch.arange(nb.num_edges)
    nb._adopt_transpose(nb.indptr, nb.indices, perm.to(nb.indices.dtype))
    return nb


def parts(nb: Neighborhood) -> list[Tensor]:
    t = nb.transpose()
    assert t.perm is not None
    return [nb.indptr, nb.indices, t.indptr, t.indices, t.perm]


def attention(nb: Neighborhood, dtype: torch.dtype, by: str, dropout: float) -> None:
    heads, dim = 8, 16
    x = torch.zeros(nb.num_dst, heads, dim, dtype=dtype)
    bucket = table = None
    if by == "buckets":
        bucket, table = torch.zeros(nb.num_edges).to(torch.uint8), torch.zeros(20, heads)
    bias = torch.zeros(nb.num_edges, heads) if by == "edges" else None
    seed = torch.tensor(1) if dropout else None
    structure = parts(nb)
    given = x, x, x, bias, bucket, table, 1.0, dropout, seed
    _, stats = kernels.attention(*structure[:2], *given)
    kernels.attention_backward(
        *structure, x, x, x, x, stats, bucket, 20 if bucket is not None else 0, 1.0, dropout, seed,
        out=x, bias=bias, table=table,
    )  # fmt: skip


def with_edges(
    nb: Neighborhood, dtype: torch.dtype, sizes: tuple[int, int] = (12, 20), asked: bool = True
) -> None:
    heads, dim, (width, rows) = 8, 16, sizes
    x, n = torch.zeros(nb.num_dst, heads, dim, dtype=dtype), nb.num_edges
    features = torch.zeros(n, width, dtype=dtype) if width else None
    query = torch.zeros(nb.num_dst, heads, width + rows) if asked else None
    row, structure = torch.zeros(n, dtype=torch.uint8) if rows else None, parts(nb)
    given = (features, query, row, rows)
    _, sums, weights = kernels.edge_attention(
        *structure[:2], x, x, x, *given, None, None, None, 1.0, 0.0, None
    )
    kernels.edge_attention_backward(
        *structure, x, sums, x, x, x, *given, weights, None, 0, True, 1.0, 0.0, None
    )


def primitives(nb: Neighborhood, dtype: torch.dtype) -> None:
    x = torch.zeros(nb.num_dst, 8, 16, dtype=dtype)
    logits = torch.zeros(nb.num_edges, 8, dtype=dtype)
    kernels.edge_dot(nb.indptr, nb.indices, x, x)
    kernels.aggregate(nb.indptr, nb.indices, logits, x)
    kernels.edge_softmax(nb.indptr, logits)
    kernels.edge_softmax_backward(nb.indptr, logits, logits)
    scores(nb, 8, 16, 0, dtype)


def sums(nb: Neighborhood, dtype: torch.dtype, weighted: bool, mean: bool, biased: bool) -> None:
    x, weights = torch.zeros(nb.num_dst, 1, 64, dtype=dtype), torch.zeros(nb.num_edges, 1)
    for by_node in (False, True):
        kernels.sums(
            nb.indptr, nb.indices, weights if weighted else None, x,
            lengths=nb.indptr if mean else None, by_node=by_node, bias=x[0] if biased else None,
        )  # fmt: skip


def scores(
    nb: Neighborhood, heads: int, dim: int, edge_dim: int, dtype: torch.dtype, asked: bool = False
) -> None:
    x = torch.zeros(nb.num_dst, heads, dim, dtype=dtype)
    edges, matrix = (
        torch.zeros(s).to(dtype) for s in ((nb.num_edges, edge_dim), (heads, edge_dim, dim))
    )
    given, logits = (x, x, x[0], edges, matrix, 0.2), torch.zeros(nb.num_edges, heads, dtype=dtype)
    kernels.additive_score(nb.indptr, nb.indices, *given)
    kernels.additive_score_backward(*parts(nb), logits, *given, asked)


def additive_attention(
    nb: Neighborhood, dtype: torch.dtype, p: float, of_target: bool = True, scored: bool = False,
    whole: bool = False,
) -> None:  # fmt: skip
    x, structure = torch.zeros(nb.num_dst, 8, 16, dtype=dtype), parts(nb)
    edge, seed = torch.zeros(nb.num_edges, 8) if scored else None, torch.tensor(1) if p else None
    given = (x, x[..., 0], x[..., 0] if of_target else None, edge)
    added, atts = (x[0], (x[0], x[0])) if whole else (None, (None, None))
    if whole:
        kernels.node_scores(x, *atts)
    _, stats = kernels.additive_attention(*structure[:2], *given, 0.2, p, seed, added)
    kernels.additive_attention_backward(
        *structure, x, *given, stats, 0.2, p, seed, out=x, atts=atts
    )


def scored_attention(nb: Neighborhood, dtype: torch.dtype, p: float) -> None:
    x, scores, structure = torch.zeros(nb.num_dst, 8, 16), torch.zeros(nb.num_edges, 8), parts(nb)
    x, scores, seed = x.to(dtype), scores.to(dtype), torch.tensor(1) if p else None
    given = (None, None, scores, 1.0, p, seed)
    _, stats = kernels.additive_attention(*structure[:2], x, *given)
    kernels.scored_attention_backward(*structure, x, x, scores, stats, p, seed, out=x)


def by_rank(*, both: bool, dtype: torch.dtype) -> None:
    ranks.rank_edges(torch.zeros(2, 50).to(dtype), 7, 7, both, 3)


def relu_sums(nb: Neighborhood, heads: int, dim: int, dtype: torch.dtype) -> None:
    x, features = (torch.zeros(n, heads, dim, dtype=dtype) for n in (nb.num_dst, nb.num_edges))
    indptr, indices, t_indptr, _, perm = parts(nb)
    for order in (perm, perm[:0]):
        kernels.relu_sum(indptr, indices, order, x, features)
        kernels.relu_sum_backward(indptr, indices, order, t_indptr, perm, x, x, features)


def gated_sums(
    nb: Neighborhood, heads: int, dim: int, dtype: torch.dtype, terms: str = "ste"
) -> None:
    x, (rows, others, *by_source) = torch.zeros(nb.num_dst, heads, dim, dtype=dtype), parts(nb)
    gates = x[:, 0] if "t" in terms else None, x[:, 0] if "s" in terms else None
    edge = torch.zeros(nb.num_edges, dim, dtype=dtype) if "e" in terms else None
    asked = {"sums": False, "of_edge": "e" in terms}
    kernels.gated_sum(rows, others, None, (*gates, edge), x)
    kernels.gated_sum(rows, others, None, (*gates, edge), x, x, **asked)
    kernels.gated_sum(*by_source, (*gates[::-1], edge), x, x if "s" in terms else None)


F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
BINS = [3, 50]  # up to 8, more than a chunk
EQUAL = [16, 16]
CASES: dict[str, tuple[Callable[[], None], int]] = {
    "buckets": (lambda: attention(graph(BINS), BF16, "buckets", 0.0), 9),
    "equal rows": (lambda: attention(graph(EQUAL), F32, "buckets", 0.1), 4),
    "float64": (lambda: attention(graph([18, 17]), F64, "edges", 0.1), 3),
    "ids of 32 bits": (lambda: attention(graph(EQUAL, True), BF16, "buckets", 0.0), 4),
    "features of edges": (lambda: with_edges(graph(BINS), BF16), 23),
    "GAT": (lambda: additive_attention(graph(BINS), BF16, 0.0), 9),
    "GAT, edges, dropout": (lambda: additive_attention(graph(EQUAL), F32, 0.1, scored=True), 3),
    "a GAT": (lambda: additive_attention(graph(BINS), F32, 0.1, whole=True), 10),
    "scores of edges alone": (lambda: scored_attention(graph(BINS), BF16, 0.1), 8),
    "edges by rank": (lambda: by_rank(both=True, dtype=torch.int64), 1),
    "edges by rank, one way": (lambda: by_rank(both=False, dtype=torch.int32), 1),
    "means": (lambda: sums(graph([70]), BF16, False, True, False), 3),
    "sums and a bias": (lambda: sums(graph([70]), F32, True, False, True), 3),
    "primitives": (lambda: primitives(graph([70]), F32), 8),
    "scores with features": (lambda: scores(graph(BINS), 8, 16, 16, BF16, True), 9),
    "scores of a wide head": (lambda: scores(graph(EQUAL), 1, 300, 50, F32), 4),
    "scores in float64": (lambda: scores(graph(EQUAL), 4, 64, 3, F64, True), 4),
    "ReLU sums": (lambda: relu_sums(graph([70]), 8, 16, F32), 6),
    "ReLU sums of a wide head": (lambda: relu_sums(graph([70]), 1, 300, BF16), 6),
    "gated sums": (lambda: gated_sums(graph(BINS), 8, 16, BF16), 8),
    "gated sums of nodes": (lambda: gated_sums(graph([70]), 1, 64, F32, "st"), 4),
    "gated sums of a wide head": (lambda: gated_sums(graph(EQUAL), 1, 300, F32), 3),
}


def each(run: Callable[..., None], *options: tuple[Any, ...]) -> Callable[[], None]:
    """Run a call on equal rows with every choice of options."""
    return lambda: [run(graph(EQUAL), *chosen) for chosen in product(*options)]


# Triton compiles what follows a `return` under a condition, which the interpreter does not run.
BOTH, BIASES, DROPOUTS = (True, False), ("none", "edges", "buckets"), (0.0, 0.1)
ABSENT: dict[str, tuple[Callable[[], None], int]] = {
    "attention": (each(attention, (F32,), BIASES, DROPOUTS), 14),
    "attention in 16 bits": (each(attention, (BF16,), BIASES, DROPOUTS), 14),
    "GAT": (each(additive_attention, (F32,), DROPOUTS, BOTH, BOTH), 17),
    "gated sums": (each(gated_sums, (2,), (32,), (F32,), ("s", "t", "e", "st", "te")), 15),
    "features of edges": (each(with_edges, (F32,), ((12, 20), (12, 0), (0, 20)), BOTH), 11),
}


def nearest(tokens: int, dim: int, dtype: torch.dtype, bias: str, dropout: float) -> None:
    """What forward and backward of one block launch, a bias having a gradient."""
    heads, edges, blocks = 6, tokens * tokens, (1, tokens, tokens)
    x = torch.zeros(tokens, heads, dim, dtype=dtype)
    by_edge = torch.zeros(edges, heads, dtype=dtype) if bias == "edges" else None
    bucket = torch.zeros(edges, dtype=torch.uint8) if bias == "buckets" else None
    table = torch.zeros(20, heads) if bias == "buckets" else None
    parts = (by_edge, bucket, table, torch.tensor(1) if dropout else None)
    _, stats = kernels.topk_blocks(x, x, x, *parts, blocks, 100, 1.0, dropout)
    given = (x, x, x, x, *parts, stats, blocks, bias != "none", 1.0, dropout)
    kernels.topk_blocks_backward(*given)


# Tokens, features, type, bias, dropout, programs, bytes of shared memory, bytes of registers put in
# memory: NVIDIA's GPUs since 8.0 have 99 KiB, and the H100 227.
NEAREST = {
    "image": ((197, 64, F32, "buckets", 0.1), (4, SHARED, 16)),
    "image in 16 bits": ((197, 64, BF16, "none", 0.0), (3, SHARED, 640)),
    "long row": ((512, 64, F32, "none", 0.0), (3, 96 * 1024, 32)),
    "longest row": ((1024, 64, BF16, "none", 0.0), (3, 64 * 1024, 128)),
    "longest row in 32 bits": ((1024, 64, F32, "none", 0.0), (3, 192 * 1024, 128)),
    "longest row, widest head": ((1024, 128, BF16, "edges", 0.0), (3, 64 * 1024, 2560)),
}


PROGRAMS = [  # what runs, different programs, bytes shared and in memory, compute capability
    *(pytest.param(*case, SHARED, 16, capability, id=f"{name} on {capability}")
      for name, case in CASES.items() for capability in (80, 90, 100)),
    *(pytest.param(*case, SHARED, 16, 90, id=f"{name}, all that may be absent")
      for name, case in ABSENT.items()),
    *(pytest.param(partial(nearest, *case), *limits, capability, id=f"{name} on {capability}")
      for name, (case, limits) in NEAREST.items() for capability in (80, 90)),
]  # fmt: skip


@pytest.mark.parametrize(("run", "different", "shared", "spilled", "capability"), PROGRAMS)
def test_every_kernel_compiles_and_fits_the_registers(
    run, different, shared, spilled, capability, launches, tmp_path
) -> None:
    run()
    assert len(launches.programs) == different, list(launches.programs)
    launches.assert_fits(capability, tmp_path, shared, spilled)
