"""Which calls go to the dense kernel on a CPU."""

import pytest
import torch

from graphtheory import Neighborhood, bipartite, causal, cliques, star
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backends.blocks import blocks_beat_edge_loops, own_loops_beat_sdpa
from graphtheory.ops.call import AttentionCall


def faster(nb: Neighborhood, dtype: torch.dtype = torch.float32, biased: bool = False) -> bool:
    query, key = (torch.zeros(n, 1, 2, dtype=dtype) for n in (nb.num_dst, nb.num_src))
    bias = torch.zeros(nb.num_edges, 1, dtype=dtype) if biased else None
    return blocks_beat_edge_loops(AttentionCall(query, key, key, nb, bias, 1.0, 0.0, None))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (cliques([11] * 4), cliques([12] * 4)),
        (cliques([40, 50]), cliques([50, 51])),
        (causal([30] * 2), causal([31] * 2)),
        (causal([120, 121]), causal([130, 131])),
        (star([500] * 3), bipartite([4] * 3, [500] * 3)),  # one target a set
        (star([500, 700]), bipartite([4, 4], [500, 700])),
    ],
)
def test_long_rows_of_several_targets(short: Neighborhood, long: Neighborhood) -> None:
    assert not faster(short) and faster(long)


def test_half_precision_and_biases_want_longer_rows() -> None:
    assert not faster(cliques([120, 121]), torch.bfloat16)
    assert faster(cliques([197, 198]), torch.float16, biased=True)
    assert not faster(cliques([120, 121]), biased=True)
    assert not faster(causal([400] * 2), biased=True)


def asked(
    nb: Neighborhood, dtype: torch.dtype = torch.float32, bias: str = "", trained: bool = True
) -> AttentionCall:
    query = torch.zeros(nb.num_dst, 1, 2, dtype=dtype, requires_grad=trained)
    key = torch.zeros(nb.num_src, 1, 2, dtype=dtype)
    table = torch.zeros(1, 1, requires_grad=bias == "learned")
    buckets = BucketedBias(torch.zeros(nb.num_edges, dtype=torch.uint8), table)
    return AttentionCall(query, key, key, nb, buckets if bias else None, 1.0, 0.0, None)


def test_loops_of_our_own_run_equal_sets_where_they_are_faster() -> None:
    assert own_loops_beat_sdpa(asked(cliques([256] * 2)))
    assert not own_loops_beat_sdpa(asked(cliques([257] * 2)))
    assert not own_loops_beat_sdpa(asked(cliques([256] * 2), torch.float16, trained=False))
    assert not own_loops_beat_sdpa(asked(cliques([9, 8])))
    assert not own_loops_beat_sdpa(asked(causal([9, 9])))
    many = cliques([257])
    assert own_loops_beat_sdpa(asked(many, bias="learned"))
    assert not own_loops_beat_sdpa(asked(many, bias="given"))
    assert own_loops_beat_sdpa(asked(many, torch.bfloat16))
    assert not own_loops_beat_sdpa(asked(many, torch.bfloat16, trained=False))
    with torch.no_grad():
        assert not own_loops_beat_sdpa(asked(many, bias="learned"))
