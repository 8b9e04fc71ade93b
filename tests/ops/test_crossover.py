"""Which calls go to the dense kernel on a CPU."""

from __future__ import annotations

import pytest
import torch

from graphtheory import Neighborhood, bipartite, causal, cliques, star
from graphtheory.ops.call import AttentionCall
from graphtheory.ops.crossover import dense_is_faster


def faster(nb: Neighborhood, dtype: torch.dtype = torch.float32, biased: bool = False) -> bool:
    query, key = (torch.zeros(n, 1, 2, dtype=dtype) for n in (nb.num_dst, nb.num_src))
    bias = torch.zeros(nb.num_edges, 1, dtype=dtype) if biased else None
    return dense_is_faster(AttentionCall(query, key, key, nb, bias, 1.0, 0.0, None))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (cliques([15] * 4), cliques([16] * 4)),
        (cliques([40, 50]), cliques([50, 51])),
        (causal([30] * 2), causal([31] * 2)),
        (causal([120, 121]), causal([130, 131])),
        (star([500] * 3), bipartite([4] * 3, [500] * 3)),  # one receiver a set
        (star([500, 700]), bipartite([4, 4], [500, 700])),
    ],
)
def test_long_rows_of_several_receivers(short: Neighborhood, long: Neighborhood) -> None:
    assert not faster(short)
    assert faster(long)


def test_half_precision_and_biases_want_longer_rows() -> None:
    assert faster(cliques([32] * 2), biased=True)
    assert not faster(cliques([31] * 2), biased=True)
    assert not faster(cliques([64] * 2), torch.bfloat16)
    assert not faster(cliques([64] * 2), torch.bfloat16, biased=True)
    assert faster(cliques([197] * 2), torch.float16, biased=True)
    assert not faster(causal([400] * 2), biased=True)
