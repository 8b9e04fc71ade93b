"""Projection heads of contrastive learning: what stands between the features and the loss."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import Attention
from graphtheory.nn.blocks import Block
from graphtheory.vision.nn.token_sets import token_cliques


class MLPHead(nn.Module):
    """Linear maps, batch norm and ReLU between them; with depth 1 a linear head.

    Args:
        in_channels: Features of a sample.
        hidden_channels: Width between the maps.
        out_channels: What the loss compares.
        depth: Linear maps, at least 1.

    Shapes:
        x [B, in_channels] -> [B, out_channels].

    Raises:
        ValueError: A number below 1.

    Source:
        Chen et al. (2020), A simple framework for contrastive learning, g(.) of depth 2.

    Example:
        >>> MLPHead(16, 32, 8)(torch.randn(4, 16)).shape
        torch.Size([4, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int = 640,
        out_channels: int = 128,
        depth: int = 2,
    ) -> None:
        super().__init__()
        _check_counts(
            in_channels=in_channels, hidden_channels=hidden_channels, out_channels=out_channels,
            depth=depth,
        )  # fmt: skip
        widths = [in_channels, *[hidden_channels] * (depth - 1)]
        layers: list[nn.Module] = []
        for before, width in pairwise(widths):
            layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], out_channels))
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> Tensor:
        _check_features(x)
        return self.layers(x)


class TransformerHead(nn.Module):
    r"""A transformer over the batch: its samples are the nodes of one clique, without positions.

    .. math:: z = W_o \operatorname{LN}(x_L), \qquad x_l = \mathrm{Block}_l(x_{l-1}), \qquad
        x_0 = W_i f

    Every sample attends to every other and to itself, so that z_i depends on the whole batch, and
    permuting the batch permutes z. Features f, which an evaluation takes, do not. In a batch of one
    a sample attends to itself. On several devices a clique is the batch of one of them.

    A module from [B, in_channels] to [B, out_channels] like the heads of lightly, whose place it
    can take. Called once on both views side by side it makes them one clique, as the paper does;
    called once for each view, as lightly's examples do, it makes two.

    Args:
        in_channels: Features of a sample.
        out_channels: What the loss compares; None takes `width` and no W_o.
        width: Features of a node within the blocks.
        depth: Blocks, at least 1.
        heads: Attention heads of a block.
        head_dim: Features of a head; None is width / heads.
        hidden_channels: Width of the FFN of a block; None is 4 times `width`.
        dropout: Probability with which an attention weight is dropped in training.
        norm_first: Whether norms stand in front of the branches of a block, or behind their sums;
            then there is none after the last block.

    Shapes:
        x [B, in_channels] -> [B, out_channels].

    Raises:
        ValueError: A number below 1, or heads that do not divide the width without `head_dim`.

    Source:
        Li and Pimentel-Alarcon (2024), Deep Fusion, section "Transformer Projection Head". The
        text does not place the norms.

    Example:
        >>> head = TransformerHead(16, 8, width=32, depth=2, heads=4)
        >>> head(torch.randn(6, 16)).shape
        torch.Size([6, 8])
        >>> out, attention = head.with_attention(torch.randn(6, 16))
        >>> [tuple(weights.shape) for weights in attention]
        [(4, 6, 6), (4, 6, 6)]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        *,
        width: int = 128,
        depth: int = 5,
        heads: int = 8,
        head_dim: int | None = None,
        hidden_channels: int | None = None,
        dropout: float = 0.0,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.out_channels = width if out_channels is None else out_channels
        hidden = 4 * width if hidden_channels is None else hidden_channels
        _check_counts(
            in_channels=in_channels, out_channels=self.out_channels, width=width, depth=depth,
            hidden_channels=hidden,
        )  # fmt: skip
        self.inward = nn.Linear(in_channels, width)
        self.blocks = nn.ModuleList(
            Block(
                Attention(width, heads, head_dim=head_dim, dropout=dropout),
                mlp_ratio=hidden / width,
                norm_first=norm_first,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width) if norm_first else nn.Identity()
        self.out = nn.Identity() if out_channels is None else nn.Linear(width, out_channels)

    def forward(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Project the batch; `generator` is the source of the dropout."""
        x, clique = self._nodes(x)
        for block in self.blocks:
            x = block(x, clique, generator=generator)
        return self.out(self.norm(x))

    def with_attention(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """`forward` without dropout, and who attended to whom in each block, in the same pass.

        Returns:
            The projections, and of each block weights [heads, B, B]: row i is what sample i takes,
            and sums to 1.
        """
        x, clique = self._nodes(x)
        maps = []
        for block in self.blocks:
            assert isinstance(block, Block)
            x, weights = block.with_weights(x, clique)
            maps.append(weights.unflatten(0, (len(x), len(x))).permute(2, 0, 1))
        return self.out(self.norm(x)), maps

    def _nodes(self, x: Tensor) -> tuple[Tensor, Neighborhood]:
        _check_features(x)
        return self.inward(x), token_cliques(1, len(x), x.device)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}: got {count}, expected 1 or more")


def _check_features(x: Tensor) -> None:
    if x.dim() != 2:
        raise ValueError(f"x: shape {tuple(x.shape)}, expected [batch, in_channels]")
