"""A vision transformer that goes on with fewer tokens from some of its blocks on."""

import copy
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from graphtheory.nn.attention import Attention
from graphtheory.nn.blocks import Block
from graphtheory.vision.models.vit import ViT
from graphtheory.vision.nn.reduce import Reducer, Reduction, compose_slots, ones_of, pool
from graphtheory.vision.nn.token_sets import token_bipartite, token_cliques


class SizeBias(nn.Module):
    """A source that stands for s tokens counts s times: log s for each edge and head.

    Shapes: log of the source's size by edge [num_edges] -> [num_edges, heads].
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, relation: Tensor) -> Tensor:
        bias = relation[:, None].expand(-1, self.heads)
        return bias.contiguous() if bias.is_cpu else bias  # dense kernels of a GPU read one head's


class ReducedViT(ViT):
    """A `ViT` whose tokens are reduced in given blocks; a copy with the same weights.

    State dicts are those of the `ViT`. Sizes of tensors depend on the sizes of the images alone.

    Args:
        model: Stays as it is.
        after: The rule after the attention of the block of that number, the first one being 1; the
            rule of 0 is applied to the tokens before the first block, and reads neither attention
            nor keys.
        prefix: Protected tokens at the beginning; None are those that the model puts before the
            patches. The first of them is the one whose attention counts as received; without any
            it is the mean over all tokens.
        proportional: Whether a token counts in attention as many times as tokens it stands for.
        inside: Whether tokens are reduced between attention and MLP, as published. False: after the
            block, which computes its MLP on all tokens and the keys a second time.

    Raises:
        TypeError: Another kind of model, or something else than a rule.
        ValueError: A number of a block that does not exist, a rule before the first block that
            reads what only a block has, or a `proportional` model whose attention has a bias.

    Source:
        Liang et al. (2022), EViT; Bolya et al. (2023), Token Merging, with `proportional`.
        Differs: the class token's attention weights are computed from its query and all keys a
        second time, because fused kernels do not return them.

    Example:
        >>> from graphtheory.vision.models import vit_pico
        >>> from graphtheory.vision.nn import Merge
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
        inside: bool = True,
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
        self.after, self.proportional, self.inside = dict(after), proportional, inside
        self.prefix = len(self.embed.prefix) if prefix is None else prefix
        if proportional:
            for layer in self.blocks.modules():
                if not isinstance(layer, Attention):
                    continue
                if layer.bias is not None:
                    raise ValueError("proportional: attention has a bias, expected none")
                layer.bias = SizeBias(layer.heads)
        self.train(model.training)

    def tokens(
        self, images: Tensor, *, score: Tensor | None = None, generator: Generator | None = None
    ) -> Tensor:
        return self.reduced(images, score=score, generator=generator).tokens

    def reduced(
        self, images: Tensor, *, score: Tensor | None = None, generator: Generator | None = None
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
        now = Reduction(x, ones_of(x), start, start)
        if 0 in self.after:
            now, score = self._less(now, self.after[0](x, score=score, prefix=self.prefix,
                                                       generator=generator), score)  # fmt: skip
        for i, block in enumerate(self.blocks, 1):
            assert isinstance(block, Block)
            now, score = self._step(block, self.after.get(i), now, score, generator)
        return now._replace(tokens=self.norm(now.tokens))

    def _step(
        self, block: Block, rule: Reducer | None, now: Reduction, score: Tensor | None,
        generator: Generator | None,
    ) -> tuple[Reduction, Tensor | None]:  # fmt: skip
        x, images = now.tokens, len(now.tokens)
        nodes, relation = x.flatten(0, 1), self._log_size(now.size, x.size(1))
        nb = token_cliques(images, x.size(1), x.device)
        inside = self.inside and rule is not None
        parts: tuple[Tensor, Tensor, Tensor] | None = None
        if inside:
            parts = block.attention.project(block.norm1(nodes))
            out = block.attention.attend(*parts, nb, relation=relation, generator=generator)
            y = nodes + block.drop_path(block.scale1(out), images, generator)
        else:
            y = block(nodes, nb, relation=relation, images=images, generator=generator)
        if rule is None:
            return now._replace(tokens=y.view_as(x)), score
        found = rule(
            y.view_as(x), size=now.size, score=score, prefix=self.prefix, generator=generator,
            **self._seen(rule.needs, block, nodes, now.size, parts),
        )  # fmt: skip
        now, score = self._less(now, found, score)
        if inside:
            z = block.after_attention(now.tokens.flatten(0, 1), images, generator)
            now = now._replace(tokens=z.view_as(now.tokens))
        return now, score

    @staticmethod
    def _less(
        before: Reduction, found: Reduction, score: Tensor | None
    ) -> tuple[Reduction, Tensor | None]:
        """Both reductions one after the other, and the score of the tokens that are left."""
        if score is not None:
            many = found.tokens.size(1)
            score = pool(score * before.size, found.slot, many) / found.size
        slot = compose_slots(before.slot, found.slot)
        place = compose_slots(found.place, before.place)
        return found._replace(slot=slot, place=place), score

    def _log_size(self, size: Tensor, targets: int) -> Tensor | None:
        """The log of the source's size by edge, of `targets` rows an image."""
        if not self.proportional:
            return None
        return size.log()[:, None].expand(-1, targets, -1).flatten()

    def _seen(
        self, needs: str | None, block: Block, nodes: Tensor, size: Tensor,
        parts: tuple[Tensor, Tensor, Tensor] | None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """What a rule reads of a block: keys, or the attention received, heads averaged.

        `parts` are query, key and value if the block has kept them.
        """
        count, tokens = size.shape
        layer = block.attention
        if needs == "keys":
            keys = _keys(layer, block.norm1(nodes)) if parts is None else parts[1].mean(1)
            return {"keys": keys.view(count, tokens, -1)}
        if needs != "received":
            return {}
        rows = 1 if self.prefix else tokens
        if parts is None:
            normed = block.norm1(nodes)
            query, key, _ = layer.project(_first(normed, count, rows), normed)
        else:
            query, key = _first(parts[0], count, rows), parts[1]
        nb = token_bipartite(count, rows, tokens, nodes.device)
        bias = None if layer.bias is None else layer.bias(self._log_size(size, rows))
        weights = layer.pattern.weights(query, key, nb, bias)
        return {"received": weights.view(count, rows, tokens, -1).mean((1, 3))}


def _first(nodes: Tensor, count: int, rows: int) -> Tensor:
    """The first nodes of each of `count` images, [count * rows, ...]."""
    return nodes.unflatten(0, (count, -1))[:, :rows].flatten(0, 1)


def _keys(attention: Attention, seen: Tensor) -> Tensor:
    """Keys of the tokens, heads averaged, [N, head_dim]."""
    inner = attention.heads * attention.head_dim
    part = slice(inner, 2 * inner)
    weight, bias = attention.qkv.weight, attention.qkv.bias
    keys = nn.functional.linear(seen, weight[part], None if bias is None else bias[part])
    return keys.view(len(seen), attention.heads, -1).mean(1)
