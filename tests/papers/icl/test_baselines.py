import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from graphtheory.papers.icl.baselines import BASELINES, context_predictions


@pytest.mark.parametrize("name", BASELINES)
def test_two_clusters_are_told_apart(name: str, generator: torch.Generator) -> None:
    y = torch.randint(2, (12, 9), generator=generator) * 2.0 - 1
    y[1:, :8] = torch.tensor([1.0, -1.0]).repeat(4)
    y[0, :8], y[0, 8] = 1, -1  # one label alone, and the query is on the other side
    x = y[..., None] * torch.tensor([3.0, 0.0, -1.0])
    x = x + 0.3 * torch.randn(x.shape, generator=generator)
    found = context_predictions(name, x, y)
    assert torch.equal(found.sign()[1:], y[1:, -1])
    if name == "least squares":
        weight = np.linalg.lstsq(x[3, :-1].double().numpy(), y[3, :-1].double().numpy(), rcond=None)
        assert float(found[3]) == pytest.approx(float(x[3, -1].double().numpy() @ weight[0]))
    else:
        assert found[0] == 1


def test_each_query_is_answered_from_its_own_contexts(generator: torch.Generator) -> None:
    x = torch.randn(5, 8, 3, generator=generator)
    y = torch.randint(2, (5, 7), generator=generator) * 2.0 - 1
    found = context_predictions("RBF SVM", x, y)
    for p in range(5):
        own = SVC().fit(x[p, :-1].double(), y[p]).predict(x[p, -1:].double())
        assert found[p] == own[0]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="name: got '2-NN', expected one of logistic regression"):
        context_predictions("2-NN", torch.zeros(1, 3, 2), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="x: shapes"):
        context_predictions("1-NN", torch.zeros(1, 3, 2), torch.zeros(2, 2))
