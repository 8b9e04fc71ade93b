"""A vision transformer of images that say themselves which of their patches matter."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from graphtheory.models.reduced_vit import ReducedViT


class ScoredViT(nn.Module):
    """A `ReducedViT` whose oracle reads the last channel of the images.

    The score of a patch is the mean of that channel over its pixels, so that pictures pass through
    any loop that trains on images. The channel itself is not seen by the network.

    Args:
        vit: Its rules may be by `nn.reduce.Oracle`.

    Shapes:
        images [B, C + 1, H, W] -> what the head gives.

    Example:
        >>> from graphtheory.models import vit_pico
        >>> from graphtheory.nn import Keep
        >>> from graphtheory.nn.reduce import Oracle
        >>> model = ScoredViT(ReducedViT(vit_pico(out_channels=10), {0: Keep(16, Oracle())}))
        >>> model(torch.randn(2, 4, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, vit: ReducedViT) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: Tensor) -> Tensor:
        """What the head gives for each image."""
        return self.vit.head(self.vit.tokens(images[:, :-1], score=self.score(images)))

    @torch.no_grad()
    def score(self, images: Tensor) -> Tensor:
        """The score of each token [B, T]; of those without a place, which always stay, 0."""
        patches = avg_pool2d(images[:, -1:], self.vit.embed.patch.patch_size).flatten(1)
        return pad(patches, (len(self.vit.embed.prefix), 0))
