import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from graphtheory.lab.metrics import linear_probe, nearest_accuracy


def test_a_sample_is_not_its_own_neighbor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphtheory.lab.metrics.network._ROWS", 16)
    x, y = torch.randn(50, 3), torch.randint(3, (50,))
    near = NearestNeighbors(n_neighbors=2).fit(x.numpy()).kneighbors(x.numpy())[1][:, 1]
    assert nearest_accuracy(x, y) == pytest.approx(float((y[near] == y).float().mean()))
    assert nearest_accuracy(torch.zeros(2, 1), torch.tensor([0, 1])) == 0
    with pytest.raises(ValueError, match="expected 2 or more"):
        nearest_accuracy(x[:1], y[:1])


def test_the_probe_learns_what_is_linear_at_any_scale() -> None:
    y = torch.arange(60) % 2
    x = torch.randn(60, 2) * torch.tensor([1e4, 1e-4])
    x[:, 1] += 1e-3 * (2 * y - 1)
    assert linear_probe(x[:40], y[:40], x[40:], y[40:]) == 1.0
    wrong = linear_probe(x[:40], y[:40], x[40:], 1 - y[40:])
    assert wrong == 0.0


def test_neighbors_are_found_beside_a_large_offset() -> None:
    y = torch.arange(40) % 4
    x = torch.rand(32) + 1e-4 * (torch.randn(4, 32)[y] + 0.05 * torch.randn(40, 32))
    assert nearest_accuracy(x, y) == 1.0
