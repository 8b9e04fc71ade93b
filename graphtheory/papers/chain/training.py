"""Train the models of chapter 7 on reasoning steps; errors and attention on new tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from graphtheory.papers.chain import model as models
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors, step_positions
from graphtheory.papers.chain.model import ChainAttention, ChainModel, ChainTransformer
from graphtheory.patterns.draw import generator_of
from graphtheory.vision.nn import PeriodicPositions, SinusoidalPositions

MASSES = (
    "same step, same pattern",
    "same step, other pattern",
    "other step, same pattern",
    "other step, other pattern",
)


def error_of(found: Tensor, wanted: Tensor) -> Tensor:
    r"""Share of wrong steps, :math:`\frac1K \sum_k 1[z_k \ne v_k]`, of each prompt: eq. (7.7), [B].

    Answers v and right steps z are int64 [B, K]; of the last step alone it is eq. (7.9).
    """
    if found.shape != wanted.shape:
        raise ValueError(f"found: shape {tuple(found.shape)}, expected {tuple(wanted.shape)}")
    return (found != wanted).float().mean(1)


def chain_mass(weights: Tensor, same_step: Tensor, same_pattern: Tensor) -> dict[str, Tensor]:
    """Attention of the query, per head, on four kinds of example columns and on its own columns.

    Weights are those of the query on all columns [B, heads, L]; whether an example column, the
    first n, is of the query's step, and whether it has its pattern, are bool [B, n].

    Returns: Means over the prompts [heads] for each of `MASSES`, and "own columns" n to L - 1.

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


Inference = Literal["CoT", "ICL"]
Position = Literal["orthonormal", "sinusoidal"]
Watch = Callable[[int, ChainModel, Tensor], None]
"""(steps taken, model, patterns)"""
_COLUMNS = 25_000  # of prompts that are tested at once: 6 MB, which a cache holds


@dataclass(frozen=True)
class Learner:
    """A model and how it is trained."""

    # layers of a `ChainTransformer`, trained by Adam; 0 is the one-layer `ChainAttention`, trained
    # by SGD
    depth: int = 0
    heads: int = 1  # of each layer
    # vectors of positions; sinusoids are scaled to length 1, that of the orthonormal vectors and of
    # the patterns
    position: Position = "orthonormal"
    step_size: float = 5.0  # eta
    steps: int = 1000  # T
    batch_size: int = 100  # B
    xi: float = 0.01  # spread of the start of W

    def model(self, data: ChainData, mu: Tensor, trials: int, generator: Generator) -> ChainModel:
        """Build the model at its start."""
        periodic = step_positions(mu, data.steps, generator)
        if not self.depth:
            return ChainAttention(periodic, trials=trials, xi=self.xi, generator=generator)
        width = 2 * data.dim
        position: nn.Module = PeriodicPositions(periodic)
        if self.position == "sinusoidal":
            position = SinusoidalPositions(width, scale=(2 / width) ** 0.5)
        return ChainTransformer(position, width, self.depth, self.heads, generator=generator)


def train(
    learner: Learner, data: ChainData, trials: int, seed: int, watch: Watch = lambda *_: None
) -> tuple[ChainModel, Tensor]:
    r"""Minimize :math:`\frac12 \|z - F\|^2` over new prompts in every step; also the patterns.

    The one-layer models of all trials train at once; a transformer has one trial. They share the
    patterns: the start of W and the loss are invariant under rotations, so that other patterns
    would be the same experiment. `watch` is called before each step and after the last.
    """
    generator = generator_of(seed, trials)
    mu = data.patterns(generator)
    model = learner.model(data, mu, trials, generator)
    kind = torch.optim.Adam if learner.depth else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=learner.step_size)
    count = trials * learner.batch_size
    for step in range(learner.steps):
        watch(step, model, mu)
        asked = torch.randint(1, data.steps + 1, (count,), generator=generator)
        columns, sizes, label = data.training(mu, count, generator).at(asked)
        loss = (model(columns, sizes) - label).square().sum() / (2 * learner.batch_size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    watch(learner.steps, model, mu)
    return model, mu


@lru_cache(maxsize=1)
def one_layer(
    learner: Learner, data: ChainData, trials: int, seed: int
) -> tuple[list[ChainAttention], Tensor]:
    """Trained one-layer models and their patterns, kept for the next case of the same figure."""
    model, mu = train(learner, data, trials, seed)
    assert isinstance(model, ChainAttention)
    return [model.trial(i) for i in range(trials)], mu


@dataclass(frozen=True)
class Probe:
    """Prompts of a test, and how they are answered."""

    inference: Inference  # "CoT" for all K steps, or "ICL" for the last one at once
    share: float  # alpha'
    errors: TrajectoryErrors  # of the examples
    prompts: int = 500  # how many, each of a task of its own

    def error(
        self, model: ChainModel, data: ChainData, mu: Tensor, contexts: int, seed: int
    ) -> float:
        """Mean of (7.7) or (7.9) with `contexts` examples, on test patterns of the seed."""
        generator = generator_of(seed, contexts)
        patterns = data.test_patterns(mu, generator)
        found: list[Tensor] = []
        left = self.prompts
        while left:
            some = min(left, max(1, _COLUMNS // (contexts * data.steps)))
            prompts = data.testing(patterns, some, contexts, self.share, self.errors, generator)
            columns, steps = prompts.columns(), data.steps
            if self.inference == "ICL":
                columns, steps = prompts.icl_columns(), 1
            answers = models.cot_generate(model, columns, prompts.query[:, 0], patterns, steps)
            found.append(error_of(answers, prompts.query_pattern[:, -steps:]))
            left -= some
        return float(torch.cat(found).mean())


@torch.no_grad()
def masses(
    model: ChainModel, data: ChainData, mu: Tensor, probe: Probe, seed: int
) -> list[list[dict[str, float]]]:
    """Attention of each layer and head on each kind of column, given the query's right steps.

    The prompts follow from the seed and have as many examples as in training.
    """
    generator = generator_of(seed, 0)
    patterns = data.test_patterns(mu, generator)
    prompts = data.testing(
        patterns, probe.prompts, data.contexts, probe.share, probe.errors, generator
    )
    step = torch.arange(probe.prompts) % data.steps + 1
    columns, sizes, _ = prompts.at(step)
    related = prompts.relation(step)
    out = []
    for weights in model.attention(columns, sizes):
        found = {name: of.tolist() for name, of in chain_mass(weights, *related).items()}
        heads = range(weights.size(1))
        out.append([{name: of[h] for name, of in found.items()} for h in heads])
    return out
