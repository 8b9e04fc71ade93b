"""Where dense attention over sets overtakes the loops over edges, measured on a CPU."""

from __future__ import annotations

import math

import torch

from graphtheory.ops.call import AttentionCall

# (causal, ragged) -> the mean row from which torch's dense attention is faster, forward and
# backward: in float32 and float64, in half precision, with a bias. One thread of a Xeon with
# AVX-512, torch 2.13, 8 heads of 16 / 4 heads of 64, times `numba_csr` takes of what dense takes:
#   equal, rows of 8: 0.5 / 0.7; of 16: 1.1 / 1.5; of 32: 2.2 / 2.1; of 128: 3.7 / 3.4
#   ragged, mean row 29: 0.9 / 0.7; 45: 1.0 / 1.0; 56: 1.3 / 1.2; 133: 2.5 / 2.3
#   equal causal, mean row 12: 0.6 / 1.0; 16: 1.1 / 1.5; 100: 1.9 / 2.0
#   ragged causal, mean row 33: 0.7 / 0.7; 67 to 70: 1.0 to 1.1; 102: 1.5 / 1.4
#   bfloat16, equal, rows of 64: 0.4 / 1.0; of 128: 0.9 / 1.6; causal, mean row 100: 0.6 / 1.1
#   a learned bias, by bucket / by edge, ragged, mean row 152: 1.0 / 0.5 and 1.4 / 1.2; causal, mean
#   row 128: 0.6 / 0.6 and 1.0 / 1.0
# One thread of an EPYC with AVX2, a learned bias, by bucket / by edge, equal:
#   8 heads of 16, rows of 16: 0.8 / 0.7; of 32: 1.3 / 1.3; of 49: 1.7 / 1.6; of 64: 1.9 / 1.8
#   4 heads of 64, the same: 1.0 / 1.0; 1.7 / 1.7; 2.2 / 2.1; 2.6 / 2.5
SHORTEST_ROW: dict[tuple[bool, bool], tuple[float, float, float]] = {
    (False, False): (16, 128, 32),
    (False, True): (48, 128, 128),
    (True, False): (16, 160, math.inf),
    (True, True): (64, 160, math.inf),
}
# Receivers a set, on average: one receiver of 64 to 4096 senders makes 0.5 to 0.9, four 1.1 to 1.8.
FEWEST_RECEIVERS = 4


def dense_is_faster(call: AttentionCall) -> bool:
    """Whether `blocks` is faster than `numba_csr` for a call that both can run."""
    nb = call.neighborhood
    count = nb.blocks[0] if nb.blocks is not None else len(nb.sets.dst) if nb.sets else 0
    causal = nb.sets is not None and nb.sets.causal
    ragged = nb.sets is not None and not nb.sets.equal
    plain, half, biased = SHORTEST_ROW[causal, ragged]
    row = half if call.query.dtype in (torch.float16, torch.bfloat16) else plain
    if call.bias is not None:
        row = max(row, biased)
    return nb.num_dst >= FEWEST_RECEIVERS * count and nb.num_edges >= row * nb.num_dst
