"""The path of gradient descent, and how fast it converges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphtheory.papers.mixture.model import OneHidden
from graphtheory.papers.mixture.training import Learner, Trial

_LOOKS = 100
_ROUNDING = 1e-9  # distances below it are rounding errors


def descend(learner: Learner, net: OneHidden, trials: Sequence[Trial]) -> tuple[list[int], Tensor]:
    """The steps, and weights [n, T, M, d, K] after them, 100 of them evenly spread; in place."""
    count = min(learner.steps, _LOOKS) + 1
    looks = {round(s) for s in np.linspace(0, learner.steps, count)}
    kept: list[Tensor] = []

    def watch(step: int) -> bool:
        if step in looks:
            kept.append(net.W.detach().clone())
        return False

    learner.run(net, trials, watch)
    return sorted(looks), torch.stack(kept)


def convergence(steps: Sequence[int], gap: Tensor) -> dict[str, Any]:
    """The rate v of gap ~ v^t over the second half of its fall, on the logarithmic axis.

    The first half holds directions that vanish early, the end rounding errors.

    Returns:
        The steps and gaps of the looks as lists; `rate`, v, and `straight`, R^2 of the line, both
        nan where the second half has fewer than three points.
    """
    size = gap.clamp(min=1e-300).log().numpy()
    last = max((i for i in range(len(size)) if gap[i] > _ROUNDING), default=0)
    middle = (size[0] + size[last]) / 2
    chosen = [i for i in range(last + 1) if size[i] <= middle]
    found = {"steps": list(steps), "gap": gap.tolist()}
    if len(chosen) < 3:
        return found | {"rate": float("nan"), "straight": float("nan")}
    x, y = np.array(steps, float)[chosen], size[chosen]
    slope, shift = np.polyfit(x, y, 1)
    left = y - slope * x - shift
    return found | {"rate": float(np.exp(slope)), "straight": float(1 - left.var() / y.var())}
