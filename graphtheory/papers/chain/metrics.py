"""Errors of reasoning in steps, and the attention of the query on each kind of column."""

from __future__ import annotations

import torch
from torch import Tensor

MASSES = (
    "same step, same pattern",
    "same step, other pattern",
    "other step, same pattern",
    "other step, other pattern",
)


def cot_error(found: Tensor, wanted: Tensor) -> Tensor:
    r"""Share of wrong steps, :math:`\frac1K \sum_k 1[z_k \ne v_k]`, of each prompt: eq. (7.7), [B].

    Answers v and right steps z are int64 [B, K].

    Raises:
        ValueError: If the shapes differ.
    """
    _check(found, wanted)
    return (found != wanted).float().mean(1)


def icl_error(found: Tensor, wanted: Tensor) -> Tensor:
    r"""Whether the last step's answer is wrong, :math:`1[z_K \ne v]`, of each prompt: eq. (7.9).

    Raises:
        ValueError: If the shapes differ.
    """
    _check(found, wanted)
    return (found != wanted).float()


def _check(found: Tensor, wanted: Tensor) -> None:
    if found.shape != wanted.shape:
        raise ValueError(f"found: shape {tuple(found.shape)}, expected {tuple(wanted.shape)}")


def chain_mass(weights: Tensor, same_step: Tensor, same_pattern: Tensor) -> dict[str, Tensor]:
    """Attention of the query, per head, on four kinds of example columns and on its own columns.

    Weights are those of the query on all columns [B, heads, L]; whether an example column, the
    first n, is of the query's step, and whether it has its pattern, are bool [B, n].

    Returns:
        Means over the prompts [heads] for each of `MASSES`, and "own columns" n to L - 1.

    Source: Li (2024), eq. (7.23) and figure 7.6.
    """
    count = same_step.size(1)
    kinds = (
        same_step & same_pattern, same_step & ~same_pattern,
        ~same_step & same_pattern, ~same_step & ~same_pattern,
    )  # fmt: skip
    examples = weights[:, :, :count]
    out = {
        name: torch.where(kind[:, None], examples, 0).sum(2).mean(0)
        for name, kind in zip(MASSES, kinds, strict=True)
    }
    return out | {"own columns": weights[:, :, count:].sum(2).mean(0)}
