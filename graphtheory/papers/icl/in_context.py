"""Learning in context: training of a sequence model on new functions, and classical methods."""

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.tree import DecisionTreeRegressor
from torch import Generator, Tensor, nn

from graphtheory.lab.train.checkpoint import TrainingState
from graphtheory.lab.train.contract import check_at_least

Sampler = Callable[[int, int, int, Generator], Any]
"""``sample(prompts, points, dim, generator)`` -> x [P, n, dim] and y [P, n], or what has both."""


@dataclass(frozen=True)
class Ramp:
    """A whole number that grows by `add` every `every` steps, from `start` up to `end`.

    Raises:
        ValueError: If `start` or `every` is below 1, `add` below 0, or `end` below `start`.

    Example:
        >>> [Ramp(5, 8, add=2, every=10).at(step) for step in (0, 9, 10, 20, 90)]
        [5, 5, 7, 8, 8]
    """

    start: int
    end: int
    add: int = 1
    every: int = 2000

    def __post_init__(self) -> None:
        if self.start < 1 or self.every < 1 or self.add < 0 or self.end < self.start:
            raise ValueError(f"{self}: expected 1 <= start <= end, add 0 or more, every 1 or more")

    def at(self, step: int) -> int:
        """Compute the number in step 0, 1 and so on."""
        return min(self.end, self.start + self.add * (step // self.every))


@dataclass(frozen=True)
class Curriculum:
    """How many coordinates of the inputs are used, the others being 0, and how many points.

    Source: Garg et al. (2022), What can transformers learn in-context?, appendix A.2: dimensions
        from 5 to 20 by 1 and points from 11 to 41 by 2, every 2,000 steps.
    """

    dims: Ramp  #: Coordinates; `dims.end` are those of the model.
    points: Ramp  #: Examples of a prompt.

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, Ramp):
                raise TypeError(f"{name}: got {value!r}, expected Ramp(start, end)")


def predictions(model: nn.Module, x: Any, y: Any) -> Tensor:
    """Predict the output at every input, from the examples before it alone, [P, n].

    The model reads the tokens x_1, y_1, x_2, y_2 and so on, an output in the first coordinate of
    its token.

    Args:
        model: Causal, tokens [P, 2 n, d] -> [P, 2 n, 1], such as ``gpt(..., in_channels=d,
            out_channels=1)``.
        x: Inputs [P, n, d], a tensor or an array.
        y: Outputs [P, n]; that of an input is not seen by its own prediction.

    Raises:
        ValueError: If shapes do not fit, or the model does not give one number a token.
    """
    x, y = _as_tensor(x), _as_tensor(y)
    if x.dim() != 3 or y.shape != x.shape[:2]:
        shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"x, y: shapes {shapes}, expected [P, n, d] and [P, n]")
    outputs = torch.zeros_like(x)
    outputs[..., 0] = y
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    tokens = torch.stack([x, outputs], 2).flatten(1, 2).to(device)
    found, expected = model(tokens), (*tokens.shape[:2], 1)
    if found.shape != expected:
        shapes = f"{tuple(found.shape)} for tokens {tuple(tokens.shape)}"
        raise ValueError(f"model: gives {shapes}, expected one number a token: {expected}")
    return found[:, ::2, 0]


def _as_tensor(part: Any) -> Tensor:
    return torch.as_tensor(part).to(torch.get_default_dtype())


def train_in_context(
    model: nn.Module,
    sample: Sampler,
    curriculum: Curriculum,
    *,
    steps: int,
    generator: Generator,
    batch_size: int = 64,
    lr: float = 1e-4,
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.mse_loss,
    progress: Callable[[int, float], None] = lambda step, loss: None,
    checkpoint: str | PathLike[str] | None = None,
) -> list[float]:
    r"""Minimize a loss at every position of new prompts by Adam, and return the losses.

    .. math:: \frac{1}{P n} \sum_{p, i} \ell(M(x_1, f(x_1), \dots, x_i), f(x_i))

    Args:
        model: As in `predictions`; trained in place.
        sample: Draws prompts: of a member of `papers.icl.prompts`, see the example, or a
            function of your own that gives arrays.
        curriculum: How prompts grow.
        steps: How many.
        generator: Source of the prompts.
        batch_size: Prompts of a step, P.
        lr: Step size of Adam.
        loss: Of predictions and outputs, both [P, n].
        progress: Called after each step with its number and loss.
        checkpoint: A file that is written about once a minute and at the end, from which training
            goes on to the same bits as without a break, for the same `steps` or more.

    Raises:
        ValueError: A number out of its range, or prompts of other shapes than asked for.
        TypeError: `sample` is no function, or gives anything but x and y.
        CheckpointError: `checkpoint` is damaged, or of another model, batch size, step size or
            curriculum; `sample` and `loss` are not compared.
        FloatingPointError: A loss that is not finite.

    Source: Garg et al. (2022), What can transformers learn in-context?, eq. (2).

    Example:
        >>> from graphtheory.papers.icl.prompts import Linear
        >>> from graphtheory.vision.models import gpt
        >>> model = gpt(16, depth=1, heads=2, in_channels=3, out_channels=1, length=16)
        >>> grow = Curriculum(dims=Ramp(1, 3, every=2), points=Ramp(4, 8, every=2))
        >>> draw = torch.Generator().manual_seed(0)
        >>> len(train_in_context(model, Linear().prompts, grow, steps=4, generator=draw))
        4
    """
    check_at_least(1, steps=steps, batch_size=batch_size)
    if not callable(sample):
        expected = "a function (prompts, points, dim, generator) -> x, y, such as Linear().prompts"
        raise TypeError(f"sample: got {type(sample).__name__}, expected {expected}")
    if not isinstance(curriculum, Curriculum):
        given = f"got {type(curriculum).__name__}, expected Curriculum(dims=Ramp(...), ...)"
        raise TypeError(f"curriculum: {given}")
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    settings = {"batch_size": batch_size, "lr": lr, "curriculum": asdict(curriculum)}
    file = None if checkpoint is None else Path(checkpoint)
    state = TrainingState(file, settings, generator, {"model": model, "optimizer": optimizer})
    losses = state.restore()
    if len(losses) > steps:
        raise ValueError(f"steps: got {steps}, but {checkpoint} has done {len(losses)}")
    model.train()
    for step in range(len(losses), steps):
        points, dim = curriculum.points.at(step), curriculum.dims.at(step)
        x, y = _drawn(sample, (batch_size, points, dim), curriculum.dims.end, generator)
        found = predictions(model, x, y)
        found_loss = loss(found, y.to(found))
        if found_loss.numel() != 1:
            raise ValueError(f"loss: gave shape {tuple(found_loss.shape)}, expected one number")
        losses.append(float(found_loss.detach()))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"step {step}: the loss is {losses[-1]}")
        optimizer.zero_grad()
        found_loss.backward()
        optimizer.step()
        state.save(losses, last=step == steps - 1)
        progress(step, losses[-1])
    model.eval()
    return losses


def _drawn(
    sample: Sampler, asked: tuple[int, int, int], width: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    found = sample(*asked, generator)
    pair = (found.x, found.y) if hasattr(found, "x") else found
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"sample: gave {type(pair).__name__}, expected x and y")
    x, y = map(_as_tensor, pair)
    if x.shape != asked or y.shape != asked[:2]:
        gave = f"x {tuple(x.shape)} and y {tuple(y.shape)}"
        raise ValueError(f"sample: gave {gave}, expected {asked} and {asked[:2]}")
    return nn.functional.pad(x, (0, width - x.size(2))), y


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

    Source: Garg et al. (2022), What can transformers learn in-context?, section 4.

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
