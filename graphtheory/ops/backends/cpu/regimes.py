"""Which loops run attention: on whole rows, by three loops, or on tiles that keep no weights."""

from __future__ import annotations

from torch import Tensor

# Multiply-adds of a sum below which rows stay whole: three loops become one. Above, hubs are shared
# out, and rows asked for ahead where they are far. What three loops took of the time of one when
# near rows were asked for, too, 8 heads of 16, on an EPYC: 1.4 million 1.3, 2.6 million 1.0, 3.8
# million 0.9, 7.7 million 0.7; molecules, whose edges are short, 1.4 to 1.3 at any size.
WHOLE_ROWS_BELOW = 2**22
# Bytes of the weights [E, H] from which on they are not kept for the backward pass.
KEPT_WEIGHTS_BELOW = 2**26


def rows_stay_whole(indices: Tensor, value: Tensor) -> bool:
    """Whether the multiply-adds of a sum are so few that a row is never shared out."""
    return indices.size(0) * value.size(1) * value.size(2) < WHOLE_ROWS_BELOW


def keeps_weights(num_edges: int, num_heads: int, itemsize: int) -> bool:
    """Whether the backward pass is given the weights [E, H]; else it computes them again."""
    return num_edges * num_heads * itemsize < KEPT_WEIGHTS_BELOW
