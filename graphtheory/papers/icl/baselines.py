"""What classical methods predict for each query of a prompt, from the examples before it."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

Method = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
"""``method(x [k, d], y [k], query [d])`` -> the prediction of a query from k >= 1 examples."""


def averaging(x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
    """w^T query with w the mean of y_i x_i, which is right on average for x ~ N(0, I)."""
    return float((y @ x / len(y)) @ query)


def nearest(x: np.ndarray, y: np.ndarray, query: np.ndarray, k: int = 3) -> float:
    """The mean of the k nearest examples, by scikit-learn; of all where there are fewer."""
    return _fitted(partial(KNeighborsRegressor, min(k, len(y))), x, y, query)


@dataclass(frozen=True)
class GradientDescent:
    """w^T query after steps of gradient descent from 0 on the mean of (w^T x_i - y_i)^2 / 2."""

    steps: int = 20  #: How many, at least 1.
    rate: float = 1.0  #: Step size over 1 / L, with L the largest curvature; in (0, 2).

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.rate < 2:
            raise ValueError(f"{self}: expected steps of 1 or more and a rate in (0, 2)")

    def __call__(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> float:
        second, first = x.T @ x / len(y), x.T @ y / len(y)
        size = self.rate / max(float(np.linalg.eigvalsh(second)[-1]), 1e-12)
        w = np.zeros_like(first)
        for _ in range(self.steps):
            w += size * (first - second @ w)
        return float(w @ query)


def _fitted(
    make: Callable[..., Any], x: np.ndarray, y: np.ndarray, query: np.ndarray, **options: Any
) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a number of steps is part of a method
        return float(make(**options).fit(x, y).predict(query[None])[0])


BASELINES: dict[str, Method] = {
    "least squares": partial(_fitted, LinearRegression, fit_intercept=False),
    "ridge": partial(_fitted, Ridge, alpha=1.0, fit_intercept=False),
    "lasso": partial(_fitted, Lasso, alpha=0.01, fit_intercept=False, max_iter=100_000),
    "3 nearest": nearest,
    "averaging": averaging,
    "gradient descent": GradientDescent(),
    "decision tree": partial(_fitted, DecisionTreeRegressor, random_state=0),
    "two-layer network": partial(
        _fitted, MLPRegressor, hidden_layer_sizes=(100,), alpha=0.0, learning_rate_init=0.005,
        max_iter=1000, random_state=0,
    ),
}  # fmt: skip
"""Methods by name. Least squares is that of least norm where examples are few; the strengths of
ridge and lasso are of outputs with noise of deviation 1 and of sparse ones without. The network has
100 ReLU neurons, trained on the examples by Adam for at most 1,000 steps."""


def baseline(method: str | Method, x: Any, y: Any) -> Tensor:
    """Predictions of a method at every place of every prompt, float64 [P, n]; 0 at the first.

    Args:
        method: One of `BASELINES`, or a function of that kind.
        x: Inputs [P, n, d], a tensor or an array.
        y: Outputs [P, n]; that of a place is not seen by its own prediction.

    Raises:
        ValueError: If the name is unknown, or the shapes do not fit.

    Source:
        Garg et al. (2022), What can transformers learn in-context?, section 4.

    Example:
        >>> x, y = np.eye(2)[None, [0, 1, 0]], np.array([[3.0, 5.0, 3.0]])
        >>> baseline("least squares", x, y).tolist()
        [[0.0, 0.0, 3.0]]
    """
    if isinstance(method, str):
        if method not in BASELINES:
            raise ValueError(f"method: got {method!r}, expected one of {', '.join(BASELINES)}")
        method = BASELINES[method]
    inputs, outputs = (np.asarray(part, dtype=np.float64) for part in (x, y))
    if inputs.ndim != 3 or outputs.shape != inputs.shape[:2]:
        shapes = f"{inputs.shape} and {outputs.shape}"
        raise ValueError(f"x, y: shapes {shapes}, expected [P, n, d] and [P, n]")
    found = np.zeros_like(outputs)
    for prompt, (own, told) in enumerate(zip(inputs, outputs, strict=True)):
        for place in range(1, len(told)):
            found[prompt, place] = method(own[:place], told[:place], own[place])
    return torch.from_numpy(found)
