"""Images in any of the usual forms as one tensor of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

DEEP = {"I", "F", "I;16", "I;16B", "I;16L"}
"""PIL's modes of more than 8 bits a channel."""
GRAY = {"1", "L"}
"""PIL's modes of one channel."""
_CHANNELS = (1, 3)
_LEVELS = 255


def as_pixels(images: Any) -> Tensor:
    """Images as bytes [N, C, H, W], 1 or 3 channels, of one size.

    Bytes are taken as they are, floating numbers 0..1 are multiplied by 255 and rounded. Of an
    array both [C, H, W] and [H, W, C] are understood, where one of the two has 1 or 3 channels;
    where both have, channels come first. PIL images of 8 bits become gray where all of them are
    gray, and RGB otherwise.

    Args:
        images: A tensor or an array [N, C, H, W], [N, H, W, C] or [N, H, W]; or a sequence of PIL
            images, or of tensors or arrays without the first axis.

    Returns:
        uint8 [N, C, H, W]; of a tensor of that form, the tensor itself.

    Raises:
        TypeError: If the images are of another kind, or of numbers of another type.
        ValueError: If there is no image, if sizes differ, if the axes are others, or if a floating
            number is outside 0..1.

    Example:
        >>> as_pixels([Image.new("RGB", (8, 4))]).shape
        torch.Size([1, 3, 4, 8])
        >>> as_pixels(np.zeros((2, 8, 8), np.uint8)).shape
        torch.Size([2, 1, 8, 8])
    """
    if isinstance(images, Image.Image):
        raise TypeError("images: got one PIL image, expected a sequence, such as [image]")
    if isinstance(images, Sequence) and not isinstance(images, str):
        images = _stacked(images)
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor):
        raise TypeError(
            f"images: got {type(images).__name__}, expected a tensor, an array, or a sequence of "
            "PIL images, tensors or arrays"
        )
    return _channels_first(_bytes(images))


def _stacked(images: Sequence[Any]) -> Tensor:
    if not images:
        raise ValueError("images: got none, expected one or more")
    if all(isinstance(image, Image.Image) for image in images):
        return _from_pil(images)
    tensors = [torch.as_tensor(image) for image in images]
    shapes = {tuple(image.shape) for image in tensors}
    if len(shapes) > 1:
        raise ValueError(f"images: of shapes {sorted(shapes)[:3]}, expected one for all")
    return torch.stack(tensors)


def _from_pil(images: Sequence[Any]) -> Tensor:
    sizes = sorted({image.size for image in images})
    if len(sizes) > 1:
        raise ValueError(
            f"images: {len(sizes)} sizes, such as {sizes[0]} and {sizes[-1]} pixels, expected one; "
            "PIL.ImageOps.fit makes them equal"
        )
    modes = {image.mode for image in images}
    if modes & DEEP:
        raise TypeError(f"images: PIL mode {min(modes & DEEP)}, expected 8 bits a channel")
    converted = [np.asarray(image.convert("L" if modes <= GRAY else "RGB")) for image in images]
    return torch.from_numpy(np.stack(converted))


def _bytes(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise TypeError(f"images: dtype {images.dtype}, expected uint8, or floating 0..1")
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError(
            f"images: floating numbers from {float(images.min()):g} to {float(images.max()):g}, "
            "expected 0..1; images that were normalized have to be taken before that"
        )
    return (images * _LEVELS).round().to(torch.uint8)


def _channels_first(images: Tensor) -> Tensor:
    if images.dim() == 3:
        images = images.unsqueeze(1)
    if images.dim() != 4 or not len(images):
        raise ValueError(
            f"images: shape {tuple(images.shape)}, expected [N, C, H, W], [N, H, W, C] or [N, H, W]"
        )
    if images.size(1) in _CHANNELS:
        return images
    if images.size(3) in _CHANNELS:
        return images.permute(0, 3, 1, 2).contiguous()
    raise ValueError(
        f"images: shape {tuple(images.shape)}, expected 1 or 3 channels in the second or last axis"
    )
