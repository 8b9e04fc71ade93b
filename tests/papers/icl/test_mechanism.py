import pytest
import torch

from graphtheory.papers.icl.figures_mechanism import mass_by_kind, neuron_alignment, projection


def test_attention_is_shared_out_by_kind() -> None:
    pattern = torch.tensor([[0, 1, 2, 0, 0], [2, 2, 0, 1, 0], [1, 2, 1, 2, 0]])
    task = torch.tensor([[0, 1], [1, 0], [0, 1]])
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25] * 4])
    found = mass_by_kind(weights, pattern, task)  # the last prompt cannot hit its pattern
    assert found["same"] == pytest.approx((0.5 + 0.2) / 2)
    assert found["rival"] == pytest.approx((0.2 + 0.1) / 2)
    assert found["other"] == pytest.approx((0.3 + 0.7) / 2)
    assert found["uniform same"] == pytest.approx((0.5 + 0.25) / 2)
    twice = mass_by_kind(torch.stack([weights, weights]), pattern, task)
    assert twice == pytest.approx(found)
    with pytest.raises(ValueError, match="no prompt has a context"):
        mass_by_kind(weights[2:], pattern[2:], task[2:])


def test_how_much_lies_along_the_pattern() -> None:
    weight = torch.zeros(4, 3)
    weight[0, 0], weight[3, 0], weight[1, 1] = 2.0, 1.5, 5.0
    columns = torch.tensor([[3.0, 0.0, 9.0], [3.0, 0.1, 0.0]])
    found = projection(weight, columns, 3 * torch.eye(2), torch.tensor([0, 0]))
    assert found.along == pytest.approx(6)
    assert found.across == pytest.approx(0.25)
    assert found.whole == pytest.approx((7.5 + (7.5**2 + 0.25) ** 0.5) / 2)
    with pytest.raises(ValueError, match="directions: d_x = 5, expected at most m_a = 4"):
        projection(weight, columns, torch.eye(5), torch.tensor([0, 0]))


def test_what_neurons_point_at() -> None:
    mean, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    rows = torch.tensor([[3.0, 0.0, 0.0, -4.0], [0.0, 1.0, 0.0, 1.0], [0.0] * 4])
    found = neuron_alignment(rows, torch.tensor([-0.1, -0.1, 0.1]), mean, q)
    assert found.input_norm.tolist() == [3, 1, 0] and found.label_norm.tolist() == [4, 1, 0]
    assert found.input_cosine.tolist() == [1, 0, 0]
    assert found.label_cosine.tolist() == [1, -1, 0]
