import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import LADIES, FastGCN, Pattern
from tests.patterns.laws import GRAPHS, pairs, source, weighted


def columns(nb: Neighborhood) -> torch.Tensor:
    return nb.to_dense().square().sum(0)


def test_how_often_a_source_comes_is_in_proportion_to_its_column() -> None:
    nb, drawn = weighted(GRAPHS["random directed"]), source()
    q = columns(nb) / columns(nb).sum()
    times = torch.zeros(nb.num_src, dtype=torch.float64)
    for _ in range(1500):
        out = FastGCN(count=4)(nb, generator=drawn)
        factor = torch.zeros_like(q)
        before = nb.to_dense()[out.targets(), out.indices]
        factor[out.indices] = out.weight / before
        times += factor * 4 * q  # c_j
    error = (4 * q * (1 - q) / 1500).sqrt()
    assert ((times / 1500 - 4 * q).abs() <= 4 * error + 1e-9).all()


def test_a_column_is_scaled_as_a_whole() -> None:
    nb = weighted(GRAPHS["clique"])
    out = FastGCN(count=3)(nb, generator=source()).to_dense()
    ratio = out / nb.to_dense()
    for column in ratio.t():
        assert column.nan_to_num(0).unique().numel() <= 2 or column[~column.isnan()].std() < 1e-9


def test_without_replacement_nobody_comes_twice() -> None:
    nb, drawn = weighted(GRAPHS["clique"]), source()
    for _ in range(10):
        out = FastGCN(count=3, replace=False)(nb, generator=drawn)
        assert len(out.indices.unique()) == 3
    everyone = FastGCN(count=7, replace=False)(nb, generator=drawn)
    assert pairs(everyone) == pairs(nb)


def test_biased_draws_divide_by_the_probability_of_one_draw() -> None:
    star, pattern = GRAPHS["star"], FastGCN(count=3, replace=False, unbiased=False)
    q = columns(star) / 12
    assert q.tolist() == [0.5, *[pytest.approx(1 / 12)] * 6]
    drawn = pattern(star, generator=source())
    torch.testing.assert_close(drawn.weight, 1 / (3 * q[drawn.indices]))
    fair = FastGCN(count=3, replace=False)(star, generator=source())
    assert torch.equal(fair.edge_index(), drawn.edge_index())
    # The hub comes for certain: 1 / 1.5. Two of the leaves come: 2 / 6 * 12 / 3.
    effective = pattern.effective(star).to_dense()
    torch.testing.assert_close(effective[1:, 0], torch.full((6,), 2 / 3))
    torch.testing.assert_close(effective[0, 1:], torch.full((6,), 4 / 3))
    with pytest.raises(ValueError, match="unbiased: got False with replace=True"):
        FastGCN(unbiased=False)


@pytest.mark.parametrize("pattern", [FastGCN(2), FastGCN(2, replace=False), LADIES(2)], ids=repr)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(pattern: Pattern, value: float) -> None:
    weight = torch.tensor([1.0, value])
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2, weight=weight)
    with pytest.raises(ValueError, match="weight: NaN, infinite"):
        pattern(nb, generator=source())


def test_a_silent_source_is_never_drawn() -> None:
    weight = torch.tensor([0.0, 1.0])
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2, weight=weight)
    assert FastGCN(count=9)(nb, generator=source()).edge_index().tolist() == [[1], [0]]


def test_bipartite() -> None:
    drawn = FastGCN(count=2, replace=False)(bipartite([2], [5]), generator=source())
    assert drawn.degree().tolist() == [2, 2] and drawn.weight.tolist() == [2.5] * 4


def test_more_different_nodes_than_there_are() -> None:
    with pytest.raises(ValueError, match="count: got 8, expected at most the 7 sources"):
        FastGCN(count=8, replace=False)(GRAPHS["clique"])
    with pytest.raises(ValueError, match="share: got 0"):
        FastGCN(share=0)
    with pytest.raises(TypeError, match="generator: got int"):
        FastGCN()(GRAPHS["clique"], generator=0)


@pytest.mark.parametrize("learns", [False, True])
def test_weights_changed_in_place_change_the_draw(learns: bool) -> None:
    weight = torch.tensor([0.0, 1.0], requires_grad=learns)
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2).replace(weight=weight)
    pattern = FastGCN(count=1)
    assert pattern(nb, generator=source()).indices.tolist() == [0]
    with torch.no_grad():
        weight.copy_(torch.tensor([1.0, 0.0]))
    assert pattern(nb, generator=source()).indices.tolist() == [1]


def test_weights_made_in_inference_mode() -> None:
    with torch.inference_mode():
        weight = torch.tensor([0.0, 1.0])
        nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2).replace(weight=weight)
        assert FastGCN(count=1)(nb, generator=source()).num_edges == 1
        nb.weight.copy_(torch.tensor([1.0, 0.0]))  # a copy, which can be trained on
        assert FastGCN(count=1)(nb, generator=source()).indices.tolist() == [1]
