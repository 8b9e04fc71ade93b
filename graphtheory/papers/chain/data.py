"""Data of chapter 7: patterns, positions, and reasoning tasks."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from graphtheory.papers.chain import steps as checks
from graphtheory.papers.chain.errors import TrajectoryErrors
from graphtheory.papers.chain.prompts import ChainPrompts, draw_prompts
from graphtheory.papers.shallow import orthonormal


def step_positions(patterns: Tensor, steps: int, generator: Generator) -> Tensor:
    """Orthonormal c_1..c_K [K, 2 d], in the upper half of a column and orthogonal to all patterns.

    The lower half, which holds the values, is 0. Patterns [M, d] are orthonormal, K is at most d -
    M.

    Source: Li (2024), sections 7.2.2 and 7.3.2, which only ask for orthogonality.
    """
    checks.check_count(steps=steps)
    checks.check_orthonormal(patterns)
    count, dim = patterns.shape
    if steps > dim - count:
        raise ValueError(f"steps: got {steps}, expected at most d - M = {dim - count}")
    drawn = torch.randn(steps, dim, generator=generator).to(patterns.dtype)
    drawn -= drawn @ patterns.t() @ patterns
    rows = torch.linalg.qr(drawn.t())[0].t()
    return torch.cat([rows, torch.zeros_like(rows)], 1)


def shift_tasks(count: int, patterns: int, steps: int, generator: Generator) -> Tensor:
    r"""Tasks :math:`f_k(\mu_{p_i}) = \mu_{p_{(i+k) \bmod M}}`, each with its own permutation p.

    Returns: int64 [B, K, M], entry (k, i) the pattern that follows pattern i in step k.

    Source: Li (2024), section 7.5.
    """
    order = torch.rand(count, patterns, generator=generator).argsort(1)
    place = order.argsort(1)
    return torch.stack(
        [order.gather(1, (place + k) % patterns) for k in range(1, steps + 1)], 1
    )  # fmt: skip


@dataclass(frozen=True)
class ChainData:
    """The synthetic data of section 7.5.

    Source:
        Li (2024), section 7.5. Every prompt has a task of its own, in training, too; the source
        does not say how many permutations it draws.
    """

    dim: int = 30  # d_X
    num_patterns: int = 20  # M, patterns of training, at most d_X
    num_test_patterns: int = 10  # M', 2 to M: random orthonormal combinations
    steps: int = 3  # K
    share: float = 0.4  # alpha, of training
    contexts: int = 20  # l_tr (not in the source)
    noise: float = 0.2  # length of the noise of test examples

    def __post_init__(self) -> None:
        if not 2 <= self.num_test_patterns <= self.num_patterns <= self.dim:
            raise ValueError(
                f"num_patterns: got {self.num_patterns} with {self.num_test_patterns} of the test, "
                f"expected 2 <= M' <= M <= dim={self.dim}"
            )
        checks.check_numbers(self.share, self.noise, steps=self.steps, contexts=self.contexts)

    def patterns(self, generator: Generator) -> Tensor:
        """The training patterns mu_1..mu_M, [M, d]."""
        return orthonormal(self.num_patterns, self.dim, generator)

    def test_patterns(self, patterns: Tensor, generator: Generator) -> Tensor:
        """mu'_1..mu'_M' [M', d], in the span of the patterns, eq. (7.19)."""
        return orthonormal(self.num_test_patterns, self.num_patterns, generator) @ patterns

    def training(self, patterns: Tensor, count: int, generator: Generator) -> ChainPrompts:
        """Prompts without noise and errors."""
        task = shift_tasks(count, len(patterns), self.steps, generator)
        return draw_prompts(patterns, task, self.contexts, self.share, generator)

    def testing(
        self, patterns: Tensor, count: int, contexts: int, share: float,
        errors: TrajectoryErrors, generator: Generator,
    ) -> ChainPrompts:  # fmt: skip
        """Prompts of new tasks on test patterns mu' [M', d], with noise, errors, l_ts, alpha'."""
        task = shift_tasks(count, len(patterns), self.steps, generator)
        return draw_prompts(
            patterns, task, contexts, share, generator,
            transitions=errors(task), noise=self.noise,
        )  # fmt: skip
