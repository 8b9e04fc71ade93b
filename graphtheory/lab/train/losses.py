"""Kinds of labels: how each is learned and which scores it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

Kind = Literal["multiclass", "multilabel", "regression"]
Loss = Callable[[Tensor, Tensor], Tensor]
METRICS: dict[str, tuple[str, ...]] = {
    "multiclass": ("accuracy", "f1", "rocauc"),
    "multilabel": ("rocauc", "ap"),
    "regression": ("rmse", "mae"),
}
"""Scores of each kind; the first is the default."""


def known_metric(kind: str, metric: str | None) -> str:
    """The metric itself, the first of its kind for None.

    Raises:
        ValueError: An unknown kind, or a metric that it does not have.
    """
    if kind not in METRICS:
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(METRICS)}")
    if metric is not None and metric not in METRICS[kind]:
        raise ValueError(
            f"metric: got {metric!r}, expected one of {', '.join(METRICS[kind])} for {kind} labels"
        )
    return metric or METRICS[kind][0]


def _known(loss: Loss) -> Loss:
    """The mean over labels that are not NaN."""

    def mean(out: Tensor, y: Tensor) -> Tensor:
        known = ~y.isnan()
        return loss(out[known], y[known].to(out.dtype))

    return mean


LOSSES: dict[str, Loss] = {
    "multiclass": partial(cross_entropy, ignore_index=-1),
    "multilabel": _known(binary_cross_entropy_with_logits),
    "regression": _known(nn.functional.mse_loss),
    "mae": _known(nn.functional.l1_loss),
}
"""Mean losses over the labels that are there: by metric where it has one of its own, or by kind."""
