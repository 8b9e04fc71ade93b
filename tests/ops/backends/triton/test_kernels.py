"""Triton's kernels without a GPU: interpreted against the definition, and compiled for two GPUs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from tests.ops.backends.triton.harness import Launches, assert_interpreted_tests_pass

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

IN_PARTS = "every_bin or every_type"  # so that none takes long on a busy machine


@pytest.mark.timeout(400)  # interpreted, on a machine that may be busy
@pytest.mark.parametrize(
    "which", [IN_PARTS, f"attention and not ({IN_PARTS})", f"not attention and not ({IN_PARTS})"]
)
def test_interpreted_kernels_fulfil_the_definition(which: str) -> None:
    assert_interpreted_tests_pass("interpreted.py", "-k", which)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphtheory.ops.backends.triton import bins

    monkeypatch.setattr(bins, "_OF_SMALL", 20)


def graph(degrees: list[int]) -> Neighborhood:
    """Rows of these lengths, and columns as well, so that both directions have every bin."""
    nb = Neighborhood.from_edge_index(
        torch.stack([torch.zeros(sum(degrees)).long(), torch.arange(len(degrees)).repeat_interleave(
            torch.tensor(degrees))]), len(degrees),
    )  # fmt: skip
    nb._adopt_transpose(nb.indptr, nb.indices, torch.arange(nb.num_edges))
    return nb


def narrow(nb: Neighborhood) -> Neighborhood:
    """The same with ids of 32 bits."""
    out = nb.to_int32()
    out._adopt_transpose(out.indptr, out.indices, torch.arange(nb.num_edges).int())
    return out


def parts(nb: Neighborhood) -> list[Tensor]:
    t = nb.transpose()
    assert t.perm is not None
    return [nb.indptr, nb.indices, t.indptr, t.indices, t.perm]


def attention(nb: Neighborhood, dtype: torch.dtype, by: str, dropout: float) -> None:
    from graphtheory.ops.backends.triton import kernels

    heads, dim = 8, 16
    x = torch.zeros(nb.num_dst, heads, dim, dtype=dtype)
    bucket = table = None
    if by == "buckets":
        bucket, table = torch.zeros(nb.num_edges).to(torch.uint8), torch.zeros(20, heads)
    bias = torch.zeros(nb.num_edges, heads) if by == "edges" else None
    seed = torch.tensor(1) if dropout else None
    structure = parts(nb)
    _, norm = kernels.attention(*structure[:2], x, x, x, bias, bucket, table, 1.0, dropout, seed)
    kernels.attention_backward(
        *structure, x, x, x, x, norm, bucket, 20 if bucket is not None else 0, 1.0, dropout, seed,
        out=x, bias=bias, table=table,
    )  # fmt: skip


def with_edges(
    nb: Neighborhood, dtype: torch.dtype, width: int = 12, rows: int = 20, asked: bool = True
) -> None:
    from graphtheory.ops.backends.triton import kernels

    heads, dim = 8, 16
    x, n = torch.zeros(nb.num_dst, heads, dim, dtype=dtype), nb.num_edges
    features = torch.zeros(n, width, dtype=dtype) if width else None
    query = torch.zeros(nb.num_dst, heads, width + rows) if asked else None
    row, structure = torch.zeros(n, dtype=torch.uint8) if rows else None, parts(nb)
    given = (features, query, row, rows)
    _, sums, weights = kernels.edge_attention(
        *structure[:2], x, x, x, *given, None, None, None, 1.0, 0.0, None
    )
    kernels.edge_attention_backward(
        *structure, x, sums, x, x, x, *given, weights, None, 0, True, 1.0, 0.0,
        None, out=None, bias=None, table=None, sums=None,
    )  # fmt: skip


def primitives(nb: Neighborhood, dtype: torch.dtype) -> None:
    from graphtheory.ops.backends.triton import kernels

    x = torch.zeros(nb.num_dst, 8, 16, dtype=dtype)
    logits = torch.zeros(nb.num_edges, 8, dtype=dtype)
    kernels.edge_dot(nb.indptr, nb.indices, x, x)
    kernels.aggregate(nb.indptr, nb.indices, logits, x)
    kernels.edge_softmax(nb.indptr, logits)
    kernels.edge_softmax_backward(nb.indptr, logits, logits)
    scores(nb, 8, 16, 0, dtype)


def scores(
    nb: Neighborhood, heads: int, dim: int, edge_dim: int, dtype: torch.dtype, asked: bool = False
) -> None:
    from graphtheory.ops.backends.triton import kernels

    x = torch.zeros(nb.num_dst, heads, dim, dtype=dtype)
    edges, matrix = (
        torch.zeros(s).to(dtype) for s in ((nb.num_edges, edge_dim), (heads, edge_dim, dim))
    )
    given, logits = (x, x, x[0], edges, matrix, 0.2), torch.zeros(nb.num_edges, heads, dtype=dtype)
    kernels.additive_score(nb.indptr, nb.indices, *given)
    kernels.additive_score_backward(*parts(nb), logits, *given, asked)


def additive_attention(
    nb: Neighborhood, dtype: torch.dtype, p: float, received: bool = True, scored: bool = False
) -> None:
    from graphtheory.ops.backends.triton import kernels

    x, structure = torch.zeros(nb.num_dst, 8, 16, dtype=dtype), parts(nb)
    edge, seed = torch.zeros(nb.num_edges, 8) if scored else None, torch.tensor(1) if p else None
    given = (x, x[..., 0], x[..., 0] if received else None, edge)
    _, norm = kernels.additive_attention(*structure[:2], *given, 0.2, p, seed)
    kernels.additive_attention_backward(*structure, x, *given, norm, 0.2, p, seed, out=x)


def relu_sums(nb: Neighborhood, heads: int, dim: int, dtype: torch.dtype) -> None:
    from graphtheory.ops.backends.triton import kernels

    x, features = (torch.zeros(n, heads, dim, dtype=dtype) for n in (nb.num_dst, nb.num_edges))
    indptr, indices, t_indptr, _, perm = parts(nb)
    for order in (perm, perm[:0]):
        kernels.relu_sum(indptr, indices, order, x, features)
        kernels.relu_sum_backward(indptr, indices, order, t_indptr, perm, x, x, features)


BINS = [3, 50]  # up to 8, more than a chunk
EQUAL = [16, 16]
CASES: dict[str, tuple[Callable[[], None], int]] = {
    "buckets": (lambda: attention(graph(BINS), torch.bfloat16, "buckets", 0.0), 9),
    "equal rows": (lambda: attention(graph(EQUAL), torch.float32, "buckets", 0.1), 4),
    "float64": (lambda: attention(graph([18, 17]), torch.float64, "edges", 0.1), 3),
    "ids of 32 bits": (lambda: attention(narrow(graph(EQUAL)), torch.bfloat16, "buckets", 0.0), 4),
    "features of edges": (lambda: with_edges(graph(BINS), torch.bfloat16), 23),
    "GAT": (lambda: additive_attention(graph(BINS), torch.bfloat16, 0.0), 9),
    "GAT, edges, dropout": (
        lambda: additive_attention(graph(EQUAL), torch.float32, 0.1, scored=True),
        3,
    ),
    "primitives": (lambda: primitives(graph([70]), torch.float32), 8),
    "scores with features": (lambda: scores(graph(BINS), 8, 16, 16, torch.bfloat16, True), 9),
    "scores of a wide head": (lambda: scores(graph(EQUAL), 1, 300, 50, torch.float32), 4),
    "scores in float64": (lambda: scores(graph(EQUAL), 4, 64, 3, torch.float64, True), 4),
    "ReLU sums": (lambda: relu_sums(graph([70]), 8, 16, torch.float32), 6),
    "ReLU sums of a wide head": (lambda: relu_sums(graph([70]), 1, 300, torch.bfloat16), 6),
}


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_compiles_and_fits_the_registers(
    name: str, capability: int, launches: Launches, tmp_path: Path
) -> None:
    run, different = CASES[name]
    run()
    assert len(launches.programs) == different, list(launches.programs)
    launches.assert_fits(capability, tmp_path)


def attentions(dtype: torch.dtype) -> None:
    for by in ("none", "edges", "buckets"):
        for dropout in (0.0, 0.1):
            attention(graph(EQUAL), dtype, by, dropout)


def additive_attentions() -> None:
    for received in (True, False):
        for scored in (True, False):
            for p in (0.0, 0.1):
                additive_attention(graph(EQUAL), torch.float32, p, received, scored)


def with_all_edges() -> None:
    for width, rows in ((12, 20), (12, 0), (0, 20)):
        for asked in (True, False):
            with_edges(graph(EQUAL), torch.float32, width, rows, asked)


# Triton compiles what follows a `return` under a condition, which the interpreter does not run.
ABSENT: dict[str, tuple[Callable[[], None], int]] = {
    "attention": (lambda: attentions(torch.float32), 14),
    "attention in 16 bits": (lambda: attentions(torch.bfloat16), 14),
    "GAT": (additive_attentions, 17),
    "features of edges": (with_all_edges, 11),
}


@pytest.mark.parametrize("name", ABSENT)
def test_kernels_compile_without_what_may_be_absent(
    name: str, launches: Launches, tmp_path: Path
) -> None:
    run, different = ABSENT[name]
    run()
    assert len(launches.programs) == different, list(launches.programs)
    launches.assert_fits(90, tmp_path)
