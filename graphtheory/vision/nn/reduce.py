"""Token reduction: of the tokens of an image fewer go on, and where each of them went is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor


class Reduction(NamedTuple):
    """Fewer tokens, and the way back.

    Attributes:
        tokens: [B, M, dim], in the order of the tokens that they come from.
        size: Tokens that each stands for, [B, M].
        slot: Which of the M each of the T tokens went to, int64 [B, T]; -1 for one that was left.
        place: Which of the T tokens each lies at the place of, int64 [B, M]; -1 for a fused one.
    """

    tokens: Tensor
    size: Tensor
    slot: Tensor
    place: Tensor


@dataclass(frozen=True)
class Part:
    """What is known of the tokens of a layer; what was not given is None.

    Attributes:
        tokens: [B, T, dim].
        size: Tokens that each stands for already, [B, T].
        prefix: Protected tokens at the beginning: class and distillation tokens.
        received: Attention that each receives, [B, T].
        keys: By which alike ones are found, [B, T, any]; the tokens where None.
        score: Of an oracle, larger is more important, [B, T].
    """

    tokens: Tensor
    size: Tensor
    prefix: int
    received: Tensor | None
    keys: Tensor | None
    score: Tensor | None


class Score(Protocol):
    """How important each token is, [B, T]; the largest are kept, of equal ones the earlier."""

    needs: ClassVar[str | None]

    def __call__(self, part: Part, generator: torch.Generator | None) -> Tensor:
        """Scores of the tokens."""
        ...


@dataclass(frozen=True)
class Attended:
    """The attention that a token receives, of the class token where there is one."""

    needs: ClassVar[str | None] = "received"

    def __call__(self, part: Part, generator: torch.Generator | None) -> Tensor:
        """`received`."""
        return given(part, "received")


@dataclass(frozen=True)
class Oracle:
    """A `score` that the caller gives, such as whether a token carries the label."""

    needs: ClassVar[str | None] = "score"

    def __call__(self, part: Part, generator: torch.Generator | None) -> Tensor:
        """`score`."""
        return given(part, "score")


@dataclass(frozen=True)
class Random:
    """A draw, which differs from image to image; the baseline that need not help."""

    needs: ClassVar[str | None] = None

    def __call__(self, part: Part, generator: torch.Generator | None) -> Tensor:
        """Uniform numbers."""
        device = part.tokens.device if generator is None else generator.device
        draw = torch.empty(part.size.shape, device=device)  # torch.rand(generator=None) may not
        return draw.uniform_(generator=generator).to(part.tokens.device)  # compile: see DropPath


@dataclass(frozen=True, eq=False)
class Clean:
    """Noisiest tokens go first: those farthest from the nearest of the known patterns.

    Args:
        patterns: What tokens are without noise, [patterns, dim].
    """

    patterns: Tensor
    needs: ClassVar[str | None] = None

    def __call__(self, part: Part, generator: torch.Generator | None) -> Tensor:
        """Minus the distance to the nearest pattern."""
        return -torch.cdist(part.tokens, self.patterns.to(part.tokens)).amin(2)


class Reducer(ABC):
    """A rule that makes fewer tokens of many; how many is known from how many there are.

    Images do not influence each other. Frozen dataclasses; shapes hang on no values, so all of
    them compile.
    """

    @property
    @abstractmethod
    def needs(self) -> str | None:
        """What it reads besides the tokens: `received`, `keys` or `score`."""

    @abstractmethod
    def reduce(self, part: Part, generator: torch.Generator | None) -> Reduction:
        """The rule on what `__call__` has checked."""

    def __call__(
        self,
        tokens: Tensor,
        received: Tensor | None = None,
        *,
        size: Tensor | None = None,
        keys: Tensor | None = None,
        score: Tensor | None = None,
        prefix: int = 1,
        generator: torch.Generator | None = None,
    ) -> Reduction:
        """Reduce the tokens [B, T, dim]; the other arguments are those of `Part`.

        Args:
            tokens: Of a layer.
            received: Attention that each receives.
            size: None is 1 for each.
            keys: Of the attention, heads averaged.
            score: Of an oracle.
            prefix: Tokens at the beginning that are neither left nor merged.
            generator: Source of a random rule.

        Raises:
            ValueError: Shapes that do not fit, or something missing that the rule reads.
        """
        if tokens.dim() != 3 or not 0 <= prefix <= tokens.size(1):
            raise ValueError(
                f"tokens: shape {tuple(tokens.shape)}, expected [B, {prefix} or more, dim]"
            )
        for name, values in (("received", received), ("size", size), ("score", score)):
            if values is not None and values.shape != tokens.shape[:2]:
                raise ValueError(
                    f"{name}: shape {tuple(values.shape)}, expected {tuple(tokens.shape[:2])}"
                )
        if keys is not None and (keys.dim() != 3 or keys.shape[:2] != tokens.shape[:2]):
            expected = f"[{tokens.size(0)}, {tokens.size(1)}, any]"
            raise ValueError(f"keys: shape {tuple(keys.shape)}, expected {expected}")
        size = tokens.new_ones(tokens.shape[:2]) if size is None else size
        return self.reduce(Part(tokens, size, prefix, received, keys, score), generator)


def pool(values: Tensor, slot: Tensor, many: int) -> Tensor:
    """Sum of the values of each slot, [B, many, ...] of [B, T, ...]; those left are in no sum."""
    if values.dim() == 3 and values.is_cuda:
        return _pool_by_product(values, slot, many)
    place = torch.where(slot < 0, many, slot)
    place = place.view(*slot.shape, *(1,) * (values.dim() - 2)).expand_as(values)
    out = values.new_zeros(values.size(0), many + 1, *values.shape[2:])
    return out.scatter_add(1, place, values)[:, :many]


def _pool_by_product(values: Tensor, slot: Tensor, many: int) -> Tensor:
    """The same of [B, T, D] without a GPU's atomic additions, whose order changes."""
    places = torch.arange(many, device=slot.device)
    belongs = (slot[:, None] == places[:, None]).to(values.dtype)  # [B, many, T]
    with torch.autocast(values.device.type, enabled=False):
        return belongs @ values


def unmerge(values: Tensor, slot: Tensor) -> Tensor:
    """Every token gets what its slot has, zeros where it was left: [B, T, ...] of [B, M, ...].

    Example:
        >>> unmerge(torch.tensor([[7.0, 8.0]]), torch.tensor([[0, -1, 1, 1]])).tolist()
        [[7.0, 0.0, 8.0, 8.0]]
    """
    shape = (*slot.shape, *(1,) * (values.dim() - 2))
    place = slot.clamp(min=0).view(shape).expand(*slot.shape, *values.shape[2:])
    return torch.where((slot < 0).view(shape), 0, values.gather(1, place))


def follow(slot: Tensor, later: Tensor) -> Tensor:
    """The slots after two reductions, [B, T] of [B, T] and then [B, M]."""
    return torch.where(slot < 0, -1, later.gather(1, slot.clamp(min=0)))


def given(part: Part, name: str) -> Tensor:
    """`received` or `score`, or an error where it is None."""
    values = getattr(part, name)
    if values is None:
        raise ValueError(f"{name}: not given, expected [B, T], which this rule reads")
    return values
