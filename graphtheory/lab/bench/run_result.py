"""What a run of a configuration gives, beside the score of the best constant prediction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphtheory.lab.train import FitResult, GraphSets, fit


@dataclass(frozen=True)
class RunResult:
    """A trained network, its data and its scores."""

    fit: FitResult
    model: Any
    batches: Any
    parameters: int  # trainable ones
    constant: float | None = None  # test score of the best constant prediction, where there is one


def train(task: Any, batches: Any, **how: Any) -> RunResult:
    """Train a task on nodes or on graphs once by `fit`, which `how` is given to."""
    result = fit(task, batches, **{"progress": False, **how})
    constant = constant_of(task, batches)
    return RunResult(result, task.evaluated, batches, trainable(task.model), constant)


def trainable(model: torch.nn.Module) -> int:
    """Count the trainable parameters of a model."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def constant_of(task: Any, batches: Any) -> float | None:
    """Score the best constant prediction on the test part; None where there is none."""
    if isinstance(batches, GraphSets):
        parts = (batches.train.tolist(), batches.test.tolist())
        found = [[batches.graphs[i].y for i in part] for part in parts]
    else:
        masks = (batches.data.train_mask, batches.data.get("test_mask"))
        found = [[] if mask is None else [batches.data.y[mask]] for mask in masks]
    if not found[1]:
        return None
    train, test = map(torch.cat, found)
    return constant_score(task.score, task.kind, train, test, task.num_classes)


def constant_score(
    score: Callable[[Tensor, Tensor], float], kind: str, train: Tensor, test: Tensor, outputs: int
) -> float | None:
    """Score of the commonest class, or of the mean or median of a value; None where undefined."""
    if kind == "multiclass":
        test, constant = test[test >= 0], torch.zeros(outputs)
        constant[train[train >= 0].bincount(minlength=outputs).argmax()] = 1.0
    elif kind == "multilabel":
        constant = torch.zeros(outputs)
    else:  # the mean is best by squares, the median by absolute errors
        found = (train.nanmean(0), train.nanmedian(0).values)
        return min(score(constant.expand(len(test), -1), test) for constant in found)
    try:
        return score(constant.expand(len(test), -1), test)
    except ValueError:
        return None
