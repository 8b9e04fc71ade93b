"""Draws from groups of similar degree."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.patterns import AddSelf, Compose, DegreeGroups, SymmetricNormalize
from graphtheory.patterns.degree_groups import group_by_degree, group_sizes
from tests.patterns.laws import GRAPHS, both_ways, source, weighted


def test_limits_lie_evenly_on_a_log_scale_begin_a_group_and_leave_none_empty() -> None:
    degree = torch.tensor([1, 9, 10, 99, 100, 1000])
    assert group_by_degree(degree, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert group_by_degree(degree, 1).tolist() == [0] * 6
    degree = torch.tensor([0, 2, 3, 5, 6])
    assert group_by_degree(degree, (3, 6)).tolist() == [0, 0, 1, 1, 2]
    assert group_by_degree(torch.tensor([0, 0, 16]), 2).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"group 1 of 0\.\.1 has no node.*sizes are \[3, 0\]"):
        group_sizes(group_by_degree(torch.tensor([4, 4, 4]), (9.0,)), (9.0,))


@pytest.mark.parametrize(("degree", "groups", "error", "message"), [
    (torch.ones(3), 2, TypeError, r"degree: got torch.float32 of shape \(3,\), expected int64"),
    (torch.ones(3, 2).long(), 2, TypeError, r"degree: got torch.int64 of shape \(3, 2\)"),
    ([1, 2], 2, TypeError, r"degree: got list of shape \(\), expected int64 \[N\]"),
    (torch.tensor([1, 2]), 0, ValueError, "groups: got 0, expected a whole number of groups"),
    (torch.tensor([1, 2]), 2.5, ValueError, "groups: got 2.5, expected .* or a tuple of the"),
    (torch.tensor([1, 2]), [1, 2], ValueError, r"groups: got \[1, 2\], expected .* or a tuple"),
    (torch.tensor([1, 2]), (3, 2), ValueError, r"groups: got \(3, 2\), expected increasing"),
    (torch.tensor([1, 2]), (math.nan,), ValueError, r"groups: got \(nan,\), expected increasing"),
    (torch.tensor([1, 2]), (), ValueError, r"groups: got \(\), expected increasing degrees"),
])  # fmt: skip
def test_bad_degrees_and_limits_are_refused(degree, groups, error, message) -> None:
    with pytest.raises(error, match=message):
        group_by_degree(degree, groups)


STAR = GRAPHS["star"]  # node 0 hears 6 leaves, each leaf hears node 0
HUB_AND_LEAVES = torch.tensor([0, 1, 1, 1, 1, 1, 1])


def by_hand(nb: Neighborhood, kept: Tensor, factor: Tensor, symmetric: bool) -> Tensor:
    """P^s from its definition."""
    diagonal = torch.diag(torch.where(kept, factor, 0))
    if symmetric:
        return diagonal.sqrt() @ nb.to_dense() @ diagonal.sqrt()
    return nb.to_dense() @ diagonal


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_draw_is_the_matrix_product(symmetric: bool) -> None:
    nb = weighted(STAR)
    pattern = DegreeGroups(2, count=(4, 1), p_star=(0.5, 2.0), symmetric=symmetric)
    drawn = pattern(nb, generator=source())
    kept = torch.zeros(7, dtype=torch.bool)
    kept[drawn.indices.unique()] = True
    factor = torch.tensor([2.0, *[0.5 * 6 / 4] * 6], dtype=torch.float64)
    assert kept.sum() == 5 and kept[0]
    torch.testing.assert_close(drawn.to_dense(), by_hand(nb, kept, factor, symmetric))
    assert drawn.num_edges == (8 if symmetric else 10)  # 4 leaves hear and are heard


def test_every_group_gives_its_number_of_nodes_of_at_least_one() -> None:
    graph, drawn = GRAPHS["clique"], source()
    index = torch.tensor([0, 1, 1, 2, 2, 2, 2])
    for _ in range(20):
        out = DegreeGroups(assignment=index, count=(1, 1, 3))(graph, generator=drawn)
        assert torch.bincount(index[out.indices.unique()]).tolist() == [1, 1, 3]
    groups = DegreeGroups(2, share=(0.4, 0.01)).groups_of(STAR)
    assert groups.size.tolist() == [6, 1] and groups.drawn.tolist() == [2, 1]
    assert groups.group.tolist() == [1, 0, 0, 0, 0, 0, 0]


def test_the_effective_adjacency_scales_columns_and_is_that_of_all_nodes_drawn() -> None:
    nb = weighted(STAR)
    star = DegreeGroups(2, p_star=(0.9, 0.1)).effective(nb)
    scale = torch.tensor([0.1, *[0.9] * 6], dtype=torch.float64)
    torch.testing.assert_close(star.to_dense(), nb.to_dense() * scale)
    nb = Compose(AddSelf(), SymmetricNormalize())(STAR)
    for symmetric in (False, True):
        pattern = DegreeGroups(2, share=1.0, p_star=(0.7, 0.3), symmetric=symmetric)
        torch.testing.assert_close(pattern(nb).to_dense(), pattern.effective(nb).to_dense())
    drawn = DegreeGroups(2, share=1.0, p_star=(0.0, 1.0))(STAR, generator=source())
    assert drawn.indices.unique().tolist() == [0]


def test_the_symmetric_mean_is_smaller_where_both_nodes_are_needed() -> None:
    loops = AddSelf()(STAR)
    pattern = DegreeGroups(2, count=(3, 1), p_star=(0.9, 0.4), symmetric=True)
    star, mean = pattern.effective(loops).to_dense(), pattern.expected(loops).to_dense()
    root = torch.tensor([0.4, *[0.9] * 6]).sqrt()
    torch.testing.assert_close(star, root[:, None] * loops.to_dense() * root)
    assert torch.equal(mean.diag(), star.diag())
    torch.testing.assert_close(mean[0, 1:], star[0, 1:] * 0.5**0.5)
    clique = GRAPHS["clique"]
    mean = DegreeGroups(count=3, symmetric=True).expected(clique)
    torch.testing.assert_close(mean.weight, torch.full((42,), 2 / 6))


def test_deviation_of_a_row_is_twice_what_is_left_out() -> None:
    # E sum_j |A^s_ij - A*_ij| = 2 sum_l p_l (1 - S_l / N_l) sum_(j in l) |A_ij|, exactly.
    edges = both_ways([(i, j) for i in range(8) for j in range(i) if (i * j) % 3 != 1])
    nb = Compose(AddSelf(), SymmetricNormalize())(Neighborhood.from_edge_index(edges, 8))
    nb = nb.replace(weight=nb.weight.double())
    p_star, index = torch.tensor([0.7, 0.3]), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    mass = torch.stack([nb.to_dense()[:, index == g].sum(1) for g in (0, 1)], 1)
    before = torch.tensor(torch.inf)
    for size in (1, 2, 3, 4):
        pattern = DegreeGroups(assignment=index, count=size, p_star=tuple(p_star.tolist()))
        star, drawn = pattern.effective(nb).to_dense(), source()
        off = torch.stack(
            [(pattern(nb, generator=drawn).to_dense() - star).abs().sum(1) for _ in range(400)]
        )
        expected = 2 * (mass * p_star * (1 - size / 4)).sum(1)
        error = off.std(0) / 400**0.5
        assert ((off.mean(0) - expected).abs() <= 4 * error + 1e-7).all()
        norm = off.max(1).values.mean()
        assert norm < before  # (D.2): the more nodes, the closer
        before = norm
    assert before < 1e-7


def test_a_draw_is_for_any_number_of_threads_a_value_and_differentiable(two_threads: None) -> None:
    graph = GRAPHS["clique"]
    two = DegreeGroups()(graph, generator=source(4))
    torch.set_num_threads(1)
    assert torch.equal(DegreeGroups()(graph, generator=source(4)).edge_index(), two.edge_index())
    weight = torch.ones(12, requires_grad=True)
    DegreeGroups(2, share=1.0, p_star=0.5)(STAR.replace(weight=weight)).weight.sum().backward()
    assert weight.grad.tolist() == [0.5] * 12


def test_a_pattern_with_an_assignment_is_a_value_of_known_types() -> None:
    one, same, other = (
        DegreeGroups(assignment=torch.tensor(v)) for v in ([0, 1, 1], [0, 1, 1], [0, 1, 0])
    )
    assert one == same and hash(one) == hash(same) and repr(one) == repr(same)
    assert one != other and repr(one) != repr(other) and DegreeGroups([3.0]) == DegreeGroups((3.0,))
    with pytest.raises(TypeError, match=r"assignment: got torch\.float32, expected an int64"):
        DegreeGroups(assignment=torch.zeros(3))
    with pytest.raises(TypeError, match=r"generator: got int, expected a torch\.Generator"):
        DegreeGroups()(STAR, generator=3)


@pytest.mark.parametrize(("options", "message"), [
    ({"groups": 0}, "groups: got 0, expected a whole number of groups, at least 1"),
    ({"groups": (5.0, 3.0)}, r"groups: got \(5.0, 3.0\), expected increasing degrees"),
    ({"groups": 2, "count": (7, 1)}, "count: S_l = 7 for group 0, expected at most its 6"),
    ({"count": 0}, "count: got 0 for group 0, expected a whole number, 1 or more"),
    ({"count": 2.5}, "count: got 2.5 for group 0, expected a whole number, 1 or more"),
    ({"groups": 2, "count": (2, 1.5)}, "count: got 1.5 for group 1, expected a whole number"),
    ({"share": 1.5}, "share: got 1.5 for group 0, expected above 0 to 1"),
    ({"share": 0.0}, "share: got 0.0 for group 0"),
    ({"share": 0.5, "count": 3}, "count: got 3 together with share=0.5"),
    ({"p_star": -0.1}, "p_star: got -0.1 for group 0, expected 0 or more"),
    ({"p_star": (0.5, 0.5)}, "p_star: 2 values, expected one for each of 1 groups"),
    ({"groups": (50.0,)}, r"groups: group 1 of 0\.\.1 has no node"),
    ({"assignment": torch.tensor([0, 1])}, "assignment: 2 nodes, expected the graph's 7"),
    ({"assignment": 2 * HUB_AND_LEAVES}, r"group 1 of 0\.\.2 has no node"),
    ({"assignment": -HUB_AND_LEAVES}, "expected one group of 0 or more per node"),
    ({"assignment": HUB_AND_LEAVES, "groups": 2}, "groups: got 2 together with assignment"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DegreeGroups(**options)(STAR)


def test_an_assignment_is_what_it_was_when_it_was_given() -> None:
    given = torch.tensor([0, 1, 0])
    pattern = DegreeGroups(assignment=given)
    given[0] = 1
    assert pattern.assignment.tolist() == [0, 1, 0]
