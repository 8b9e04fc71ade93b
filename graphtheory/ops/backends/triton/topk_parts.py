"""What programs of k-nearest attention do: products of a block, and the choice in its rows.

A program has some rows and columns of one block and head: nodes by number, `row` [M] and `column`
[N], and whether there is such a node. WIDTH numbers make a node, DIM of them a head, from `base`
on. Products are of the tensor cores, summed in float32: those of 16-bit nodes are exact, and a
float32 goes there as two numbers of 11 bits, in three products. Weights and gradients of logits are
rounded to the type of 16-bit nodes before they multiply these.

Five numbers are the statistics of a row of logits: a floor, a ceiling, a last place, the largest
logit, and one over the sum of exponentials. Chosen are the entries that reach the floor, and of
those below the ceiling only the ones up to the last place, which is beyond the row if all of them
are chosen. Floor and ceiling lie halfway between the k-th largest entry and the next ones, so that
logits computed again, in tiles of another shape, choose the same entries even if they differ by a
rounding. A row's entries are in the registers of few threads, and each step costs some instructions
for each entry: what is needed for equal entries alone stands under a condition.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from graphtheory.ops.backends.triton.primitives import cast, finite

STATS = tl.constexpr(5)
ROWS = tl.constexpr(16)  # of a product, at least
TERMS = tl.constexpr(32)  # of a sum over columns, in one product of float32
_FLOAT32 = tl.constexpr("ieee" if torch.version.hip else "tf32x3")


@triton.jit
def part(size, HEADS: tl.constexpr, SIZE: tl.constexpr):
    """Block, head and SIZE places of this program; the next one has the next places."""
    parts = tl.cdiv(size, SIZE)
    pair = tl.program_id(0) // parts
    place = tl.program_id(0) % parts * SIZE + tl.arange(0, SIZE)
    return (pair // HEADS).to(tl.int64), pair % HEADS, place


@triton.jit
def nodes(base, node, live, first, WIDTH: tl.constexpr, DIM: tl.constexpr, C: tl.constexpr):
    """Features first..first+C of some nodes: [., C]."""
    feature = first + tl.arange(0, C)
    mask = live[:, None] & (feature < DIM)[None, :]
    return tl.load(base + node[:, None] * WIDTH + feature[None, :], mask=mask, other=0)


@triton.jit
def product(a, b, out=None):
    """Product of a [M, K], in the type of b, and b [K, N], added to out in float32."""
    return tl.dot(a.to(b.dtype), b, out, input_precision=_FLOAT32)


@triton.jit
def put_nodes(
    base, node, live, first, what, WIDTH: tl.constexpr, DIM: tl.constexpr, C: tl.constexpr
):
    """Store what `nodes` would read."""
    feature = first + tl.arange(0, C)
    mask = live[:, None] & (feature < DIM)[None, :]
    tl.store(base + node[:, None] * WIDTH + feature[None, :], what, mask=mask)


@triton.jit
def products(
    a, row, row_live, b, column, column_live,
    A_WIDTH: tl.constexpr, B_WIDTH: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Dot products [M, N] of nodes of a and nodes of b."""
    out = tl.zeros((row.shape[0], column.shape[0]), tl.float32)
    for first in tl.range(0, DIM, DIMS, num_stages=1):  # a second stage would be shared as well
        x = nodes(a, row, row_live, first, A_WIDTH, DIM, DIMS)
        y = nodes(b, column, column_live, first, B_WIDTH, DIM, DIMS)
        out = product(x, tl.trans(y), out)
    return out


@triton.jit
def put_sums(
    out, row, row_live, factor, base, column, column_live, scale,
    OUT_WIDTH: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    """Store at the rows of out scale * factor [M, N] @ nodes, in float32 by sums in registers."""
    M: tl.constexpr = factor.shape[0]
    P: tl.constexpr = factor.shape[1] // TERMS
    if base.dtype.element_ty == tl.float32:
        parts = tl.permute(tl.reshape(factor, (M, P, TERMS)), (1, 0, 2))
    for first in tl.range(0, DIM, DIMS, num_stages=1):
        y = nodes(base, column, column_live, first, WIDTH, DIM, DIMS)
        if base.dtype.element_ty == tl.float32:
            terms = tl.reshape(y, (P, TERMS, DIMS))
            sums = tl.sum(tl.dot(parts, terms, input_precision=_FLOAT32), 0)
        else:
            sums = product(factor, y)
        put_nodes(out, row, row_live, first, scale * sums, OUT_WIDTH, DIM, DIMS)


@triton.jit
def logits(
    query, row, row_live, key, column, column_live, edge, head, bias, bucket, table, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, BUCKETS: tl.constexpr,
    DIMS: tl.constexpr,
):  # fmt: skip
    """Logits [M, N]: minus infinity beyond the block, NaN for a bucket beyond the table."""
    x = products(query, row, row_live, key, column, column_live, WIDTH, WIDTH, DIM, DIMS)
    x = x * cast(scale, tl.float32) + 0.0  # no -0.0, see `choose`
    live = row_live[:, None] & column_live[None, :]
    if bias is not None:
        x += tl.load(bias + edge * HEADS + head, mask=live, other=0).to(tl.float32)
    if bucket is not None:
        z = tl.load(bucket + edge, mask=live, other=0).to(tl.int32)
        known = live & (z < BUCKETS)
        x += tl.load(table + z * HEADS + head, mask=known, other=float("nan")).to(tl.float32)
    return tl.where(live, x, float("-inf"))


@triton.jit
def _turned(bits):
    """The bits of float32 as integers in the order of the numbers, and back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _reaching(x, least):
    """How many entries of each row reach a number: where x - least has no sign."""
    signs = (x - least[:, None]).to(tl.int32, bitcast=True) >> 31
    return x.shape[1] + tl.sum(signs, 1)


@triton.jit
def _bisected(x, k):
    """A number that the k largest entries of each row reach, and how many entries do.

    As many as k, unless several are the k-th largest, which is that number then; or all finite ones
    where they are fewer. First the middle is halfway between two numbers, which takes some 16
    rounds where entries are drawn, then between their places in the order of all numbers.
    """
    least = tl.min(tl.where(x > float("-inf"), x, float("inf")), 1)
    most = tl.minimum(tl.max(x, 1), 3.4028234663852886e38)
    low = _turned(least.to(tl.int32, bitcast=True))
    high = _turned(most.to(tl.int32, bitcast=True)) + 1
    reaching = _reaching(x, least)
    rounds = 0
    left = tl.max(((reaching > k) & (low + 1 < high)).to(tl.int32), 0)
    while (left > 0) & (rounds < 64):
        lower = _turned(low).to(tl.float32, bitcast=True)
        upper = _turned(high).to(tl.float32, bitcast=True)
        middle = _turned((0.5 * lower + 0.5 * upper).to(tl.int32, bitcast=True))
        by_place = (rounds >= 20) | (middle <= low) | (middle >= high)
        middle = tl.where(by_place, (low & high) + ((low ^ high) >> 1), middle)
        found = _reaching(x, _turned(middle).to(tl.float32, bitcast=True))
        low, high = tl.where(found >= k, middle, low), tl.where(found >= k, high, middle)
        reaching = tl.where(found >= k, found, reaching)
        left = tl.max(((reaching > k) & (low + 1 < high)).to(tl.int32), 0)
        rounds += 1
    return _turned(low).to(tl.float32, bitcast=True), reaching


@triton.jit
def _place_of(entries, column, count):
    """The column of the count-th of the entries that are true in each row, found by bisection."""
    tl.static_assert(entries.shape[1] <= 1024)
    low = tl.full([entries.shape[0]], -1, tl.int32)
    high = tl.full([entries.shape[0]], 1023, tl.int32)
    for _ in range(10):
        middle = (low + high) >> 1
        enough = tl.sum((entries & (column[None, :] <= middle[:, None])).to(tl.int32), 1) >= count
        low, high = tl.where(enough, low, middle), tl.where(enough, middle, high)
    return high


@triton.jit
def choose(x, column, k):
    """Floor, ceiling, last place and largest entry of each row, which has no -0.0 (signs count)."""
    lower, reaching = _bisected(x, k)
    reached = x >= lower[:, None]
    kth = tl.min(tl.where(reached, x, float("inf")), 1)
    below = tl.max(tl.where(reached, float("-inf"), x), 1)
    below = tl.maximum(below, -3.4028234663852886e38)
    floor = 0.5 * kth + 0.5 * below
    floor = tl.where(floor > below, floor, kth)
    ceiling, last = kth, tl.full([x.shape[0]], x.shape[1], tl.int32)
    if tl.max(reaching, 0) > k:
        larger = x > kth[:, None]
        place = _place_of(x == kth[:, None], column, k - tl.sum(larger.to(tl.int32), 1))
        last = tl.where(reaching > k, place, last)
        above = tl.min(tl.where(larger, x, float("inf")), 1)
        ceiling = 0.5 * kth + 0.5 * above
        ceiling = tl.where(ceiling > kth, ceiling, above)
    return floor, ceiling, last, tl.max(x, 1)


@triton.jit
def _exponentials(x, floor, top):
    """exp(x - top) of the entries that reach the floor, 0 elsewhere; NaN where top is infinite."""
    return tl.where(x < floor[:, None], 0.0, tl.exp(x - finite(top)[:, None]))


@triton.jit
def _without_late(w, x, column, ceiling, last):
    """The same, and 0 for entries below the ceiling beyond the last place."""
    return tl.where((x < ceiling[:, None]) & (column[None, :] > last[:, None]), 0.0, w)


@triton.jit
def exponentials(x, column, floor, ceiling, last, top):
    """exp(x - top) of the chosen entries, 0 elsewhere; NaN where x is, or top is infinite."""
    w = _exponentials(x, floor, top)
    if tl.min(last, 0) < x.shape[1]:
        w = _without_late(w, x, column, ceiling, last)
    return w


@triton.jit
def put_stats(stats, row, live, floor, ceiling, last, top, share):
    """Store the statistics of some rows."""
    at = stats + STATS * row
    tl.store(at, floor, mask=live)
    tl.store(at + 1, ceiling, mask=live)
    tl.store(at + 2, last.to(tl.float32), mask=live)
    tl.store(at + 3, top, mask=live)
    tl.store(at + 4, share, mask=live)


@triton.jit
def weights(x, column, stats, row, live):
    """The weights [M, N] of logits computed again."""
    at = stats + STATS * row
    floor, ceiling = tl.load(at, mask=live, other=0.0), tl.load(at + 1, mask=live, other=0.0)
    last = tl.load(at + 2, mask=live, other=0.0).to(tl.int32)
    top, share = tl.load(at + 3, mask=live, other=0.0), tl.load(at + 4, mask=live, other=0.0)
    w = _without_late(_exponentials(x, floor, top), x, column, ceiling, last)
    return w * share[:, None]
