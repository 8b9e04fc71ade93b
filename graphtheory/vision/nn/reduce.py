"""Token reduction: rules that keep, fuse or merge tokens of an image, and the way back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from graphtheory.patterns import TopK
from graphtheory.patterns.scores import largest_first


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
        self, tokens: Tensor, received: Tensor | None = None, *, size: Tensor | None = None,
        keys: Tensor | None = None, score: Tensor | None = None, prefix: int = 1,
        generator: Generator | None = None,
    ) -> Reduction:  # fmt: skip
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


@dataclass(frozen=True)
class Keep(Reducer):
    """Leave all but the k most important patches behind.

    Args:
        k: A count, or a share of the patches, as in `TopK`; the prefix stays besides.
        by: `Attended()`, `Random()`, `Oracle()` or `Clean(patterns)` of `nn.reduce`.

    Source:
        Li (2024), chapter 2, the sparsifiers; by attention Liang et al. (2022), EViT, without the
        fused token.

    Example:
        >>> tokens, received = torch.tensor([[[9.0], [1], [2], [3]]]), torch.tensor([[0, 3, 1, 2]])
        >>> Keep(2)(tokens, received).slot.tolist()
        [[0, 1, -1, 2]]
    """

    k: int | float = 0.7
    by: Score = field(default_factory=Attended)

    def __post_init__(self) -> None:
        TopK(self.k)

    @property
    def needs(self) -> str | None:
        return self.by.needs

    def reduce(self, state: LayerState, generator: Generator | None) -> Reduction:
        return _kept(state, self.k, self.by(state, generator))


@dataclass(frozen=True)
class Fuse(Reducer):
    r"""Keep the k patches with most attention, and one token made of the others.

    .. math:: x_{\text{fused}} = \sum_{i \text{ not kept}} a_i x_i

    a_i is the attention received, as it is: it does not sum to 1. Where nothing is left over there
    is no fused token. It is the last token, and a patch like others for a reduction that follows.

    Args:
        k: A count, or a share of the patches, as in `TopK`.

    Source: Liang et al. (2022), EViT, section 3.2.
    """

    k: int | float = 0.7
    needs = "received"

    def __post_init__(self) -> None:
        TopK(self.k)

    def reduce(self, state: LayerState, generator: Generator | None) -> Reduction:
        received = state.required("received")
        tokens, size, slot, kept = found = _kept(state, self.k, received)
        if kept.size(1) == slot.size(1):
            return found
        rest = slot < 0
        share = torch.where(rest, received, 0).to(tokens.dtype)
        tokens = torch.cat([tokens, share[:, None] @ state.tokens], 1)
        size = torch.cat([size, torch.where(rest, state.size, 0).sum(1, keepdim=True)], 1)
        slot = torch.where(rest, kept.size(1), slot)
        return Reduction(tokens, size, slot, torch.nn.functional.pad(kept, (0, 1), value=-1))


@dataclass(frozen=True)
class Merge(Reducer):
    """Merge the r most alike pairs of patches, one of an even and one of an odd place.

    Each patch at an even place finds the odd one whose key has the largest cosine; the r best pairs
    become their mean, weighted by size. Several even ones may join the same odd one, at whose
    place the result lies. At most all even patches can go, and none without an odd one.

    Args:
        r: Tokens that go.

    Raises:
        ValueError: r below 0.

    Source:
        Bolya et al. (2023), Token Merging, section 3. Differs: tokens stay in their order; `keys`
        are the tokens themselves unless given.

    Example:
        >>> tokens = torch.tensor([[[9.0, 9], [1, 0], [0, 1], [0, 3], [4, 4]]])
        >>> merged = Merge(1)(tokens)
        >>> merged.slot.tolist(), merged.size.tolist()
        ([[0, 1, 2, 2, 3]], [[1.0, 1.0, 2.0, 1.0]])
    """

    r: int = 8
    needs = "keys"

    def __post_init__(self) -> None:
        if not isinstance(self.r, int) or self.r < 0:
            raise ValueError(f"r: got {self.r!r}, expected a number of tokens from 0 up")

    def reduce(self, state: LayerState, generator: Generator | None) -> Reduction:
        gone, into = self._pairs(state)
        count, tokens = state.tokens.shape[:2]
        stays = torch.ones(count, tokens, dtype=torch.bool, device=gone.device)
        stays = stays.scatter(1, gone, False)
        many, own = tokens - gone.size(1), stays.cumsum(1) - 1
        slot = own.scatter(1, gone, own.gather(1, into))
        size = state.size.new_zeros(count, many).scatter_add(1, slot, state.size)
        share = (state.size / size.gather(1, slot)).to(state.tokens.dtype)
        place = largest_first(stays.int(), many)
        shares = state.tokens * share[..., None]
        if shares.is_cuda:
            left = pool(_take(shares, gone), slot.gather(1, gone), many)
            return Reduction(_take(shares, place) + left, size, slot, place)
        return Reduction(pool(shares, slot, many), size, slot, place)

    def _pairs(self, state: LayerState) -> tuple[Tensor, Tensor]:
        """Tokens that go, and the one that each goes into; int64 [B, r]."""
        keys = state.tokens if state.keys is None else state.keys
        keys = torch.nn.functional.normalize(keys[:, state.prefix :].detach().float(), dim=2)
        patches = keys.size(1)
        count = min(self.r, -(-patches // 2)) if patches > 1 else 0
        if not count:
            none = torch.empty(len(keys), 0, dtype=torch.int64, device=keys.device)
            return none, none
        with torch.autocast(keys.device.type, enabled=False):  # 8 bits make many cosines equal
            best, partner = (keys[:, ::2] @ keys[:, 1::2].transpose(1, 2)).max(2)
        gone = largest_first(best, count)
        return state.prefix + 2 * gone, state.prefix + 2 * partner.gather(1, gone) + 1


def decreasing(r: int, layers: int) -> list[Merge]:
    """One `Merge` per layer, from 2 r tokens linearly down to none, r in the mean.

    Args:
        r: Mean number of tokens that go in a layer.
        layers: Number of layers.

    Raises:
        ValueError: If r is below 0.

    Source: Bolya et al. (2023), Token Merging, section 4.1, the decreasing schedule.

    Example:
        >>> [rule.r for rule in decreasing(4, layers=5)]
        [8, 6, 4, 2, 0]
    """
    last = max(layers - 1, 1)
    return [Merge(2 * r * (last - i) // last) for i in range(layers)]


def _kept(state: LayerState, k: int | float, score: Tensor) -> Reduction:
    """The prefix and the k patches of the largest scores, in their order."""
    count, tokens = score.shape
    many = TopK(k).count(tokens - state.prefix)
    order = largest_first(score[:, state.prefix :], many)
    first = torch.arange(state.prefix, device=score.device).expand(count, -1)
    kept = torch.cat([first, state.prefix + order.sort(1).values], 1)
    new = torch.arange(kept.size(1), device=score.device).expand_as(kept)
    none = torch.full((count, tokens), -1, dtype=torch.int64, device=score.device)
    slot = none.scatter(1, kept, new)
    return Reduction(_take(state.tokens, kept), state.size.gather(1, kept), slot, kept)


def _take(tokens: Tensor, kept: Tensor) -> Tensor:
    return tokens.gather(1, kept[..., None].expand(-1, -1, tokens.size(2)))
