"""Patterns that are told the graphs of a batch: never an edge between two of them."""

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.graph import TOKEN
from graphtheory.patterns import Expander, KHop, Pattern, VirtualNode, Window
from graphtheory.structure import UNREACHABLE
from tests.patterns import laws
from tests.patterns.laws import GRAPHS

PARTS = list(GRAPHS.values())
SIZES = tuple(g.num_dst for g in PARTS)


@pytest.mark.parametrize("pattern", [Window(2, SIZES), VirtualNode(SIZES)], ids=repr)
def test_a_batch_is_the_union_of_its_graphs(pattern: Pattern) -> None:
    alone = Window(2) if isinstance(pattern, Window) else VirtualNode()
    together = laws.side_by_side(PARTS)
    laws.equals_its_mask(pattern, together)
    assert laws.pairs(pattern(together)) == laws.pairs(laws.side_by_side([alone(p) for p in PARTS]))


def test_an_expander_is_symmetric_almost_regular_and_connects_within_its_graph() -> None:
    together, pattern = laws.side_by_side(PARTS), Expander(4, SIZES)
    laws.draws_from_its_mask(pattern, together)
    with pytest.raises(AssertionError, match="drew outside the mask"):
        crossing = Expander(4)
        object.__setattr__(crossing, "mask", pattern.mask)
        laws.draws_from_its_mask(crossing, together)
    none = Neighborhood.from_edge_index(laws.NONE, 200)
    drawn = Expander(6)(none, generator=laws.source())
    assert torch.equal(drawn.to_dense(), drawn.to_dense().t())
    assert int(drawn.degree().max()) <= 6 and drawn.num_edges > 0.95 * 6 * 200
    assert KHop(254)(drawn).num_edges == 200 * 199
    assert int(KHop(254)(drawn).distance.max()) <= 6  # log_5(200) = 3.3


def test_added_edges_have_weight_and_distance_of_their_own() -> None:
    ball = KHop(1)(GRAPHS["path"])
    ball = ball.replace(weight=torch.full((ball.num_edges,), 3.0))
    for pattern, hops in ((VirtualNode(), TOKEN), (Expander(2), UNREACHABLE)):
        out = pattern(ball, generator=laws.source())
        given = {(int(s), int(r)) for s, r in ball.edge_index().t()}
        for s, r, w, d in zip(*out.edge_index().tolist(), out.weight.tolist(),
                              out.distance.tolist(), strict=True):  # fmt: skip
            assert (w, d) == ((3.0, 1) if (s, r) in given else (1.0, hops))


@pytest.mark.parametrize("kind", [VirtualNode, Window, Expander])
def test_sizes_that_do_not_fit_are_refused(kind: type[Pattern]) -> None:
    with pytest.raises(ValueError, match="sizes: 5 nodes, expected 6 as the neighborhood has"):
        kind(sizes=(2, 3))(GRAPHS["path"], generator=laws.source())
    with pytest.raises(ValueError, match="sizes: got"):
        kind(sizes=(-1,))


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="degree: got 3, expected an even number"):
        Expander(3)
    with pytest.raises(ValueError, match="size: got -1"):
        Window(-1)
