"""Places of nodes: short edges, nothing on one spot, the same for one seed."""

import numpy as np
import pytest

from graphtheory.lab.report.layout import _repulsion, force_layout


def ring(nodes: int) -> np.ndarray:
    return np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])


def test_places_lie_within_one_and_repeat() -> None:
    first, again, other = (force_layout(ring(40), 40, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (40, 2) and np.abs(first).max() == pytest.approx(1)
    assert np.array_equal(first, again) and not np.allclose(first, other)


def test_edges_are_shorter_than_other_pairs() -> None:
    grid = np.arange(100).reshape(10, 10)
    edges = np.concatenate(
        [np.stack([grid[:-1].ravel(), grid[1:].ravel()]),
         np.stack([grid[:, :-1].ravel(), grid[:, 1:].ravel()])], 1,
    )  # fmt: skip
    place = force_layout(edges, 100)
    apart = np.linalg.norm(place[:, None] - place, axis=2)
    others = apart[np.triu_indices(100, 1)]
    assert apart[edges[0], edges[1]].mean() < 0.4 * others.mean()
    assert others.min() > 0.005


def test_direction_loops_and_duplicates_do_not_matter() -> None:
    edges = ring(12)
    other = np.concatenate([edges, edges[::-1], edges[:, :3], np.full((2, 1), 5)], 1)
    assert np.allclose(force_layout(edges, 12), force_layout(other, 12))


@pytest.mark.parametrize("nodes", [1, 2])
def test_few_nodes_without_an_edge(nodes: int) -> None:
    assert np.isfinite(force_layout(np.zeros((2, 0), dtype=int), nodes)).all()


def test_repulsion_is_the_sum_over_the_other_nodes() -> None:
    draw = np.random.default_rng(0)
    place, mass = draw.uniform(-50, 50, (60, 2)), draw.uniform(1, 5, 60)
    away = place[:, None] - place
    square = (away**2).sum(2)
    np.fill_diagonal(square, np.inf)
    exact = (mass[None, :, None] * away / square[..., None]).sum(1)
    found = _repulsion(place, mass)
    far = square.min(1) > 10**2  # nodes within some cells of each other are smoothed
    off = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert far.sum() > 5 and off[far].max() < 0.05
