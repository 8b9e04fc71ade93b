import pytest
import torch

from graphtheory.patterns import GraphSAGE, Sample
from tests.patterns.laws import GRAPHS, pairs, source, weighted


def test_the_draw_is_that_of_sample() -> None:
    graph = GRAPHS["random directed"]
    drawn, plain = (p(graph, generator=source()) for p in (GraphSAGE(2), Sample(2)))
    assert torch.equal(drawn.edge_index(), plain.edge_index())


def test_weights_make_up_for_who_is_missing() -> None:
    drawn = GraphSAGE(2)(GRAPHS["star"], generator=source())
    assert drawn.degree().tolist() == [2, 1, 1, 1, 1, 1, 1]
    assert drawn.weight.tolist() == [3.0, 3.0, *[1.0] * 6]


def test_short_rows_stay_whole() -> None:
    nb = weighted(GRAPHS["random directed"])
    assert pairs(GraphSAGE(100)(nb, generator=source())) == pairs(nb)


def test_out_of_range() -> None:
    with pytest.raises(ValueError, match="n: got 0, expected a whole number of sources"):
        GraphSAGE(0)
    with pytest.raises(TypeError, match="generator: got int"):
        GraphSAGE(2)(GRAPHS["star"], generator=0)
