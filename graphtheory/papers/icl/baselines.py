"""Textbook methods fitted to one prompt: its contexts are the training set, its query the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from torch import Tensor

LEAST_SQUARES = "least squares"
_MAKE: dict[str, Callable[[int], Any]] = {
    "logistic regression": lambda n: LogisticRegression(max_iter=1000),
    "linear SVM": lambda n: SVC(kernel="linear"),
    "RBF SVM": lambda n: SVC(kernel="rbf"),
    "1-NN": lambda n: KNeighborsClassifier(1),
    "3-NN": lambda n: KNeighborsClassifier(min(3, n)),
}
BASELINES = (*_MAKE, LEAST_SQUARES)
"""Methods, with scikit-learn's own settings; least squares takes the shortest solution."""


def context_predictions(name: str, x: Tensor, y: Tensor) -> Tensor:
    """The answer of one method to each query, from that prompt's contexts alone.

    Where all contexts have one label, that is the answer.

    Args:
        name: One of `BASELINES`.
        x: Inputs [P, l + 1, d_x], the query last.
        y: Labels +1 or -1 of the contexts, [P, l] or more columns, which are not read.

    Returns:
        Floating [P], +1 or -1; of least squares any number, whose sign is the answer.

    Raises:
        ValueError: If the name is unknown or shapes do not fit.

    Source: Li (2024), figure 6.4, but for least squares.

    Example:
        >>> x = torch.tensor([[[0.0], [1.0], [0.9]]])
        >>> context_predictions("1-NN", x, torch.tensor([[-1.0, 1.0]])).tolist()
        [1.0]
    """
    if name not in BASELINES:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(BASELINES)}")
    if x.dim() != 3 or x.size(1) < 2 or y.shape[:1] != x.shape[:1] or y.size(1) < x.size(1) - 1:
        raise ValueError(
            f"x: shapes {tuple(x.shape)} and {tuple(y.shape)} of y, expected [P, l + 1, d_x] and "
            "[P, l]"
        )
    inputs, query = x[:, :-1].double(), x[:, -1].double()
    label = y[:, : inputs.size(1)].double()
    if name == LEAST_SQUARES:
        weight = torch.linalg.pinv(inputs) @ label[..., None]
        return (query[:, None] @ weight).flatten().float()
    prompts = zip(inputs.numpy(), label.numpy(), query.numpy(), strict=True)
    return torch.tensor([_answer(name, *prompt) for prompt in prompts], dtype=torch.float32)


def _answer(
    name: str, x: NDArray[np.float64], y: NDArray[np.float64], query: NDArray[np.float64]
) -> float:
    if len(np.unique(y)) == 1:
        return float(y[0])
    return float(_MAKE[name](len(y)).fit(x, y).predict(query[None])[0])
