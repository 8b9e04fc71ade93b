"""Importance sampling: factors, FastGCN and LADIES."""

import pytest
import torch

from graphtheory import Neighborhood, bipartite
from graphtheory.patterns import LADIES, FastGCN, Pattern, effective_adjacency
from graphtheory.patterns.importance import importance_factor, inclusion
from tests.patterns.laws import GRAPHS, pairs, source, weighted

MASS = torch.tensor([4.0, 1.0, 0.0, 2.0, 9.0], dtype=torch.float64)


@pytest.mark.parametrize(("replace", "count"), [(True, 3), (True, 40), (False, 2), (False, 3)])
def test_factors_have_mean_one_where_there_is_mass(replace: bool, count: int) -> None:
    drawn = source()
    found = torch.stack(
        [importance_factor(MASS, count, replace=replace, generator=drawn) for _ in range(1200)]
    )
    error = found.std(0) / 1200**0.5
    assert ((found.mean(0) - (MASS > 0).double()).abs() <= 4 * error + 1e-12).all()
    assert not found[:, 2].any()


def test_with_replacement_counts_sum_to_the_draws() -> None:
    factor = importance_factor(MASS, 7, replace=True, generator=source())
    times = factor * 7 * MASS / MASS.sum()
    torch.testing.assert_close(times, times.round())
    assert float(times.sum()) == pytest.approx(7)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_without_replacement_the_count_of_different_nodes_is_drawn(count: int) -> None:
    drawn = source()
    for _ in range(50):
        factor = importance_factor(MASS, count, replace=False, generator=drawn)
        assert int((factor > 0).sum()) == min(count, 4)


def test_probabilities_are_capped_and_sum_to_the_count_and_nothing_may_be_drawn() -> None:
    chance = inclusion(MASS[MASS > 0], 3)
    # 9 is always drawn; then 4 would be above 1 as well, since 2 * 4 / 7 > 1.
    torch.testing.assert_close(chance, torch.tensor([1, 1 / 3, 2 / 3, 1], dtype=torch.float64))
    assert inclusion(MASS[MASS > 0], 4).tolist() == [1.0] * 4
    none = torch.zeros(3, dtype=torch.float64)
    assert importance_factor(none, 2, replace=True, generator=source()).tolist() == [0.0] * 3


def columns(nb: Neighborhood) -> torch.Tensor:
    return nb.to_dense().square().sum(0)


def test_how_often_a_source_comes_is_in_proportion_to_its_column() -> None:
    nb, drawn = weighted(GRAPHS["random directed"]), source()
    q = columns(nb) / columns(nb).sum()
    times = torch.zeros(nb.num_src, dtype=torch.float64)
    for _ in range(600):
        out = FastGCN(count=4)(nb, generator=drawn)
        factor = torch.zeros_like(q)
        before = nb.to_dense()[out.targets(), out.indices]
        factor[out.indices] = out.weight / before
        times += factor * 4 * q  # c_j
    error = (4 * q * (1 - q) / 600).sqrt()
    assert ((times / 600 - 4 * q).abs() <= 4 * error + 1e-9).all()


def test_columns_are_scaled_as_a_whole_and_nobody_comes_twice_without_replacement() -> None:
    nb = weighted(GRAPHS["clique"])
    out = FastGCN(count=3)(nb, generator=source()).to_dense()
    ratio = out / nb.to_dense()
    for column in ratio.t():
        assert column.nan_to_num(0).unique().numel() <= 2 or column[~column.isnan()].std() < 1e-9
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


def test_silent_sources_two_node_sets_and_more_nodes_than_there_are() -> None:
    weight = torch.tensor([0.0, 1.0])
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2, weight=weight)
    assert FastGCN(count=9)(nb, generator=source()).edge_index().tolist() == [[1], [0]]
    drawn = FastGCN(count=2, replace=False)(bipartite([2], [5]), generator=source())
    assert drawn.degree().tolist() == [2, 2] and drawn.weight.tolist() == [2.5] * 4
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


CLIQUE = weighted(GRAPHS["clique"])
SOME = torch.tensor([1, 4])


def test_with_all_targets_it_is_fastgcn() -> None:
    for replace in (True, False):
        one = LADIES(count=3, replace=replace)(CLIQUE, generator=source())
        assert pairs(one) == pairs(FastGCN(count=3, replace=replace)(CLIQUE, generator=source()))


def test_only_rows_in_use_count_and_are_filled() -> None:
    drawn, times = source(), torch.zeros(7, dtype=torch.float64)
    square = CLIQUE.to_dense()[SOME].square().sum(0)
    q = square / square.sum()
    mean = torch.zeros(7, 7, dtype=torch.float64)
    for _ in range(1500):
        out = LADIES(count=3)(CLIQUE, generator=drawn, targets=SOME)
        assert set(out.targets().tolist()) <= {1, 4}
        factor = torch.zeros(7, dtype=torch.float64)
        factor[out.indices] = out.weight / CLIQUE.to_dense()[out.targets(), out.indices]
        times += factor * 3 * q
        mean += out.to_dense() / 1500
    error = (3 * q * (1 - q) / 1500).sqrt()
    assert ((times / 1500 - 3 * q).abs() <= 4 * error + 1e-9).all()
    whole = torch.zeros(7, 7, dtype=torch.float64)
    whole[SOME] = CLIQUE.to_dense()[SOME]
    torch.testing.assert_close(mean, whole, atol=0.15, rtol=0)


def test_normalized_rows_sum_to_one_and_their_mean_is_estimated() -> None:
    nb = CLIQUE.replace(weight=CLIQUE.weight.abs())
    pattern = LADIES(count=3, normalize=True)
    drawn = pattern(nb, generator=source())
    filled = drawn.degree() > 0
    torch.testing.assert_close(
        drawn.to_dense().sum(1)[filled], torch.ones(int(filled.sum()), dtype=torch.float64)
    )
    assert pattern.expected(nb) is None
    found = effective_adjacency(pattern, nb, generator=source())
    assert found.draws == 1000 and found.error is not None
    off = (found.neighborhood.to_dense() - nb.to_dense()).abs()
    assert off.max() > 0.5  # the mean is not A


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match=r"targets: got torch\.bool, expected a tensor of int64"):
        LADIES()(CLIQUE, targets=torch.ones(7, dtype=torch.bool))
    with pytest.raises(TypeError, match="targets: got list, expected a tensor of int64"):
        LADIES()(CLIQUE, targets=[2])
    with pytest.raises(IndexError, match="targets: entry 0 is 7"):
        LADIES()(CLIQUE, targets=torch.tensor([7]))
    with pytest.raises(ValueError, match="count: got 9 together with share"):
        LADIES(count=9, share=0.5)
    with pytest.raises(TypeError, match="generator: got int"):
        LADIES()(CLIQUE, generator=1)
