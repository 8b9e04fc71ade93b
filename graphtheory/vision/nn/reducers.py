"""Rules of token reduction: keep, fuse or merge tokens of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from graphtheory.patterns import TopK
from graphtheory.patterns.scores import largest_first
from graphtheory.vision.nn.reduce import Attended, LayerState, Reducer, Reduction, Score, pool


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
        kept, slot = _kept(state, self.k, self.by(state, generator))
        return Reduction(_take(state.tokens, kept), state.size.gather(1, kept), slot, kept)


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
        kept, slot = _kept(state, self.k, received)
        tokens, size = _take(state.tokens, kept), state.size.gather(1, kept)
        if kept.size(1) == slot.size(1):
            return Reduction(tokens, size, slot, kept)
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


def _kept(state: LayerState, k: int | float, score: Tensor) -> tuple[Tensor, Tensor]:
    """Who stays, ascending int64 [B, M], and the slots [B, T]."""
    count, tokens = score.shape
    many = TopK(k).count(tokens - state.prefix)
    order = largest_first(score[:, state.prefix :], many)
    first = torch.arange(state.prefix, device=score.device).expand(count, -1)
    kept = torch.cat([first, state.prefix + order.sort(1).values], 1)
    new = torch.arange(kept.size(1), device=score.device).expand_as(kept)
    none = torch.full((count, tokens), -1, dtype=torch.int64, device=score.device)
    return kept, none.scatter(1, kept, new)


def _take(tokens: Tensor, kept: Tensor) -> Tensor:
    return tokens.gather(1, kept[..., None].expand(-1, -1, tokens.size(2)))
