"""Accuracy and area under the ROC curve of class scores."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torchmetrics.functional.classification import binary_auroc, multiclass_accuracy


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Share of nodes whose largest logit is that of their class, 0..1."""
    classes = logits.size(1)
    right = multiclass_accuracy(logits, y, classes, average="micro", validate_args=False)
    return float(right)


def rocauc(logits: Tensor, y: Tensor) -> float:
    """Probability that a random node of class 1 is ranked above a random one of class 0; ties half.

    Raises:
        ValueError: Other than two classes, or nodes of one class only.
    """
    positive = int(y.sum())
    if logits.size(1) != 2 or not 0 < positive < len(y):
        raise ValueError(
            f"metric='rocauc': {logits.size(1)} classes, {positive} of {len(y)} scored nodes in "
            "class 1; expected 2 classes and nodes of both"
        )
    margin = (logits[:, 1] - logits[:, 0]).double()  # float32 would tie large margins
    return float(binary_auroc(margin.sigmoid(), y, validate_args=False))


SCORES: dict[str, Callable[[Tensor, Tensor], float]] = {"accuracy": accuracy, "rocauc": rocauc}
