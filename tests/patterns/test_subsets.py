import numpy as np
import pytest
import torch

from graphtheory.patterns import subsets
from tests.patterns.laws import source


@pytest.mark.parametrize("limit", [torch.arange(50) % 31 + 9, 12])
def test_distinct_draws_are_the_same_compiled_with_a_table_and_without(
    limit: int | torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw() -> torch.Tensor:
        return subsets.distinct(50, 9, limit, source(), torch.device("cpu"))

    found = draw()
    assert all(len(set(row)) == 9 for row in found.tolist())
    assert bool((found >= 0).all())
    assert bool((found.max(1).values < limit).all())

    def on_any_device(draws: np.ndarray, limit: np.ndarray, highest: int) -> np.ndarray:
        return subsets._floyd(torch.from_numpy(draws), torch.from_numpy(limit), highest).numpy()

    monkeypatch.setattr(subsets, "floyd", on_any_device)
    for room in (0, 2**26):
        monkeypatch.setattr(subsets, "_SEEN_BYTES", room)
        assert torch.equal(draw(), found)


def test_no_rows_and_all_of_a_row() -> None:
    cpu = torch.device("cpu")
    assert subsets.distinct(0, 3, torch.empty(0, dtype=torch.int64), source(), cpu).shape == (0, 3)
    every = subsets.distinct(4, 5, 5, source(), cpu).sort(1).values
    assert torch.equal(every, torch.arange(5).expand(4, 5))
