"""A vision transformer that goes on with fewer tokens after some of its blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from graphtheory.models.vit import ViT
from graphtheory.nn.attention import Attention
from graphtheory.nn.blocks import Block
from graphtheory.nn.reduce import Reducer, Reduction, follow, pool
from graphtheory.nn.token_sets import token_bipartite, token_cliques


class SizeBias(nn.Module):
    """A sender that stands for s tokens counts s times: log s for each edge and head.

    Args:
        heads: Heads.

    Shapes: log of the sender's size by edge [num_edges] -> [num_edges, heads].
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, relation: Tensor) -> Tensor:
        """The bias."""
        return relation[:, None].expand(-1, self.heads).contiguous()


class ReducedViT(ViT):
    """A `ViT` whose tokens are reduced after given blocks; a copy with the same weights.

    State dicts are those of the `ViT`. Sizes of tensors hang on the sizes of the images alone.

    Args:
        model: Stays as it is.
        after: The rule after the block of that number, the first one being 1; the rule of 0 is
            applied to the tokens that the first block gets, and reads neither attention nor keys.
        prefix: Protected tokens at the beginning; None are those that the model puts before the
            patches. The first of them is the one whose attention counts as received; without any
            it is the mean over all tokens.
        proportional: Whether a token counts in attention as many times as tokens it stands for.

    Raises:
        TypeError: Another kind of model, or something else than a rule.
        ValueError: A number of a block that does not exist, a rule before the first block that
            reads what only a block has, or a `proportional` model whose attention has a bias.

    Source:
        Liang et al. (2022), EViT; Bolya et al. (2023), Token Merging, with `proportional`.
        Differs: tokens are reduced behind a block, there between its attention and its MLP;
        attention and keys are those of the same block. They are computed once more, the attention
        of the class token alone.

    Example:
        >>> from graphtheory.models import vit_pico
        >>> from graphtheory.nn import Merge
        >>> model = ReducedViT(vit_pico(out_channels=10), {1: Merge(16), 2: Merge(16)})
        >>> images = torch.randn(2, 3, 32, 32)
        >>> model(images).shape, model.reduced(images).tokens.shape
        (torch.Size([2, 10]), torch.Size([2, 33, 64]))
    """

    def __init__(
        self,
        model: ViT,
        after: Mapping[int, Reducer],
        *,
        prefix: int | None = None,
        proportional: bool = False,
    ) -> None:
        nn.Module.__init__(self)  # the weights are drawn already
        if not isinstance(model, ViT):
            raise TypeError(f"model: got {type(model).__name__}, expected a ViT")
        for rule in after.values():
            if not isinstance(rule, Reducer):
                raise TypeError(f"after: got {type(rule).__name__}, expected Keep, Fuse or Merge")
        parts = copy.deepcopy(model)
        self.embed, self.blocks = parts.embed, parts.blocks
        self.norm, self.head = parts.norm, parts.head
        wrong = [i for i in after if not 0 <= i <= len(self.blocks)]
        if wrong:
            raise ValueError(f"after: blocks {wrong}, expected 0..{len(self.blocks)}")
        if 0 in after and after[0].needs not in (None, "score"):
            raise ValueError(f"after: {after[0]} reads {after[0].needs}, which block 0 has not")
        self.after, self.proportional = dict(after), proportional
        self.prefix = len(self.embed.prefix) if prefix is None else prefix
        if proportional:
            for layer in self._layers():
                if layer.bias is not None:
                    raise ValueError("proportional: attention has a bias, expected none")
                layer.bias = SizeBias(layer.heads)
        self.train(model.training)

    def tokens(
        self,
        images: Tensor,
        *,
        score: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Normalized tokens [B, M, dim] that are left; `score` as in `reduced`."""
        return self.reduced(images, score=score, generator=generator).tokens

    def reduced(
        self,
        images: Tensor,
        *,
        score: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Reduction:
        """Normalized tokens that are left, their sizes, and where each token of the image went.

        ``unmerge(found.tokens, found.slot)[:, prefix:]`` lies on the grid of the patches again.

        Args:
            images: [B, C, H, W].
            score: For a rule by `Oracle`, [B, T] of all tokens, those without a place first.
            generator: Source of stochastic depth, dropout and random rules.
        """
        x, grid = self.embed(images)
        x = x.view(grid.count, -1, x.size(1))
        start = torch.arange(x.size(1), device=x.device).expand(grid.count, -1)
        now = Reduction(x, x.new_ones(x.shape[:2]), start)
        if 0 in self.after:
            now, score = self._less(now, self.after[0](x, score=score, prefix=self.prefix,
                                                       generator=generator), score)  # fmt: skip
        for i, block in enumerate(self.blocks, 1):
            assert isinstance(block, Block)
            x, size = now.tokens, now.size
            nodes, relation = x.flatten(0, 1), self._log_size(size, x.size(1))
            neighborhood = token_cliques(len(x), x.size(1), x.device)
            y = block(nodes, neighborhood, relation=relation, images=len(x), generator=generator)
            y, rule = y.view_as(x), self.after.get(i)
            if rule is None:
                now = now._replace(tokens=y)
                continue
            seen = block.norm1(nodes)
            found = rule(
                y, size=size, score=score, prefix=self.prefix, generator=generator,
                received=self._received(block, seen, size) if rule.needs == "received" else None,
                keys=_keys(block.attention, seen).view(*x.shape[:2], -1)
                if rule.needs == "keys" else None,
            )  # fmt: skip
            now, score = self._less(now, found, score)
        return now._replace(tokens=self.norm(now.tokens))

    @staticmethod
    def _less(
        before: Reduction, found: Reduction, score: Tensor | None
    ) -> tuple[Reduction, Tensor | None]:
        """The reduction of both one after the other, and the score of what is left."""
        if score is not None:
            many = found.tokens.size(1)
            score = pool(score * before.size, found.slot, many) / found.size
        return found._replace(slot=follow(before.slot, found.slot)), score

    def _layers(self) -> list[Attention]:
        return [layer for layer in self.blocks.modules() if isinstance(layer, Attention)]

    def _log_size(self, size: Tensor, receivers: int) -> Tensor | None:
        """The log of the sender's size by edge, of `receivers` rows an image."""
        if not self.proportional:
            return None
        return size.log()[:, None].expand(-1, receivers, -1).flatten()

    def _received(self, block: Block, seen: Tensor, size: Tensor) -> Tensor:
        """Attention that each token receives, heads averaged, [B, T]."""
        count, tokens = size.shape
        rows = 1 if self.prefix else tokens
        chosen = seen.view(count, tokens, -1)[:, :rows].flatten(0, 1)
        weights = block.attention.weights(
            chosen, token_bipartite(count, rows, tokens, seen.device),
            senders=seen, relation=self._log_size(size, rows),
        )  # fmt: skip
        return weights.view(count, rows, tokens, -1).mean((1, 3))


def _keys(attention: Attention, seen: Tensor) -> Tensor:
    """Keys of the tokens, heads averaged, [N, head_dim]."""
    inner = attention.heads * attention.head_dim
    part = slice(inner, 2 * inner)
    bias = attention.qkv.bias
    keys = nn.functional.linear(
        seen, attention.qkv.weight[part], None if bias is None else bias[part]
    )
    return keys.view(len(seen), attention.heads, -1).mean(1)
