"""Token reduction: what a rule reads and returns, scores of tokens, and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Generator, Tensor


class Reduction(NamedTuple):
    """Fewer tokens, and the way back."""

    tokens: Tensor  # [B, M, dim], in the order of the tokens that they come from
    size: Tensor  # tokens that each stands for, [B, M]; float32 or wider
    slot: Tensor  # which of the M each of the T tokens went to, int64 [B, T]; -1: it was left
    place: Tensor  # which of the T tokens each lies at the place of, int64 [B, M]; -1: fused


@dataclass(frozen=True)
class LayerState:
    """The tokens of a layer and what is known of them; what was not given is None."""

    tokens: Tensor  # [B, T, dim]
    size: Tensor  # tokens that each stands for already, [B, T]
    prefix: int  # protected tokens at the beginning: class and distillation tokens
    received: Tensor | None  # attention that each receives, [B, T]
    keys: Tensor | None  # by which alike ones are found, [B, T, any]; the tokens where None
    score: Tensor | None  # of an oracle, larger is more important, [B, T]

    def required(self, name: str) -> Tensor:
        """`received` or `score`; a ValueError if it was not given."""
        values: Tensor | None = getattr(self, name)
        if values is None:
            raise ValueError(f"{name}: not given, expected [B, T], which this rule reads")
        return values


class Score(Protocol):
    """How important each token is, [B, T]; the largest are kept, of equal ones the earlier."""

    needs: ClassVar[str | None]

    def __call__(self, state: LayerState, generator: Generator | None) -> Tensor:
        """Scores of all tokens of a layer, [B, T]."""
        ...


@dataclass(frozen=True)
class Attended:
    """The attention that a token receives, of the class token where there is one."""

    needs: ClassVar[str | None] = "received"

    def __call__(self, state: LayerState, generator: Generator | None) -> Tensor:
        return state.required("received")


@dataclass(frozen=True)
class Oracle:
    """A `score` that the caller gives, such as whether a token carries the label."""

    needs: ClassVar[str | None] = "score"

    def __call__(self, state: LayerState, generator: Generator | None) -> Tensor:
        return state.required("score")


@dataclass(frozen=True)
class Random:
    """Random scores, which differ from image to image: the random baseline."""

    needs: ClassVar[str | None] = None

    def __call__(self, state: LayerState, generator: Generator | None) -> Tensor:
        device = state.tokens.device if generator is None else generator.device
        draw = torch.empty(state.size.shape, device=device)  # torch.rand(generator=None) may not
        return draw.uniform_(generator=generator).to(state.tokens.device)  # compile: see DropPath


@dataclass(frozen=True, eq=False)
class Clean:
    """Noisiest tokens go first: those farthest from the nearest of the known patterns."""

    patterns: Tensor
    needs: ClassVar[str | None] = None

    def __call__(self, state: LayerState, generator: Generator | None) -> Tensor:
        return -torch.cdist(state.tokens, self.patterns.to(state.tokens)).amin(2)


class Reducer(ABC):
    """A rule that makes fewer tokens of many; how many is known from how many there are.

    Images do not influence each other. Frozen dataclasses; shapes depend on no values, so all of
    them compile.
    """

    @property
    @abstractmethod
    def needs(self) -> str | None:
        """What it reads besides the tokens: `received`, `keys` or `score`."""

    @abstractmethod
    def reduce(self, state: LayerState, generator: Generator | None) -> Reduction:
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
        generator: Generator | None = None,
    ) -> Reduction:
        """Reduce the tokens [B, T, dim]; the other arguments are those of `LayerState`."""
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
        size = ones_of(tokens) if size is None else size
        return self.reduce(LayerState(tokens, size, prefix, received, keys, score), generator)


def ones_of(tokens: Tensor) -> Tensor:
    """A size of 1 for each token, in float32 or wider, since bfloat16 counts to 256."""
    wide = torch.promote_types(tokens.dtype, torch.float32)
    return tokens.new_ones(tokens.shape[:2], dtype=wide)


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


def compose_slots(slot: Tensor, later: Tensor) -> Tensor:
    """The slots after two reductions, [B, T] of [B, T] and then [B, M]."""
    return torch.where(slot < 0, -1, later.gather(1, slot.clamp(min=0)))
