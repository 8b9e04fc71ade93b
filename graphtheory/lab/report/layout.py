"""Decides where the nodes of a drawn graph are placed."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, sparse

Array = NDArray[np.float64]

_STEPS, _CELLS, _GRAVITY = 300, 128, 0.05


def force_layout(edges: NDArray[np.integer], num_nodes: int, *, seed: int = 0) -> Array:
    r"""Positions at which edges are short and nodes far from each other, the same for one seed.

    .. math:: F_i = \sum_{j \ne i} \frac{m_i m_j}{d_{ij}} u_{ji} + \sum_{(i,j)} d_{ij} u_{ij}
        - g\, m_i\, x_i, \qquad m_i = \deg_i + 1

    with :math:`u_{ij}` the unit vector from i to j. The repulsion is a convolution over a grid of
    128 x 128 cells, so that a step takes O(N + E) and nodes within one cell hardly repel.

    Args:
        edges: Pairs of nodes [2, E]; direction, loops and duplicates do not matter.
        num_nodes: N.
        seed: Of the first positions.

    Returns:
        [N, 2] within -1..1.

    Source:
        The forces of ForceAtlas2 (Jacomy et al. 2014), section 3. Differs: the sum over a grid in
        place of a tree, steps that shrink evenly.
    """
    draw = np.random.default_rng(seed)
    place = draw.normal(size=(num_nodes, 2)) * np.sqrt(num_nodes)
    ones = np.ones(edges.shape[1])
    links = sparse.csr_matrix((ones, (edges[0], edges[1])), (num_nodes, num_nodes))
    links = ((links + links.T) > 0).astype(float)
    links.setdiag(0)
    links.eliminate_zeros()
    degree = np.asarray(links.sum(1)).ravel()
    mass = degree + 1
    for step in range(_STEPS):
        force = _repulsion(place, mass) * mass[:, None]
        force += links @ place - degree[:, None] * place - _GRAVITY * mass[:, None] * place
        move = force / mass[:, None]  # a hub is as quick as a leaf
        length = np.linalg.norm(move, axis=1, keepdims=True)
        reach = np.ptp(place, axis=0).max() * 0.1 * (1 - step / _STEPS) + 1e-9
        place += move * np.minimum(1, reach / np.maximum(length, 1e-9)) * 0.5
    place -= (place.max(0) + place.min(0)) / 2
    return place / max(float(np.abs(place).max()), 1e-9)


def _repulsion(place: Array, mass: Array) -> Array:
    """Sum over the other nodes of their mass, over the distance, along the direction from them."""
    low = place.min(0)
    cell = max(float(np.ptp(place, axis=0).max()), 1e-9) / (_CELLS - 2)
    where = (place - low) / cell
    corner = where.astype(int)
    share = where - corner
    size = 2 * _CELLS  # twice, so that nothing wraps around
    density = np.zeros(size * size)
    corners = []
    for i in (0, 1):
        for j in (0, 1):
            part = np.abs(1 - i - share[:, 0]) * np.abs(1 - j - share[:, 1])
            at = (corner[:, 0] + i) * size + corner[:, 1] + j
            density += np.bincount(at, mass * part, size * size)
            corners.append((at, part))
    spread = fft.ifft2(fft.fft2(density.reshape(size, size)) * _away()).ravel() / cell
    found = np.sum([spread[at] * part for at, part in corners], axis=0)
    return np.stack([found.real, found.imag], 1)


@cache
def _away() -> NDArray[np.complex128]:
    """Transform of 1 / distance along the direction x + iy, over the grid in cells."""
    steps = np.fft.fftfreq(2 * _CELLS, 1 / (2 * _CELLS))
    x, y = np.meshgrid(steps, steps, indexing="ij")
    kernel: NDArray[np.complex128] = fft.fft2((x + 1j * y) / np.maximum(x**2 + y**2, 0.5))
    return kernel
