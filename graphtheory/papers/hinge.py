"""Several classes by bits of +1 and -1, and their hinge loss."""

from __future__ import annotations

import torch
from torch import Tensor


def class_codes(num_classes: int) -> Tensor:
    r"""The code of each class, one bit per output: +1 or -1, int64 [num_classes, bits].

    Class c has the bits of c from the highest, 0 as +1: four classes are (1, 1), (1, -1), (-1, 1)
    and (-1, -1). A number of classes between two powers of 2 leaves codes unused.

    Args:
        num_classes: 2 or more.

    Raises:
        ValueError: If there are fewer than two classes.

    Source:
        Li (2024), eqs. (B.228) to (B.231). Differs: any number of classes.

    Example:
        >>> class_codes(4).tolist()
        [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    """
    if num_classes < 2:
        raise ValueError(f"num_classes: got {num_classes}, expected at least 2")
    bits = (num_classes - 1).bit_length()
    powers = torch.arange(bits - 1, -1, -1)
    return 1 - 2 * (torch.arange(num_classes)[:, None] >> powers & 1)


def coded_hinge(output: Tensor, target: Tensor, codes: Tensor) -> Tensor:
    r"""Hinge loss of outputs whose signs code the class.

    .. math:: \ell(x_n, y_n) = \max\{1 - y_n^\top F(x_n), 0\}

    Args:
        output: F, floating [N, bits].
        target: Class of each row, int64 [N].
        codes: [num_classes, bits] as `class_codes` gives.

    Returns:
        Loss of each row [N].

    Raises:
        ValueError: If shapes do not fit.
        IndexError: If a class has no code.

    Source:
        Li (2024), eq. (B.232).

    Example:
        >>> coded_hinge(torch.tensor([[0.5, 0.25]]), torch.tensor([1]), class_codes(4)).tolist()
        [0.75]
    """
    if output.dim() != 2 or output.size(1) != codes.size(1):
        raise ValueError(f"output: shape {tuple(output.shape)}, expected [N, {codes.size(1)}]")
    if target.shape != output.shape[:1]:
        raise ValueError(f"target: shape {tuple(target.shape)}, expected [{len(output)}]")
    if len(target) and not 0 <= int(target.min()) <= int(target.max()) < len(codes):
        raise IndexError(f"target: expected classes in 0..{len(codes) - 1}")
    return (1 - (codes.to(output)[target] * output).sum(1)).clamp(min=0)


def decode_class(output: Tensor, codes: Tensor) -> Tensor:
    """The class whose code has the largest product with the output, int64 [N].

    Args:
        output: F, floating [N, bits].
        codes: [num_classes, bits] as `class_codes` gives.

    Example:
        >>> decode_class(torch.tensor([[0.3, -2.0]]), class_codes(4)).tolist()
        [1]
    """
    return (output @ codes.to(output).t()).argmax(1)
