"""Answers of a trained model: step by step with chain of thought, or at once with ICL."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class ChainModel(Protocol):
    """A model of prompts: `ChainAttention` or `ChainTransformer`."""

    def __call__(self, columns: Tensor, sizes: Tensor | None = None) -> Tensor:
        """F [B, d] of prompts [B, L, 2 d]."""
        ...

    def attention(self, columns: Tensor, sizes: Tensor | None = None) -> list[Tensor]:
        """Attention weights of the last column, [B, heads, L] for each layer."""
        ...


class Generated(NamedTuple):
    """Answers of a model."""

    pattern: Tensor  # index in the vocabulary of each step's answer [B, K]
    # of each step, the weights of the query in each layer, [B, heads, columns so far]; empty unless
    # asked for
    attention: list[list[Tensor]]


def nearest(out: Tensor, vocabulary: Tensor) -> Tensor:
    r"""Greedy decoding, :math:`\arg\min_{u \in \mathcal Y} \frac12 \|F - u\|^2`, indices [B].

    Source: Li (2024), eq. (7.5).
    """
    return (vocabulary.square().sum(1) / 2 - out @ vocabulary.t()).argmin(1)


@torch.no_grad()
def cot_generate(
    model: ChainModel, context: Tensor, query: Tensor, vocabulary: Tensor, steps: int,
    *, attention: bool = False,
) -> Generated:  # fmt: skip
    r"""K steps of reasoning: each answer completes its column and is the input of the next.

    .. math:: P_{k+1} = (P_k \; q_{k+1}), \quad q_k = (v_{k-1}^\top \; v_k^\top)^\top, \quad
        q_{k+1} = (v_k^\top \; 0^\top)^\top

    Args:
        model: Trained.
        context: E_1..E_l of `ChainPrompts.columns`, [B, l K, 2 d].
        query: x_query [B, d].
        vocabulary: The possible outputs [M, d].
        steps: K.
        attention: Whether to return the weights of every step.

    Raises:
        ValueError: If there is no step, no example, or queries of another number or width.

    Source: Li (2024), eqs. (7.4) to (7.6), algorithm 4.

    Example:
        >>> from graphtheory.papers.chain.model import ChainAttention
        >>> model = ChainAttention(torch.eye(2, 6))
        >>> context, query = torch.randn(4, 8, 6), torch.randn(4, 3)
        >>> cot_generate(model, context, query, torch.eye(3), steps=2).pattern.shape
        torch.Size([4, 2])
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}, expected at least 1")
    _check_prompts(context, query)
    length, dim = context.size(1), query.size(1)
    whole = torch.nn.functional.pad(context, (0, 0, 0, steps))
    answers, weights, now = [], [], query
    for place in range(length, length + steps):
        whole[:, place, :dim] = now
        columns = whole[:, : place + 1]
        answers.append(nearest(model(columns), vocabulary))
        if attention:
            weights.append(model.attention(columns))
        now = vocabulary[answers[-1]]
        whole[:, place, dim:] = now
    return Generated(torch.stack(answers, 1), weights)


def _check_prompts(context: Tensor, query: Tensor) -> None:
    """Raise unless every query has columns, twice as wide as the query."""
    if context.dim() != 3 or not context.size(1):
        shape = tuple(context.shape)
        raise ValueError(f"context: shape {shape}, expected [B, l K, 2 d] with l K at least 1")
    wanted = (len(context), context.size(2) // 2)
    if query.shape != wanted:
        raise ValueError(f"query: shape {tuple(query.shape)}, expected {wanted}, as context has it")


@torch.no_grad()
def icl_infer(model: ChainModel, context: Tensor, query: Tensor, vocabulary: Tensor) -> Tensor:
    """The last step's answer at once, from examples without the steps between; indices [B].

    Arguments as in `cot_generate`, with the context of `ChainPrompts.icl_columns`, eq. (7.8).
    """
    return cot_generate(model, context, query, vocabulary, 1).pattern[:, 0]
