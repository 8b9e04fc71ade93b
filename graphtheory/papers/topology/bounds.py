"""What the theory of graph topology sampling asks of scalings and sample sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood


def group_degrees(neighborhood: Neighborhood, group: Tensor) -> Tensor:
    """d_l: mean number of sources in the rows of each group, float64 [L].

    `group` holds that of each node, int64 [N], from 0, none of them empty.
    """
    degree = neighborhood.degree().double()
    size = torch.bincount(group)
    return degree.new_zeros(len(size)).index_add(0, group, degree) / size


def psi(degree: Tensor, size: Tensor) -> Tensor:
    r"""How dominant each group of degree d_l, above 0, and size N_l, at least 1, is, float64 [L].

    .. math:: \psi_l = \frac{\sqrt{d_L d_l}\, N_l}{\sum_i d_i N_i}

    with :math:`d_L` the largest degree.

    Raises:
        ValueError: If lengths differ, or a number is out of range.

    Source: Li (2024), eq. (5.9).

    Example:
        >>> psi(torch.tensor([1.0, 4.0]), torch.tensor([8, 2])).tolist()
        [1.0, 0.5]
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
    _positive("c", c)
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
    _positive("c", c)
    _positive("tolerance", tolerance)
    if p_star.shape != psi.shape or bool((p_star < 0).any()):
        raise ValueError(f"p_star: got {p_star.tolist()}, expected {len(psi)} numbers of 0 or more")
    scaling = p_star.double().sqrt() if symmetric else p_star.double()
    return (1 + c * tolerance / (len(psi) * scaling * psi)) ** (-2.0 if symmetric else -1.0)


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}: got {value}, expected a number above 0")
