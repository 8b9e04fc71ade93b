"""Triton's kernels of k-nearest attention, interpreted on the CPU; see `test_kernels.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory import Neighborhood, bipartite, cliques, ops
from graphtheory.ops import fused_topk, reference
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends.triton import topk
from graphtheory.ops.backends.triton.topk_parts import choose, exponentials
from graphtheory.ops.call import AttentionCall
from tests.conformance.check import BIASES, Inputs, draw_inputs, expanded
from tests.ops.test_topk import assert_same, halves, run, with_gradients

# NumPy, which the interpreter takes, warns of maxima of NaN alone and of inf - inf.
pytestmark = [
    pytest.mark.filterwarnings("ignore:All-NaN (slice|axis) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings(
        "ignore:(overflow|invalid value) encountered in subtract:RuntimeWarning"
    ),
]

SEED = 77


@pytest.fixture(autouse=True)
def even_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dot products that round the same wherever a column stands, as those of a GPU do.

    The interpreter takes NumPy's, whose BLAS on some processors rounds by place, and multiplies the
    bits of bfloat16 as integers.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def wide(x: TensorHandle) -> np.ndarray:
        if x.dtype.scalar == tl.bfloat16:
            return (x.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return x.data.astype(np.float64)

    def create_dot(self, a, b, d, *options):  # type: ignore[no-untyped-def]
        return TensorHandle((wide(a) @ wide(b)).astype(d.data.dtype) + d.data, d.dtype.scalar)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)


def blocks(count: int, targets: int, sources: int) -> Neighborhood:
    return bipartite([targets] * count, [sources] * count)


def call_of(inputs: Inputs, nb: Neighborhood, k: int, dropout: float = 0.0) -> AttentionCall:
    seed = torch.tensor(SEED) if dropout else None
    nodes = (inputs.query, inputs.key, inputs.value)
    return AttentionCall(*nodes, nb, inputs.bias, inputs.query.size(2) ** -0.5, dropout, seed, k)


def attend(
    inputs: Inputs, nb: Neighborhood, k: int, dropout: float = 0.0, backend: str = "triton_csr"
) -> list[Tensor]:
    """Output and gradients of a module that computes blocks."""
    out = fused_topk.on_blocks(call_of(inputs, nb, k, dropout), BACKENDS[backend])
    return with_gradients(out, inputs)


def definition(inputs: Inputs, nb: Neighborhood, k: int, dropout: float = 0.0) -> list[Tensor]:
    """The same in float64, by the definition."""
    exact = inputs.to(torch.float64)
    return with_gradients(reference.attention(call_of(exact, nb, k, dropout)), exact)


def conforms(
    inputs: Inputs, nb: Neighborhood, k: int, dropout: float = 0.0, tolerance: float = 1e-5
) -> None:
    found = attend(inputs, nb, k, dropout)
    assert all(t.dtype == inputs.query.dtype for t in found[:4])
    assert_same(found, definition(inputs, nb, k, dropout), tolerance)


F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SIZES = [(1, 1, 1), (2, 5, 7), (2, 17, 32), (1, 40, 70)]  # one program and some, steps and none
CASES = [  # count, targets, sources; heads, features, bias, k, dropout, type, tolerance
    *(((1, 40, 70), 1, 5, b, 30, 0.0, F32, 1e-4 if b == "large" else 1e-5) for b in BIASES),
    *((s, 1, 5, "masked", k, 0.0, F32, 1e-5) for s in SIZES for k in {1, s[2] // 2 + 1, 1000}),
    *(((1, 6, 9), *shape, "buckets", 4, 0.0, F32, 1e-5)
      for shape in ((1, 1), (3, 16), (1, 33), (1, 128))),
    *(((1, 20, 40), 2, 20, b, 15, 0.4, dtype, error)
      for b in ("edges", "buckets") for dtype, error in ((BF16, 2e-2), (F16, 2e-3))),
]  # fmt: skip


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("sizes", "heads", "dim", "bias", "k", "dropout", "dtype", "error"), CASES)
def test_outputs_and_gradients(sizes, heads, dim, bias, k, dropout, dtype, error):
    nb = blocks(*sizes)
    conforms(draw_inputs(nb, heads, dim, bias, dtype), nb, k, dropout, error)


@pytest.mark.parametrize("bias", ["masked", "buckets"])
@pytest.mark.parametrize("k", [1, 30])
def test_of_equal_logits_the_earlier_edges_stay(k: int, bias: str) -> None:
    nb = blocks(1, 7, 40)
    conforms(halves(draw_inputs(nb, 2, 4, bias)), nb, k, dropout=0.4)


def test_equal_logits_stay_equal_where_they_are_made_anew() -> None:
    nb = blocks(1, 40, 72)
    inputs = draw_inputs(nb, 1, 33)
    key = inputs.key.detach().view(3, 24, 1, 33)[:1].expand(3, -1, -1, -1).reshape(72, 1, 33)
    for k in (1, 50):
        conforms(replace(inputs, key=key.requires_grad_()), nb, k)


@pytest.mark.parametrize("p", [0.4, 0.999])
def test_dropout_is_that_of_the_other_backends(p: float) -> None:
    nb = blocks(2, 9, 11)
    inputs = draw_inputs(nb, 1, 5, "buckets")
    conforms(inputs, nb, 6, p)
    assert_same(attend(inputs, nb, 6, p), attend(inputs, nb, 6, p, "numba_csr"), 1e-5)


@pytest.mark.parametrize("what", [torch.nan, torch.inf])
def test_a_row_that_is_no_number_stays_none_and_alone(what: float) -> None:
    nb = blocks(2, 3, 20)
    inputs = draw_inputs(nb, 1, 4, "edges")
    bias = inputs.bias.detach().clone()
    bias[25] = what
    inputs = replace(inputs, bias=bias.requires_grad_())
    found, wanted = (attend(inputs, nb, 5, 0.0, m) for m in ("triton_csr", "numba_csr"))
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert found[0].isnan().all(2).flatten().tolist() == [False, True] + 4 * [False]


def test_strides_do_not_matter() -> None:
    nb = blocks(1, 5, 7)
    for bias in ("edges", "buckets"):
        conforms(expanded(draw_inputs(nb, 2, 5, bias)), nb, 3, 0.4)


def test_views_of_one_projection_are_read_where_they_lie() -> None:
    nb = blocks(2, 9, 9)
    both = torch.randn(18, 3, 2, 5).unbind(1)
    views, copies = (
        topk.topk_blocks(*nodes, None, None, None, None, nb.blocks, 4, 1.0, 0.0)
        for nodes in (both, [t.contiguous() for t in both])
    )
    assert topk._side_by_side(*both)[0][1] is both[1] and all(map(torch.equal, views, copies))


def test_twice_gives_the_same_bits() -> None:
    nb = blocks(1, 20, 40)
    inputs = draw_inputs(nb, 1, 5, "buckets")
    pairs = zip(*(attend(inputs, nb, 9, 0.3) for _ in range(2)), strict=True)
    assert all(torch.equal(once, again) for once, again in pairs)


@pytest.mark.parametrize("shape", [(8, 0, 3), (8, 2, 0)])
def test_without_heads_or_features(shape: tuple[int, int, int]) -> None:
    nodes = [torch.zeros(shape, requires_grad=True) for _ in range(3)]
    bias = torch.zeros(32, shape[1], requires_grad=True)
    call = AttentionCall(*nodes, cliques([4, 4]), bias, 1.0, 0.0, None, 2)
    out = fused_topk.on_blocks(call, BACKENDS["triton_csr"])
    assert out.shape == shape
    assert all(g.eq(0).all() for g in torch.autograd.grad(out.sum(), [*nodes, bias]))


def test_a_bucket_beyond_the_table_is_not_a_number() -> None:
    # The check before the launch raises; a recorded CUDA graph runs the kernel alone.
    x, table = torch.zeros(4, 1, 1), torch.zeros(3, 1)
    bucket = torch.tensor([0, 3, 2, 2, 1, 1, 0, 0], dtype=torch.uint8)
    out, _ = topk.topk_blocks(x, x, x, None, bucket, table, None, (2, 2, 2), 1, 1.0, 0.0)
    assert out.isnan().flatten().tolist() == [True, False, False, False]


def test_without_need_the_gradient_of_the_logits_is_not_written() -> None:
    nb = blocks(1, 5, 7)
    inputs = draw_inputs(nb, 2, 3, "buckets")
    nodes = (inputs.query.detach(), inputs.key.detach(), inputs.value.detach())
    bias = (None, inputs.bias.bucket, inputs.bias.table.detach(), None)
    _, stats = topk.topk_blocks(*nodes, *bias, nb.blocks, 3, 1.0, 0.0)
    found = [
        topk.topk_blocks_backward(inputs.grad, *nodes, *bias, stats, nb.blocks, wanted, 1.0, 0.0)
        for wanted in (True, False)
    ]
    assert [t.shape for t in found[1][3:]] == [(0, 2), (0, 2)]
    assert all(torch.equal(a, b) for a, b in zip(found[0][:3], found[1][:3], strict=True))


def test_is_a_proper_torch_op() -> None:
    nb = cliques([4, 4])
    inputs = draw_inputs(nb, 1, 3, "buckets")
    bucket, table = inputs.bias
    given = (inputs.query, inputs.key, inputs.value, None, table, bucket, torch.tensor(5))
    options = (0.5, 0.25, "triton_csr")
    checks = ("test_schema", "test_faketensor")
    registered = torch.ops.graphtheory
    torch.library.opcheck(
        registered.topk_blocks, (*given, nb.blocks, 2, *options), test_utils=checks
    )
    _, stats = registered.topk_blocks(*given, nb.blocks, 2, *options)
    given = [None if t is None else t.detach() for t in given]
    torch.library.opcheck(
        registered.topk_blocks_backward,
        (inputs.grad, stats, "11111", *given, nb.blocks, 2, *options),
        test_utils=checks,
    )


@triton.jit
def choose_and_look_again(x, y, out, k, N: tl.constexpr):
    """Write the exponentials of the numbers y of a row whose stats are those of x."""
    j = tl.arange(0, N)
    low, high, last, top = choose(tl.load(x + j)[None, :] + 0.0, j, k)
    found = exponentials(tl.load(y + j)[None, :], j, low, high, last, top)
    tl.store(out + j[None, :], found)


def chosen(row: Tensor, k: int, again: Tensor | None = None) -> list[int]:
    out = torch.empty_like(row)
    again = row if again is None else again
    choose_and_look_again[(1,)](row, again.contiguous(), out, k, N=len(row))
    return (out > 0).nonzero().flatten().tolist()


LARGEST, LEAST = torch.finfo(torch.float32).max, 1e-45


@pytest.mark.parametrize("numbers", [
    [0.0, -0.0, 0.0, -1.0], [LEAST, 0.0, -LEAST, LEAST], [1.0, 1.0 + 2**-23, 1.0, 1.0 - 2**-24],
    [-torch.inf, -LARGEST, -torch.inf, 0.0], [LARGEST, -LARGEST, LARGEST, 0.0],
    [-torch.inf] * 4, [-3.0, 2.0, -3.0, -3.0],
])  # fmt: skip
def test_the_choice_is_that_of_a_sort(numbers: list[float]) -> None:
    row = torch.tensor(numbers)
    top = torch.where(row.isinf(), 0.0, row).max()
    seen = {j for j in range(4) if (row[j] - top).exp() > 0}  # others have weight 0 anyway
    for k in (1, 2, 3, 5):
        order = sorted(range(4), key=lambda j: (-float(row[j]), j))[:k]
        wanted = {j for j in order if row[j] > -torch.inf} & seen
        assert chosen(row, k) == sorted(wanted)


def test_a_rounding_changes_no_choice() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        row = torch.randint(-4, 5, (32,), generator=generator) / 3
        row[torch.rand(32, generator=generator) < 0.2] = -torch.inf
        off = row * (1 + 1e-6 * torch.randn(32, generator=generator))
        for k in (1, 7, 20):
            assert chosen(row, k, off) == chosen(row, k)


def test_a_large_k_is_attention() -> None:
    nb = cliques([9, 9])
    inputs = draw_inputs(nb, 2, 8, "edges")
    exact = inputs.to(torch.float64)
    nodes = (exact.query, exact.key, exact.value)
    true = with_gradients(ops.attention(*nodes, nb, bias=exact.bias), exact)
    assert_same(attend(inputs, nb, 10**12), true, 1e-5)
    assert_same(with_gradients(run(exact, nb, 10**12, "blocks"), exact), true, 1e-12)
