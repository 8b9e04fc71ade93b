"""The in-context learner of the theory: its start, and its answers to prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.graph import query_stars
from graphtheory.papers.shallow import ShallowAttention


@dataclass(frozen=True)
class DiagonalStart:
    """Diagonal queries, keys and values, random neurons.

    All diagonal entries of W_V and the first d_x of W_Q and W_K are delta, their other entries 0;
    entries of W_O ~ N(0, 1 / m).

    Source: Li (2024), section 6.2.3.

    Example:
        >>> net = ShallowAttention(5, 6, width=8)
        >>> DiagonalStart(features=2)(net, Generator().manual_seed(0))
        >>> net.W_Q[0].diagonal().tolist()
        [0.10..., 0.10..., 0.0, 0.0, 0.0]
    """

    features: int  # d_x; the entries below, of the label, are in no key and no query
    delta: float = 0.1  # above 0; the source has at most 0.2

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"features: got {self.features}, expected at least 1")
        if not self.delta > 0:
            raise ValueError(f"delta: got {self.delta}, expected above 0")

    @torch.no_grad()
    def __call__(self, model: ShallowAttention, generator: Generator) -> None:
        """Overwrite the start of a model; `a` stays."""
        room = min(model.W_K.shape[1:])
        if self.features > room:
            raise ValueError(f"features: got {self.features}, expected at most {room}")
        for weight, count in (
            (model.W_Q, self.features), (model.W_K, self.features),
            (model.W_V, min(model.W_V.shape[1:])),
        ):  # fmt: skip
            weight.zero_()
            weight.diagonal(dim1=1, dim2=2)[:, :count] = self.delta
        model.W_O.normal_(0, model.W_O.size(1) ** -0.5, generator=generator)
        model.b.zero_()


class PromptPrediction(NamedTuple):
    """Answers of networks to prompts."""

    value: Tensor  # F, [T, P]; its sign is the answer
    attention: Tensor | None  # weights of the contexts [T, P, l]; None unless asked for

    def wrong(self, answer: Tensor) -> Tensor:
        """Whether the sign is not that of the answer [P] or [T, P]; 0 and NaN have none."""
        return ~(self.value * answer > 0)


@torch.no_grad()
def icl_predict(
    model: ShallowAttention, columns: Tensor, *, attention: bool = True, chunk: int = 4096
) -> PromptPrediction:
    """F(Psi; P) of eq. (6.2) for many prompts, and the attention weights of each query.

    Args:
        model: T networks.
        columns: p_1 to p_l and p_query of each prompt, [P, l + 1, d], the same for all networks, or
            [T, P, l + 1, d]; `lab.datasets.prompts.Prompts.columns` makes them.
        attention: Whether to return the weights, too.
        chunk: Prompts computed at once.

    Raises:
        ValueError: If columns have another shape.

    Source: Li (2024), eq. (6.2).

    Example:
        >>> net = ShallowAttention(3, 3, width=8, trials=2)
        >>> found = icl_predict(net, torch.randn(5, 7, 3))
        >>> found.value.shape, found.attention.shape
        (torch.Size([2, 5]), torch.Size([2, 5, 6]))
    """
    trials, dim = model.trials, model.W_Q.size(2)
    own = columns if columns.dim() == 4 else columns.expand(trials, *columns.shape)
    if own.dim() != 4 or own.size(0) != trials or own.size(3) != dim or own.size(2) < 2:
        raise ValueError(
            f"columns: shape {tuple(columns.shape)}, expected [P, l + 1, {dim}] or "
            f"[{trials}, P, l + 1, {dim}] with l at least 1"
        )
    values, weights = [], []
    for part in own.split(max(chunk // trials, 1), dim=1):
        stars = query_stars(trials * part.size(1), part.size(2) - 1)
        queries = (torch.arange(1, stars.num_dst + 1) * part.size(2) - 1).to(part.device)
        x, rows = part.reshape(-1, dim), stars.to(part.device)
        values.append(model(x, rows, queries))
        if attention:
            found = model.attention(x, rows, queries)
            weights.append(found.view(trials, part.size(1), part.size(2) - 1))
    return PromptPrediction(torch.cat(values, 1), torch.cat(weights, 1) if weights else None)
