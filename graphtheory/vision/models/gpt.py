"""A GPT-2-style model: every token of a sequence attends to itself and to those before it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
from graphtheory.nn.blocks import Block
from graphtheory.vision.nn.positions import LearnedPositions
from graphtheory.vision.nn.token_sets import token_causal

_STD = 0.02


class GPT(nn.Module):
    """Tokens and their places, blocks over causal sequences, an output of every token.

    `gpt` puts the parts together. Sequences may end early: with a mask the tokens that are left out
    are no nodes at all, so nothing is computed for them, wherever they stand.

    Args:
        embed: Makes vectors [n, dim] of ids [n] or of features [n, channels].
        position: Makes vectors [n, dim] of places, such as `LearnedPositions`.
        blocks: First to last.
        head: Takes the last vectors [n, dim].
        norm: Of the last vectors.

    Shapes:
        inputs [B, T] ids, or [B, T, channels] features; mask bool or 0 and 1 [B, T], true for
        tokens; default all -> [B, T, out], zeros where the mask is false.

    Raises:
        ValueError: A mask of another shape; inputs of neither shape, or without a token.

    Source:
        Radford et al. (2019), Language models are unsupervised multitask learners. Differs: no
        dropout of features; places count the tokens that the mask leaves, so padding may stand on
        either side.

    Example:
        >>> model = gpt(16, depth=2, heads=2, vocabulary=50, length=32)
        >>> model(torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])).shape
        torch.Size([2, 4, 50])
        >>> curves = gpt(16, depth=2, heads=2, in_channels=3, out_channels=1, length=32)
        >>> curves(torch.randn(2, 7, 3)).shape
        torch.Size([2, 7, 1])
    """

    def __init__(
        self, embed: nn.Module, position: nn.Module, blocks: Sequence[Block], head: nn.Module,
        *, norm: nn.Module,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed, self.position, self.head = embed, position, head
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw the weights anew: deviation 0.02, in maps onto the residual divided by (2 depth)^½.

        Source: Radford et al. (2019), section 2.3.
        """
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                part.weight.normal_(0, _STD, generator=generator)
            if isinstance(part, nn.Linear) and part.bias is not None:
                part.bias.zero_()
        for name, weight in self.blocks.named_parameters():
            if name.endswith(("attention.out.weight", "mlp.fc2.weight")):
                weight.mul_((2 * len(self.blocks)) ** -0.5)
        if isinstance(self.position, LearnedPositions):
            self.position.table.normal_(0, _STD, generator=generator)

    def forward(
        self, inputs: Tensor, mask: Tensor | None = None, *, generator: Generator | None = None
    ) -> Tensor:
        """Outputs of all tokens; `generator` is the source of the dropout of attention."""
        mask = None if mask is None else mask.bool()
        self._check(inputs, mask)
        batch, tokens = inputs.shape[:2]
        kept = None if mask is None else mask.flatten().nonzero().flatten()
        x, neighborhood = self._embedded(inputs, mask, kept)
        for block in self.blocks:
            x = block(x, neighborhood, generator=generator)
        out = self.head(self.norm(x))
        if kept is not None:
            out = out.new_zeros(batch * tokens, out.size(1)).index_copy(0, kept, out)
        return out.view(batch, tokens, -1)

    def attention_maps(self, inputs: Tensor, mask: Tensor | None = None) -> list[AttentionMap]:
        """Who attended to whom in each layer, and with which weights [E, heads]; no dropout.

        Nodes are the tokens that the mask leaves, those of the first sequence first.
        """
        return attention_maps(self, inputs, mask)

    def _check(self, inputs: Tensor, mask: Tensor | None) -> None:
        if inputs.dim() != (3 if inputs.is_floating_point() else 2):
            raise ValueError(
                f"inputs: {inputs.dtype} of shape {tuple(inputs.shape)}, expected ids [batch, "
                "tokens] or features [batch, tokens, channels]"
            )
        if not inputs.shape[:2].numel():
            raise ValueError(
                f"inputs: shape {tuple(inputs.shape)}, expected a sequence and a token at least"
            )
        if mask is not None and mask.shape != inputs.shape[:2]:
            expected = tuple(inputs.shape[:2])
            raise ValueError(f"mask: shape {tuple(mask.shape)}, expected {expected}")

    def _embedded(
        self, inputs: Tensor, mask: Tensor | None, kept: Tensor | None
    ) -> tuple[Tensor, Neighborhood]:
        """Vectors of the tokens, [nodes, dim], and which tokens each one attends to."""
        batch, tokens = inputs.shape[:2]
        if mask is None or kept is None:
            x = self.embed(inputs.flatten(0, 1))
            place = self.position(torch.arange(tokens, device=inputs.device))
            x = (x.view(batch, tokens, -1) + place.to(x.dtype)).flatten(0, 1)
            return x, token_causal((tokens,) * batch, x.device)
        counted = mask.long().cumsum(1)
        place = (counted - 1).flatten()[kept]
        x = self.embed(inputs.flatten(0, 1)[kept])
        x = x + self.position(place).to(x.dtype)
        return x, token_causal(tuple(counted[:, -1].tolist()), x.device)


def gpt_block(
    dim: int, heads: int, *, mlp_ratio: float = 4.0, norm: bool = True, eps: float = 1e-5,
    dropout: float = 0.0,
) -> Block:  # fmt: skip
    """A block as GPT-2 has them; with `mlp_ratio` 0 it is attention alone."""
    return Block(
        Attention(dim, heads, dropout=dropout), mlp_ratio=mlp_ratio, norm=norm, eps=eps,
        act=nn.GELU(approximate="tanh"),
    )  # fmt: skip


def gpt(
    dim: int,
    depth: int,
    heads: int,
    *,
    vocabulary: int | None = None,
    in_channels: int | None = None,
    out_channels: int | None = None,
    length: int = 1024,
    position: nn.Module | None = None,
    **block: Any,
) -> GPT:
    """A GPT-2-style model of equal blocks.

    Args:
        dim: Features of a token.
        depth: Blocks.
        heads: Attention heads of a block.
        vocabulary: Kinds of tokens, for ids; the head then has the weights of the embedding.
        in_channels: Features of an input, for embedded inputs.
        out_channels: Outputs of a token, of embedded inputs; default `in_channels`.
        length: Places, where `position` is not given and so learned.
        position: Vectors of places.
        block: Options of `gpt_block`, such as ``norm=False``.

    Raises:
        ValueError: Not exactly one of `vocabulary` and `in_channels`; a number below 1.
    """
    if (vocabulary is None) == (in_channels is None):
        given = f"vocabulary={vocabulary}, in_channels={in_channels}"
        raise ValueError(f"vocabulary: got {given}, expected exactly one of them")
    counts = {"depth": depth, "vocabulary": vocabulary, "in_channels": in_channels,
              "out_channels": out_channels}  # fmt: skip
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name}: got {count}, expected at least 1")
    position = LearnedPositions(length, dim) if position is None else position
    norm = nn.LayerNorm(dim) if block.get("norm", True) else nn.Identity()
    blocks = [gpt_block(dim, heads, **block) for _ in range(depth)]
    if in_channels is not None:
        out = nn.Linear(dim, out_channels or in_channels)
        return GPT(nn.Linear(in_channels, dim), position, blocks, out, norm=norm)
    assert vocabulary is not None
    embed, head = nn.Embedding(vocabulary, dim), nn.Linear(dim, vocabulary, bias=False)
    head.weight = embed.weight
    return GPT(embed, position, blocks, head, norm=norm)


gpt2_small = partial(gpt, 768, 12, 12, vocabulary=50_257)
"""GPT-2 of 124 million parameters: width 768, 12 blocks of 12 heads. Options as in `gpt`."""
