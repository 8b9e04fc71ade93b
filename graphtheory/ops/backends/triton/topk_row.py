"""What k-nearest attention does to rows of logits [M, N] that a Triton program holds.

Five numbers are the facts of a row: a floor, a ceiling, a last place, the largest logit, and one
over the sum of exponentials. Chosen are the entries that reach the ceiling, and up to the last
place those that reach the floor. Floor and ceiling lie halfway between the k-th largest entry and
the next ones, so that logits computed again, in tiles of another shape, choose the same entries
even if they differ by a rounding.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphtheory.ops.backends.triton.parts import finite

FACTS = tl.constexpr(5)


@triton.jit
def _turned(bits):
    """The bits of float32 as integers in the order of the numbers, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _kth_largest(x, k):
    """The k-th largest entry of each row; the lowest finite number where fewer are finite.

    By bisection over the places of numbers in their order.
    """
    places = _turned(x.to(tl.int32, bitcast=True))
    low = tl.full([x.shape[0]], -0x7F800000, tl.int32)  # of the lowest finite number
    high = tl.full([x.shape[0]], 0x7F800000, tl.int32)  # of infinity
    for _ in range(32):  # k entries reach low, or it is the lowest; fewer than k reach high
        middle = (low & high) + ((low ^ high) >> 1)
        enough = tl.sum((places >= middle[:, None]).to(tl.int32), 1) >= k
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    return _turned(low).to(tl.float32, bitcast=True)


@triton.jit
def choose(x, column, k):
    """Floor, ceiling, last place and largest entry of each row; NaN where an entry is or is inf."""
    kth = _kth_largest(x, k)
    larger, tied = x > kth[:, None], x == kth[:, None]
    place = tl.cumsum(tied.to(tl.int32), 1) + tl.sum(larger.to(tl.int32), 1)[:, None]
    last = tl.max(tl.where(tied & (place <= k), column[None, :], -1), 1)
    below = tl.max(tl.where(x < kth[:, None], x, float("-inf")), 1)
    below = tl.maximum(below, -3.4028234663852886e38)
    floor = 0.5 * kth + 0.5 * below
    floor = tl.where(floor > below, floor, kth)
    above = tl.min(tl.where(larger, x, float("inf")), 1)
    ceiling = 0.5 * kth + 0.5 * above
    ceiling = tl.where(ceiling > kth, ceiling, above)
    good = tl.min((x < float("inf")).to(tl.int32), 1) > 0
    nan = float("nan")
    top = tl.where(good, tl.max(x, 1), nan)
    return tl.where(good, floor, nan), tl.where(good, ceiling, nan), last, top


@triton.jit
def exponentials(x, column, floor, ceiling, last, top):
    """exp(x - top) of the chosen entries, 0 elsewhere; NaN in a row without a floor."""
    late = (x < ceiling[:, None]) & (column[None, :] > last[:, None])
    return tl.where((x < floor[:, None]) | late, 0.0, tl.exp(x - finite(top)[:, None]))


@triton.jit
def put_facts(facts, row, live, floor, ceiling, last, top, share):
    """Store the facts of some rows."""
    at = facts + FACTS * row
    tl.store(at, floor, mask=live)
    tl.store(at + 1, ceiling, mask=live)
    tl.store(at + 2, last.to(tl.float32), mask=live)
    tl.store(at + 3, top, mask=live)
    tl.store(at + 4, share, mask=live)


@triton.jit
def weights(x, column, facts, row, live):
    """The weights [M, N] of logits computed again."""
    at = facts + FACTS * row
    floor, ceiling = tl.load(at, mask=live, other=0.0), tl.load(at + 1, mask=live, other=0.0)
    last = tl.load(at + 2, mask=live, other=0.0).to(tl.int32)
    top, share = tl.load(at + 3, mask=live, other=0.0), tl.load(at + 4, mask=live, other=0.0)
    return exponentials(x, column, floor, ceiling, last, top) * share[:, None]
