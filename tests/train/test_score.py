import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphtheory.train.score import accuracy, rocauc


def test_accuracy_counts_the_largest_logit() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]])
    assert accuracy(logits, torch.tensor([0, 1, 1, 0])) == 0.75


def test_rocauc_is_that_of_scikit_learn(generator: torch.Generator) -> None:
    logits = torch.randn(200, 2, generator=generator).round(decimals=1)  # ties
    y = torch.randint(2, (200,), generator=generator)
    expected = roc_auc_score(y.numpy(), (logits[:, 1] - logits[:, 0]).numpy())
    assert rocauc(logits, y) == pytest.approx(expected, abs=1e-6)


def test_rocauc_tells_large_margins_apart() -> None:
    logits = torch.tensor([[0.0, 20.0], [0.0, 21.0], [0.0, 19.0]])  # sigmoids are 1 in float32
    assert rocauc(logits, torch.tensor([0, 1, 0])) == 1.0


@pytest.mark.parametrize(("classes", "label"), [(3, 0), (2, 0), (2, 1)])
def test_rocauc_refuses_what_it_is_not_defined_for(classes: int, label: int) -> None:
    with pytest.raises(ValueError, match="expected 2 classes and nodes of both"):
        rocauc(torch.zeros(4, classes), torch.full((4,), label))
