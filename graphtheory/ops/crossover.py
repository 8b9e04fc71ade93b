"""Where dense attention over sets overtakes the loops over edges, measured on a CPU."""

from __future__ import annotations

import math

import torch

from graphtheory.ops.call import AttentionCall, BucketedBias

HALF = (torch.float16, torch.bfloat16)

# (causal, ragged) -> the mean row from which torch's dense attention is faster, forward and
# backward: in float32 and float64, in half precision, with a bias. One thread of a Xeon with
# AVX-512, torch 2.13, 8 heads of 16 / 4 heads of 64, times `numba_csr` takes of what dense takes:
#   ragged, mean row 29: 0.9 / 0.7; 45: 1.0 / 1.0; 56: 1.3 / 1.2; 133: 2.5 / 2.3
#   equal causal, mean row 12: 0.6 / 1.0; 16: 1.1 / 1.5; 100: 1.9 / 2.0
#   ragged causal, mean row 33: 0.7 / 0.7; 67 to 70: 1.0 to 1.1; 102: 1.5 / 1.4
#   bfloat16, causal, mean row 100: 0.6 / 1.1
#   a learned bias, by bucket / by edge, ragged, mean row 152: 1.0 / 0.5 and 1.4 / 1.2; causal, mean
#   row 128: 0.6 / 0.6 and 1.0 / 1.0
# Equal complete sets go to loops of our own, one thread of an EPYC with AVX2, the same ratio:
#   rows of 8: 0.5 / 0.7; of 16: 1.5 / 1.7; of 32: 2.5 / 2.4
#   bfloat16: 0.6 / 1.0; 1.4 / 1.6; 2.1 / 2.3; dropout: 0.6 / 0.8; 1.3 / 1.5; 1.3 / 1.7
#   a learned bias, by bucket: 0.6 / 0.7; 1.4 / 1.7; 2.3 / 2.6; by edge: 0.6 / 0.7; 1.3 / 1.6
SHORTEST_ROW: dict[tuple[bool, bool], tuple[float, float, float]] = {
    (False, False): (12, 12, 12),
    (False, True): (48, 128, 128),
    (True, False): (16, 160, math.inf),
    (True, True): (64, 160, math.inf),
}
# Targets a set, on average: one target of 64 to 4096 sources makes 0.5 to 0.9, four 1.1 to 1.8.
FEWEST_TARGETS = 4

# Sources of an equal set up to which those loops are faster than torch's kernel. Two threads of an
# EPYC, times it takes of what they take, 8 heads of 16 / 4 of 64 / 1 of 128, forward and backward:
# 16 sources 1.4 / 2.4 / 1.9; 64: 1.7 / 1.4 / 1.5; 197: 1.3 / 1.2 / 1.3; 256: 1.4 / 1.2 / 1.1;
# 1024: 1.3 / 1.0 / 0.8; in bfloat16 1.9 / 1.7 / 1.9; 2.3 / 3.2 / 3.2; 3.4 / 5.6 / 5.3;
# 3.8 / 5.8 / 5.4; 4.8 / 5.0 / 4.6. Forward alone the same of 256: 1.1 / 1.1 / 1.0, but in bfloat16
# from 32 sources on 0.5 to 0.9. `benchmarks/sets.py` prints it.
MOST_SOURCES = 256


def blocks_beat_edge_loops(call: AttentionCall) -> bool:
    """Whether `blocks` is faster than `numba_csr` for a call that both can run."""
    nb = call.neighborhood
    count = 0 if nb.sets is None else nb.sets.count
    causal = nb.sets is not None and nb.sets.causal
    ragged = nb.sets is not None and not nb.sets.equal
    plain, half, biased = SHORTEST_ROW[causal, ragged]
    row = half if call.query.dtype in HALF else plain
    if call.bias is not None:
        row = max(row, biased)
    return nb.num_dst >= FEWEST_TARGETS * count and nb.num_edges >= row * nb.num_dst


def own_loops_beat_sdpa(call: AttentionCall) -> bool:
    """Whether loops of our own are faster than torch's kernel for dense sets on a CPU."""
    blocks, on_cpu = call.neighborhood.blocks, call.query.device.type == "cpu"
    if blocks is None or not on_cpu:
        return False
    if blocks[2] <= MOST_SOURCES and call.query.dtype not in HALF:
        return True
    values = call.bias.table if isinstance(call.bias, BucketedBias) else call.bias
    learned = values is not None and values.requires_grad  # torch's kernel keeps all weights for it
    return call.needs_grad and (learned or call.query.dtype in HALF)
