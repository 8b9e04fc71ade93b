"""Neurons removed for a while: the smallest first, the largest first, or at random."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

RULES = ("smallest first", "random", "largest first")


def removal_order(rule: str, norms: Tensor, generator: Generator | None = None) -> Tensor:
    """Ids of neurons of these norms [..., m], the first one to be removed first, int64 [..., m].

    The rule is one of `RULES`; neurons of equal norm go in the order of their ids.

    Raises:
        ValueError: If the rule is unknown.

    Source: Li (2024), section 6.2.4.
    """
    if rule not in RULES:
        raise ValueError(f"rule: got {rule!r}, expected one of {', '.join(RULES)}")
    if rule == "random":
        return torch.rand(norms.shape, generator=generator).argsort(dim=-1)
    return norms.sort(dim=-1, descending=rule == "largest first", stable=True).indices


def kept_mask(order: Tensor, share: float) -> Tensor:
    """Which neurons stay when a share of them, rounded, is removed in that order, bool [..., m].

    Raises:
        ValueError: If the share is below 0 or above 1.

    Example:
        >>> kept_mask(torch.tensor([2, 0, 1, 3]), 0.5).tolist()
        [False, True, False, True]
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share: got {share}, expected 0 to 1")
    removed = order[..., : round(share * order.size(-1))]
    return torch.ones(order.shape, dtype=torch.bool).scatter(-1, removed, False)


@contextmanager
def while_pruned(weight: Tensor, kept: Tensor) -> Iterator[None]:
    """Zero the rows of removed neurons inside a with block; afterwards the weight is as before.

    The weight may be W_O of T networks at once, [T, m, n] with `kept` [T, m]. A neuron without
    weights and bias is 0 behind a ReLU, as if its row were taken out. To prune the weight of a
    linear or convolution layer for good, `torch.nn.utils.prune.ln_structured` is enough.

    Raises:
        ValueError: If the first axes differ. Nothing is pruned then.
    """
    if weight.shape[: kept.dim()] != kept.shape:
        raise ValueError(
            f"kept: shape {tuple(kept.shape)}, expected the first axes of {tuple(weight.shape)}"
        )
    before = weight.detach().clone()
    mask = kept.view(*kept.shape, *[1] * (weight.dim() - kept.dim()))
    try:
        with torch.no_grad():
            weight.mul_(mask)
        yield
    finally:
        with torch.no_grad():
            weight.copy_(before)
