"""Prompts of reasoning tasks: examples with all of their steps, and queries."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.papers.chain import steps as checks
from graphtheory.papers.chain.steps import trajectories


class ChainPrompts(NamedTuple):
    """B prompts of l examples with K steps each, and the right steps of their queries."""

    context: Tensor  # x_i, y_i1, .., y_iK of each example, [B, l, K + 1, d]
    context_pattern: Tensor  # their patterns [B, l, K + 1]
    query: Tensor  # z_0, .., z_K [B, K + 1, d]
    query_pattern: Tensor  # their patterns [B, K + 1]
    vocabulary: Tensor  # the patterns [M, d], which are also the possible outputs

    @property
    def steps(self) -> int:
        """The number of reasoning steps, K."""
        return self.context.size(2) - 1

    def columns(self) -> Tensor:
        """E_1..E_l of eqs. (7.1) and (7.4), [B, l K, 2 d]."""
        return self._columns(0)

    def icl_columns(self) -> Tensor:
        """E_1..E_l of eq. (7.8), [B, l K, 2 d]: x_i and y_iK, then K - 1 columns of zeros."""
        ends = torch.cat([self.context[:, :, 0], self.context[:, :, -1]], 2)
        out = ends.new_zeros(*ends.shape[:2], self.steps, ends.size(2))
        out[:, :, 0] = ends
        return out.flatten(1, 2)

    def at(self, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The prompts that ask for step k [B], in 1..K, given the right steps before it: eq. (7.1).

        Returns:
            Columns [B, l K + K, 2 d], of which the last K - k do not count; the number of columns
            that count [B]; labels z_k [B, d].
        """
        checks.check_step(step, len(self.query), self.steps)
        own, dim = torch.arange(self.steps, device=step.device), self.query.size(2)
        out = self._columns(self.steps)
        asked = out[:, -self.steps :]
        asked[..., :dim] = self.query[:, :-1]
        asked[..., dim:] = self.query[:, 1:] * (own < step[:, None] - 1)[..., None]
        sizes = self.context.size(1) * self.steps + step
        return out, sizes, self.query[torch.arange(len(step), device=step.device), step]

    def _columns(self, more: int) -> Tensor:
        """E_1..E_l and uninitialized room for more columns; every entry is written once."""
        count, length, states, dim = self.context.shape
        size = length * self.steps
        out = self.context.new_empty(count, size + more, 2 * dim)
        shape = (count, length, self.steps, 2 * dim)
        parts = out.as_strided(shape, (out.stride(0), 2 * dim * (states - 1), 2 * dim, 1))
        parts[..., :dim], parts[..., dim:] = self.context[:, :, :-1], self.context[:, :, 1:]
        return out

    def relation(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Example columns of the query's step, and those with its pattern; both bool [B, l K]."""
        count, length = self.context_pattern.shape[:2]
        checks.check_step(step, count, self.steps)
        own = torch.arange(self.steps, device=step.device).repeat(length)
        same_step = own[None] == step[:, None] - 1
        now = self.query_pattern[torch.arange(count, device=step.device), step - 1]
        return same_step, self.context_pattern[:, :, :-1].flatten(1) == now[:, None]


def draw_prompts(
    patterns: Tensor,
    task: Tensor,
    contexts: int,
    share: float,
    generator: Generator,
    *,
    transitions: Tensor | None = None,
    noise: float = 0.0,
) -> ChainPrompts:
    r"""Prompts of given tasks int64 [B, K, M], one of each, with l = `contexts` examples.

    A share of the examples, alpha or alpha', rounded to a whole number, starts at the query's
    pattern, the others at other patterns, in random order. Steps of examples follow the transition
    matrices [B, K, M, M], None for right steps, and their vectors have noise :math:`\delta \perp
    \mathcal M'` of fixed length. The query has right steps and no noise. Patterns are [M, d],
    orthonormal where there is noise.

    Source: Li (2024), eqs. (7.10) to (7.12).
    """
    checks.check_numbers(share, noise, contexts=contexts)
    checks.check_task(task, len(patterns))
    if transitions is not None:
        checks.check_transitions(transitions, task)
    count, steps, known = task.shape
    dim = patterns.size(1)
    if noise and known == dim:
        raise ValueError(f"noise: got {noise}, expected 0, since {known} patterns span the space")
    if noise:
        checks.check_orthonormal(patterns)
    start = torch.randint(known, (count, 1), generator=generator)
    other = torch.randint(1, known, (count, contexts), generator=generator)
    same = torch.rand(count, contexts, generator=generator).argsort(1) < round(share * contexts)
    at = [torch.where(same, start, (start + other) % known)]
    for k in range(steps):
        if transitions is None:
            at.append(task[:, k].gather(1, at[-1]))
        else:
            at.append(_moved(transitions[:, k], at[-1], generator))
    pattern = torch.stack(at, 2)
    asked = trajectories(task).gather(2, start[:, None].expand(-1, steps + 1, 1))[..., 0]
    context = patterns[pattern]
    if noise:
        delta = torch.randn(context.shape, generator=generator).to(patterns.dtype)
        delta -= (delta @ patterns.t()) @ patterns
        context += noise * delta / delta.norm(dim=-1, keepdim=True)
    return ChainPrompts(context, pattern, patterns[asked], asked, patterns)


def _moved(matrix: Tensor, at: Tensor, generator: Generator) -> Tensor:
    """The next pattern of each example [B, l], drawn from its row of [B, M, M]."""
    reach = matrix.cumsum(2)[..., :-1]  # the last pattern takes the rest
    rows = reach.gather(1, at[..., None].expand(-1, -1, reach.size(2)))
    return (torch.rand(*at.shape, 1, generator=generator) >= rows).sum(2)
