import torch

from graphtheory.graph import Grid
from graphtheory.vision.nn.token_sets import (
    token_bipartite,
    token_causal,
    token_cliques,
    token_windows,
)

CPU = torch.device("cpu")


def test_a_size_is_built_once_and_serves_training() -> None:
    assert token_cliques(2, 5, CPU) is token_cliques(2, 5, CPU)
    assert token_cliques(2, 5, CPU).blocks == (2, 5, 5)
    assert token_bipartite(2, 3, 5, CPU) is token_bipartite(2, 3, 5, CPU)
    assert token_bipartite(2, 3, 5, CPU).blocks == (2, 3, 5)
    assert token_causal((2, 5), CPU) is token_causal((2, 5), CPU)
    assert token_causal((2, 5), CPU).num_edges == 3 + 15
    assert token_windows(Grid(1, 4, 4), 2, 1, CPU) is token_windows(Grid(1, 4, 4), 2, 1, CPU)
    assert token_windows(Grid(1, 4, 4), 2, 0, CPU) is not token_windows(Grid(1, 4, 4), 2, 1, CPU)
    with torch.inference_mode():
        nb, cut = token_cliques(3, 7, CPU), token_windows(Grid(3, 5, 5), 2, 1, CPU)
    assert not any(t.is_inference() for t in (nb.indices, *cut[1:]))
