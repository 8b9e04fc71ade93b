"""Distance of a sampled adjacency matrix from another, and the bounds of the theory."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.utils import scatter

from graphtheory.graph import Neighborhood
from graphtheory.lab.train.contract import check_each
from graphtheory.patterns import Pattern
from graphtheory.patterns.draw import edge_weight


def infinity_norm(neighborhood: Neighborhood) -> float:
    r"""Largest absolute row sum: :math:`\|A\|_\infty = \max_i \sum_j |A_{ij}|`; 0 without edges.

    An edge without a weight weighs 1; edges that come twice are summed first.
    """
    return float(abs(_matrix(neighborhood)).sum(1).max(initial=0))


def infinity_distance(first: Neighborhood, second: Neighborhood) -> float:
    r""":math:`\|A - B\|_\infty`, of matrices with the same or with different edges."""
    shapes = [(nb.num_dst, nb.num_src) for nb in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"second: {shapes[1]} targets and sources, expected {shapes[0]}")
    return float(abs(_matrix(first) - _matrix(second)).sum(1).max(initial=0))


class Deviation(NamedTuple):
    r"""Mean of :math:`\|A^s - A^*\|_\infty` over draws, and its standard error."""

    mean: float
    error: float


def deviation(
    pattern: Pattern,
    neighborhood: Neighborhood,
    effective: Neighborhood,
    *,
    draws: int = 20,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] = lambda _: None,  # after each draw, how many there are
) -> Deviation:
    r"""How far draws of a sampler from A are from A*: mean of :math:`\|A^s - A^*\|_\infty`.

    Source: Li (2024), lemmas D.1.2 and D.1.3, left sides of (D.2) and (D.18).
    """
    if draws < 2:
        raise ValueError(f"draws: got {draws}, expected at least 2")
    found = torch.empty(draws, dtype=torch.float64)
    for index in range(draws):
        found[index] = infinity_distance(pattern(neighborhood, generator=generator), effective)
        progress(index + 1)
    return Deviation(float(found.mean()), float(found.std() / draws**0.5))


def influence(neighborhood: Neighborhood) -> Tensor:
    r"""What each source sends, float64 [num_src]: column sums :math:`\sum_i A_{ij}`."""
    weight = edge_weight(neighborhood).detach().double()
    return weight.new_zeros(neighborhood.num_src).index_add(0, neighborhood.indices, weight)


class InfluenceChange(NamedTuple):
    """Influence of each source, float64 [num_src] each."""

    before: Tensor  # column sums of A
    after: Tensor  # column sums of A*
    ratio: Tensor  # after / before; 1 where both are 0


def influence_change(original: Neighborhood, effective: Neighborhood) -> InfluenceChange:
    """Which nodes gain and which lose influence when A* takes the place of A."""
    if original.num_src != effective.num_src:
        raise ValueError(f"effective: {effective.num_src} sources, expected {original.num_src}")
    before, after = influence(original), influence(effective)
    same = (before == 0) & (after == 0)
    return InfluenceChange(before, after, torch.where(same, 1.0, after / before))


def _matrix(neighborhood: Neighborhood) -> csr_array:
    """The matrix in double precision, each entry once."""
    weight = edge_weight(neighborhood).detach().double()
    parts = (weight, neighborhood.indices, neighborhood.indptr)
    shape = (neighborhood.num_dst, neighborhood.num_src)
    found = csr_array(tuple(part.cpu().numpy() for part in parts), shape=shape, copy=True)
    found.sum_duplicates()
    return found


_positive = partial(check_each, "a number above 0", lambda value: 0 < value < float("inf"))


def group_degrees(neighborhood: Neighborhood, group: Tensor) -> Tensor:
    """d_l: mean number of sources in the rows of each group, float64 [L].

    `group` holds that of each node, int64 [N], from 0, none of them empty.
    """
    return scatter(neighborhood.degree().double(), group, reduce="mean")


def psi(degree: Tensor, size: Tensor) -> Tensor:
    r"""How dominant each group of degree d_l, above 0, and size N_l, at least 1, is, float64 [L].

    .. math:: \psi_l = \frac{\sqrt{d_L d_l}\, N_l}{\sum_i d_i N_i}

    with :math:`d_L` the largest degree.

    Source: Li (2024), eq. (5.9).
    """
    degree, size = degree.double(), size.double()
    if degree.shape != size.shape or degree.dim() != 1:
        raise ValueError(
            f"size: shape {tuple(size.shape)}, expected [L] as degree {tuple(degree.shape)}"
        )
    for name, value, least in (("degree", degree, 0), ("size", size, 0)):
        if bool((value <= least).any()):
            raise ValueError(f"{name}: got {value.tolist()}, expected numbers above 0")
    return (degree.max() * degree).sqrt() * size / (degree * size).sum()


def largest_scaling(psi: Tensor, *, c: float = 1.0, symmetric: bool = False) -> Tensor:
    r"""The largest p*_l that the theory admits, float64 [L]; the smallest is 0.

    .. math:: p^*_l \le \frac{c_1}{L \psi_l}, \qquad
        \text{symmetric: } p^*_l \le \frac{c_2}{L^2 \psi_l^2}

    The source leaves c, above 0, open; symmetric is :math:`A^s = P^s A P^s`.

    Source: Li (2024), eqs. (5.8) and (D.16).
    """
    _positive(c=c)
    part = len(psi) * psi
    return c / (part.square() if symmetric else part)


def smallest_share(
    psi: Tensor, p_star: Tensor, *, tolerance: float, c: float = 1.0, symmetric: bool = False
) -> Tensor:
    r"""The smallest S_l / N_l that keeps draws close to A*, float64 [L].

    .. math:: \frac{S_l}{N_l} \ge \Bigl(1 + \frac{c_1 \tau}{L p^*_l \psi_l}\Bigr)^{-1}, \qquad
        \text{symmetric: } \Bigl(1 + \frac{c_2 \tau}{L \sqrt{p^*_l}\, \psi_l}\Bigr)^{-2}

    A scaling of 0 asks for nothing: the share is 0. The tolerance tau, which the source writes
    poly(epsilon), and c are above 0; the source leaves c open.

    Source: Li (2024), eqs. (5.10) and (D.17).
    """
    _positive(c=c)
    _positive(tolerance=tolerance)
    if p_star.shape != psi.shape or bool((p_star < 0).any()):
        raise ValueError(f"p_star: got {p_star.tolist()}, expected {len(psi)} numbers of 0 or more")
    scaling = p_star.double().sqrt() if symmetric else p_star.double()
    return (1 + c * tolerance / (len(psi) * scaling * psi)) ** (-2.0 if symmetric else -1.0)
