import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import (
    AddSelf,
    AtDistance,
    Compose,
    DegreeGroups,
    DilatedHops,
    FastGCN,
    GraphSAGE,
    KHop,
    Sample,
    SymmetricNormalize,
    UniformNodes,
)
from tests.patterns.laws import GRAPHS, dense, pairs, row_size, source

PATH = GRAPHS["path"]


def test_composing_is_associative_in_order_and_of_nothing_the_graph() -> None:
    assert Compose()(PATH) is PATH and Compose().mask(dense(PATH)).equal(dense(PATH))
    self_last, self_first = Compose(KHop(1), AddSelf())(PATH), Compose(AddSelf(), KHop(1))(PATH)
    assert dense(self_last).diag().all()
    assert not dense(self_first).diag().any()  # KHop leaves the node itself out again
    flat = Compose(KHop(2), Sample(1), AddSelf())
    nested = Compose(KHop(2), Compose(Sample(1), AddSelf()))
    assert pairs(flat(PATH, generator=source())) == pairs(nested(PATH, generator=source()))


def test_one_generator_feeds_every_part_and_one_random_part_makes_it_random() -> None:
    clique = GRAPHS["clique"]
    composed = Compose(Sample(5), Sample(2))(clique, generator=source())
    drawn = source()
    by_hand = Sample(2)(Sample(5)(clique, generator=drawn), generator=drawn)
    assert torch.equal(composed.edge_index(), by_hand.edge_index())
    assert Compose(KHop(2), Compose(Sample(3)), AddSelf()).is_random
    assert not Compose(KHop(2), AddSelf()).is_random and not Compose().is_random


def test_row_sizes_of_a_sample_and_of_what_the_draw_decides() -> None:
    s_nt = Compose(KHop(2), Sample(2), AddSelf())
    # Rows of the directed path see 0, 1, 2, 2, 2, 2 nodes within 2 hops.
    assert row_size(s_nt, dense(PATH)).tolist() == [1, 2, 3, 3, 3, 3]
    loops_after = Compose(KHop(1), UniformNodes(), AddSelf())
    assert row_size(loops_after, dense(PATH)).tolist() == [-1] * 6


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(TypeError, match="patterns: got int, expected Pattern objects"):
        Compose(KHop(2), 60)


@pytest.mark.parametrize("pattern", [
    AddSelf(), Sample(2, whole_graph=True), SymmetricNormalize(), KHop(1), AtDistance(1),
    DilatedHops(), DegreeGroups(),
], ids=repr)  # fmt: skip
def test_bipartite_is_refused_where_a_graph_is_meant(pattern: Compose) -> None:
    two_by_three = bipartite([2], [3])
    with pytest.raises(ValueError, match="3 sources and 2 targets"):
        pattern(two_by_three)


def test_sample_narrows_a_bipartite_neighborhood() -> None:
    drawn = Sample(2)(bipartite([2], [3]), generator=source())
    assert isinstance(drawn, Neighborhood)
    assert drawn.degree().tolist() == [2, 2] and drawn.num_src == 3


def test_mean_is_that_of_the_last_pattern() -> None:
    clique = GRAPHS["clique"]
    weights = Compose(AddSelf(), SymmetricNormalize())(clique).weight
    for sampler in (FastGCN(), UniformNodes(), GraphSAGE(2)):
        mean = Compose(AddSelf(), SymmetricNormalize(), sampler).expected(clique)
        assert mean is not None and torch.equal(mean.weight, weights)
    assert Compose().expected(clique) is clique
    assert Compose(Sample(2), AddSelf()).expected(clique) is None
    assert Compose(Sample(2), UniformNodes()).effective(clique) is None
