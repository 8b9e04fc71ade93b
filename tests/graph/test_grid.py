import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.graph import Grid, grid_neighbors, windows

sides = st.integers(1, 7)


def pairs(nb: Neighborhood) -> set[tuple[int, int]]:
    return set(map(tuple, nb.edge_index().t().tolist()))


@given(count=st.integers(0, 2), height=sides, width=sides, diagonal=st.booleans())
def test_neighbors_lie_one_step_away(count: int, height: int, width: int, diagonal: bool) -> None:
    wanted = nx.grid_2d_graph(height, width)
    if diagonal:
        wanted = nx.strong_product(nx.path_graph(height), nx.path_graph(width))
    size = height * width
    both = [(a, b) for u, v in wanted.edges if u != v for a, b in ((u, v), (v, u))]
    expected = {
        tuple(b * size + row * width + column for row, column in pair)
        for pair in both
        for b in range(count)
    }
    found = grid_neighbors(Grid(count, height, width), diagonal=diagonal)
    assert pairs(found) == expected and found.num_edges == len(expected)
    assert found.num_dst == count * size


def rolled(height: int, width: int, size: int, shift: int) -> torch.Tensor:
    """Who attends to whom where a map is rolled, cut, and masked by regions: [nodes, nodes]."""

    def labels(length: int) -> tuple[torch.Tensor, torch.Tensor]:
        padded = -(-length // size) * size
        at = (torch.arange(length) - shift) % padded  # where the roll puts each row
        region = (at >= padded - size).long() + (at >= padded - shift).long() * (shift > 0)
        return at // size, region

    (row, of_row), (column, of_column) = labels(height), labels(width)
    parts = torch.stack(
        [t.flatten() for t in torch.broadcast_tensors(
            row[:, None], of_row[:, None], column[None], of_column[None])]
    )  # fmt: skip
    return (parts[:, :, None] == parts[:, None]).all(0)


@given(height=sides, width=sides, size=st.integers(1, 5), data=st.data())
def test_windows_are_those_of_a_roll_and_a_mask(height, width, size, data) -> None:
    shift = data.draw(st.integers(0, size - 1))
    cut = windows(Grid(2, height, width), size, shift)
    dense = cut.on_nodes().to_dense() > 0
    one = rolled(height, width, size, shift)
    assert torch.equal(dense, torch.block_diag(one, one).bool())
    Neighborhood(*_parts(cut.neighborhood), sets=cut.neighborhood.sets)  # validates
    assert torch.equal(cut.order[cut.place], torch.arange(cut.order.numel()))


def _parts(nb: Neighborhood) -> tuple[torch.Tensor, torch.Tensor, int]:
    return nb.indptr, nb.indices, nb.num_src


def test_windows_that_divide_the_grid_are_equal_blocks() -> None:
    assert windows(Grid(3, 4, 8), 4).neighborhood.blocks == (6, 16, 16)
    shifted = windows(Grid(1, 8, 8), 4, 2).neighborhood
    assert shifted.blocks is None and sorted(shifted.sets.dst) == [4] * 4 + [8] * 4 + [16]


@pytest.mark.parametrize(("size", "dtype"), [(4, torch.uint8), (9, torch.int16)])
def test_relative_positions_count_rows_then_columns(size: int, dtype: torch.dtype) -> None:
    cut = windows(Grid(2, 6, 5), size, 1)
    nodes = cut.on_nodes()
    (dy, dx), span = divmod_pair(nodes, width=5), 2 * size - 1
    assert cut.relative.dtype == dtype
    wanted = (dy + size - 1) * span + dx + size - 1
    assert torch.equal(cut.relative[nodes.perm].long(), wanted)


def divmod_pair(nodes: Neighborhood, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    targets, sources = nodes.targets(), nodes.indices
    return targets // width - sources // width, targets % width - sources % width


@pytest.mark.parametrize(("call", "message"), [
    (lambda: Grid(1, 0, 2), "height: got 0, expected a whole number from 1 up"),
    (lambda: Grid(-1, 1, 2), "count: got -1, expected a whole number from 0 up"),
    (lambda: Grid(1, 2, 0), "width: got 0, expected a whole number from 1 up"),
    (lambda: Grid(1.0, 2, 2), "count: got 1.0, expected a whole number from 0 up"),
    (lambda: windows(Grid(1, 4, 4), 2.0), "size: got 2.0, expected a whole number from 1 up"),
    (lambda: windows(Grid(1, 4, 4), 2, -1), "shift: got -1, expected 0..1, below size=2"),
    (lambda: windows(Grid(1, 4, 4), 2, 1.0), "shift: got 1.0, expected 0..1, below size=2"),
    (lambda: windows(Grid(1, 4, 4), 0), "size: got 0, expected a whole number from 1 up"),
    (lambda: windows(Grid(1, 4, 4), 2, 2), "shift: got 2, expected 0..1, below size=2"),
])  # fmt: skip
def test_bad_sizes_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_relative_places_of_large_windows_fit_their_type() -> None:
    found = windows(Grid(1, 1, 130), 130).relative
    assert (int(found.min()), int(found.max())) == (129 * 259, 129 * 259 + 2 * 129)
