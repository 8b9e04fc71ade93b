"""Kinds of labels: how each is learned, and how predictions are scored, by torchmetrics or ogb."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torchmetrics.functional import classification, regression

Kind = Literal["multiclass", "multilabel", "regression"]
Loss = Callable[[Tensor, Tensor], Tensor]
Metrics = dict[str, tuple[str, ...]]
METRICS: Metrics = {
    "multiclass": ("accuracy", "f1", "rocauc"),
    "multilabel": ("rocauc", "ap"),
    "regression": ("rmse", "mae"),
}
"""Scores of each kind; the first is the default."""


def _of_known(of: Loss, dtype: torch.dtype | None = None) -> Loss:
    """Restrict a mean to the labels that are not NaN, computed in `dtype` where one is given."""

    def mean(out: Tensor, y: Tensor) -> Tensor:
        out, known = out.to(dtype or out.dtype), ~y.isnan()
        return of(out[known], y[known].to(out.dtype))

    return mean


LOSSES: dict[str, Loss] = {
    "multiclass": partial(cross_entropy, ignore_index=-1),
    "multilabel": _of_known(binary_cross_entropy_with_logits),
    "regression": _of_known(nn.functional.mse_loss),
    "mae": _of_known(nn.functional.l1_loss),
}
"""Mean losses over the labels that are there: by metric where it has one of its own, or by kind."""


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


def accuracy(logits: Tensor, y: Tensor) -> float:
    """Compute the share of rows whose largest logit is that of their class, 0..1."""
    classes = logits.size(1)
    return float(
        classification.multiclass_accuracy(logits, y, classes, average="micro", validate_args=False)
    )


def rocauc(logits: Tensor, y: Tensor) -> Tensor:
    """Compute how likely a random row of class 1 is ranked above one of class 0; ties count half.

    Of several labels (y of floats, NaN where a label is missing) it is the mean over those of which
    both classes occur.
    """
    if y.is_floating_point():
        return _over_labels(classification.binary_auroc, "rocauc", logits, y)
    positive = int(y.sum())
    if logits.size(1) != 2 or not 0 < positive < len(y):
        raise UndefinedScoreError(
            f"metric='rocauc': {logits.size(1)} classes, class 1 on {positive} of {len(y)} that "
            "are scored; expected 2 classes, and both there"
        )
    margin = (logits[:, 1] - logits[:, 0]).double()  # float32 would tie large margins
    return classification.binary_auroc(margin.sigmoid(), y, validate_args=False)


def _macro_f1(logits: Tensor, y: Tensor) -> Tensor:
    return classification.multiclass_f1_score(logits, y, logits.size(1), average="macro")


def _over_labels(score: Callable[..., Tensor], name: str, logits: Tensor, y: Tensor) -> Tensor:
    """Average a score over the labels of which both classes occur; NaN is missing."""
    found = []
    for label in _scored(f"metric={name!r}", y):
        known = ~y[:, label].isnan()
        column = logits[known, label].double().sigmoid()
        found.append(score(column, y[known, label].long(), validate_args=False))
    return torch.stack(found).mean()


def _scored(asked: str, y: Tensor) -> list[int]:
    """Find the labels of which both classes occur."""
    both = (y == 0).any(0) & (y == 1).any(0)
    if not bool(both.any()):
        raise UndefinedScoreError(
            f"{asked}: none of {y.size(1)} labels has both classes among {len(y)} scored "
            "rows; expected at least one"
        )
    return both.nonzero().flatten().tolist()


_rmse = partial(regression.mean_squared_error, squared=False)
SCORES: dict[str, Score] = {
    "accuracy": Score(accuracy),
    "rocauc": Score(rocauc),
    "ap": Score(partial(_over_labels, classification.binary_average_precision, "ap")),
    "f1": Score(_macro_f1),
    "mae": Score(_of_known(regression.mean_absolute_error, torch.double), higher_is_better=False),
    "rmse": Score(_of_known(_rmse, torch.double), higher_is_better=False),
}


def ogb_score(name: str) -> Score:
    """Make the score of ogb's `Evaluator` for a set of graphs or nodes, such as "ogbn-arxiv".

    Of several labels it leaves out those of which one class alone occurs; where that leaves none,
    the score raises `UndefinedScoreError`.
    """
    part = "nodeproppred" if name.startswith("ogbn-") else "graphproppred"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ogb's imports
        module = import_module(f"ogb.{part}")
    try:
        evaluator = module.Evaluator(name)
    except ValueError as error:
        raise ValueError(
            f"evaluator: got {name!r}, expected a set of graphs or nodes that ogb has"
        ) from error
    metric = evaluator.eval_metric

    def score(predictions: Tensor, y: Tensor) -> float:
        given = {"y_true": y.double(), "y_pred": predictions.double()}
        if metric == "acc":  # of a class each
            given = {"y_true": y[:, None], "y_pred": predictions.argmax(1, keepdim=True)}
        if metric in ("rocauc", "ap"):
            _scored(f"evaluator={name!r}", y)
        return evaluator.eval(given)[metric]

    return Score(score, SCORES["accuracy" if metric == "acc" else metric].higher_is_better)
