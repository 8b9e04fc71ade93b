"""Kinds of labels: how each is learned, and how predictions are scored, by torchmetrics."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torchmetrics.functional import classification, regression

Kind = Literal["multiclass", "multilabel", "regression"]
Loss = Callable[[Tensor, Tensor], Tensor]
Metrics = dict[str, tuple[str, ...]]
METRICS: Metrics = {  # scores of each kind; the first is the default
    "multiclass": ("accuracy", "f1", "rocauc"),
    "multilabel": ("rocauc", "ap"),
    "regression": ("rmse", "mae"),
}


def _of_known(of: Loss, dtype: torch.dtype | None, out: Tensor, y: Tensor) -> Tensor:
    """Take a mean over the labels that are not NaN, computed in `dtype` if one is given."""
    out, known = out.to(dtype or out.dtype), ~y.isnan()
    return of(out[known], y[known].to(out.dtype))


LOSSES: dict[str, Loss] = {  # by metric where it has one of its own, or by kind
    "multiclass": partial(cross_entropy, ignore_index=-1),
    "multilabel": partial(_of_known, binary_cross_entropy_with_logits, None),
    "regression": partial(_of_known, nn.functional.mse_loss, None),
    "mae": partial(_of_known, nn.functional.l1_loss, None),
}


class UndefinedScoreError(ValueError):
    """Labels that a score is not defined for, such as the ROC AUC of rows of one class."""


@dataclass(frozen=True)
class Score:
    """A function (predictions, y) -> score, and whether a higher one is better."""

    function: Callable[[Tensor, Tensor], Tensor | float]
    higher_is_better: bool = True

    @property
    def worst(self) -> float:
        """The score of a training that diverged: none is worse."""
        return 0.0 if self.higher_is_better else math.inf

    def __call__(self, predictions: Tensor, y: Tensor) -> float:
        return float(self.function(predictions, y))


def _of_classes(score: Callable[..., Tensor], average: str, logits: Tensor, y: Tensor) -> Tensor:
    return score(logits, y, logits.size(1), average=average, validate_args=False)


def _rocauc(logits: Tensor, y: Tensor) -> Tensor:
    """Compute how likely a random row of class 1 ranks above one of class 0, ties by half."""
    if y.is_floating_point():
        return _over_labels(classification.multilabel_auroc, "rocauc", logits, y)
    positive = int(y.sum())
    if logits.size(1) != 2 or not 0 < positive < len(y):
        told = f"{logits.size(1)} classes, class 1 on {positive} of {len(y)} that are scored"
        raise UndefinedScoreError(f"metric='rocauc': {told}; expected 2 classes, and both there")
    margin = logits[:, 1] - logits[:, 0]
    return classification.binary_auroc(_ranks(margin), y, validate_args=False)


def _ranks(values: Tensor) -> Tensor:
    """Numbers in [0, 1) in the order of the values; a sigmoid would tie large ones."""
    return values.unique(return_inverse=True)[1].double() / max(values.numel(), 1)


def _over_labels(score: Callable[..., Tensor], name: str, logits: Tensor, y: Tensor) -> Tensor:
    both = (y == 0).any(0) & (y == 1).any(0)
    if not bool(both.any()):
        told = f"none of {y.size(1)} labels has both classes among {len(y)} scored rows"
        raise UndefinedScoreError(f"metric={name!r}: {told}; expected at least one")
    labels = both.nonzero().flatten().tolist()
    scores, known = _ranks(logits[:, labels]), y[:, labels].nan_to_num(-1).long()
    return score(scores, known, len(labels), ignore_index=-1, validate_args=False)


_rmse = partial(regression.mean_squared_error, squared=False)
SCORES: dict[str, Score] = {
    "accuracy": Score(partial(_of_classes, classification.multiclass_accuracy, "micro")),
    "rocauc": Score(_rocauc),
    "ap": Score(partial(_over_labels, classification.multilabel_average_precision, "ap")),
    "f1": Score(partial(_of_classes, classification.multiclass_f1_score, "macro")),
    "mae": Score(partial(_of_known, regression.mean_absolute_error, torch.double), False),
    "rmse": Score(partial(_of_known, _rmse, torch.double), False),
}
