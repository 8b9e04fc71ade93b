"""Gradient descent on all examples, with bounded noise in the gradient where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Algorithm1:
    r"""How `gradient_descent` descends.

    .. math:: W_{t+1} = W_t - \eta_0 \Big( \nabla f_n(W_t) + \frac1n \sum_{i=1}^n \nu_i \Big)

    Raises:
        ValueError: If a step size is not positive, or a number is below 0 (examples: below 1).

    Source: Li (2024), eq. (4.6) and appendix C.1.
    """

    step_size: float | Tensor  # eta_0 of all networks, or of each trial [T]
    steps: int  # T
    # xi. Each entry of each nu_i is +xi or -xi with equal probability: the largest noise that xi
    # bounds.
    noise: float = 0.0
    examples: int = 1  # n, over which the noise is averaged

    def __post_init__(self) -> None:
        if not bool((torch.as_tensor(self.step_size) > 0).all()):
            raise ValueError(f"step_size: got {self.step_size}, expected above 0")
        for name, least in (("steps", 0), ("noise", 0), ("examples", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")


@torch.no_grad()
def gradient_descent(
    weights: Tensor,
    gradient: Callable[[], Tensor],
    options: Algorithm1,
    generator: Generator | None = None,
    watch: Callable[[int], bool] = lambda step: False,
) -> int:
    """Descend from the weights of T trials, [T, ...], in place; the number of steps taken.

    `watch` is called with the number of steps taken, before each step and after the last; descent
    ends where it returns True.

    Example:
        >>> w = torch.tensor([4.0])
        >>> gradient_descent(w, lambda: 2 * w, Algorithm1(0.25, 2)), w
        (2, tensor([1.]))
    """
    size = torch.as_tensor(options.step_size, dtype=weights.dtype)
    size = size.view(-1, *(1,) * (weights.dim() - 1)) if size.dim() else size
    for step in range(options.steps):
        if watch(step):
            return step
        slope = gradient()
        if options.noise:
            slope = slope + _mean_noise(slope, options, generator)
        weights.sub_(size * slope)
    watch(options.steps)
    return options.steps


def _mean_noise(like: Tensor, options: Algorithm1, generator: Generator | None) -> Tensor:
    """Mean of `examples` draws of +-xi, for every entry, from one binomial draw."""
    count = torch.full_like(like, options.examples)
    heads = torch.binomial(count, torch.full_like(like, 0.5), generator=generator)
    return options.noise * (2 * heads / count - 1)
