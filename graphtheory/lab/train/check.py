"""Refusals of graphs that cannot be learned from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.lab.train.contract import digest

MASKS = ("train_mask", "val_mask", "test_mask")


def check_data(data: Data) -> None:
    """Features finite, labels in their range where they are used, masks one a node and apart.

    Labels are a class of each node, int64 [N], or several of each, float [N, T] of 0, 1 or NaN.

    Raises:
        TypeError: Something is missing or of the wrong type.
        ValueError: Otherwise; the message says how many and where.
    """
    if not isinstance(data, Data):
        raise TypeError(f"data: got {type(data).__name__}, expected a Data of PyG")
    for name in ("x", "y", "edge_index", "train_mask", "val_mask"):
        if not isinstance(getattr(data, name, None), Tensor):
            kind = type(getattr(data, name, None)).__name__
            raise TypeError(f"data.{name}: got {kind}, expected a tensor")
    if not data.x.is_floating_point():
        raise TypeError(f"data.x: dtype {data.x.dtype}, expected a floating type")
    _check_finite(data.x)
    masks = {name: data[name] for name in MASKS if data.get(name) is not None}
    check_masks(masks, data.x.size(0))
    several = data.y.is_floating_point() and data.y.dim() == 2
    one = data.y.dtype == torch.int64 and data.y.dim() == 1
    if not (one or several) or len(data.y) != len(data.train_mask):
        raise ValueError(
            f"data.y: {data.y.dtype} of shape {tuple(data.y.shape)}, expected int64 "
            f"[{data.x.size(0)}], or float [{data.x.size(0)}, T] of several labels"
        )
    check_classes(data, None)


def check_masks(masks: dict[str, Tensor], nodes: int) -> None:
    """Masks by name are Bool [nodes], none is empty, and no node is in two of them.

    Raises:
        ValueError: The message names the mask, or says how many nodes are in several.
    """
    for name, mask in masks.items():
        _check_mask(name, mask, nodes)
    _check_apart(masks)


def check_classes(data: Data, num_classes: int | None) -> None:
    """Labels of the nodes in some mask are in 0..num_classes-1; None is without upper limit.

    Of several labels there are `num_classes`, each 0, 1 or NaN.

    Raises:
        ValueError: How many are not, and the first.
    """
    if data.y.dim() == 2:
        _check_labels(data.y, num_classes)
        return
    used = torch.stack([data[name] for name in MASKS if data.get(name) is not None]).any(0)
    bad = used & (data.y < 0)
    if num_classes is not None:
        bad |= used & (data.y >= num_classes)
    if bool(bad.any()):
        node = int(bad.nonzero()[0])
        limit = "0 or more" if num_classes is None else f"0..{num_classes - 1}"
        raise ValueError(
            f"data.y: {int(bad.sum())} nodes of the masks have a label out of range, the first is "
            f"node {node} with {int(data.y[node])}; expected {limit}"
        )


def _check_labels(y: Tensor, num_labels: int | None) -> None:
    if num_labels not in (None, y.size(1)):
        raise ValueError(f"data.y: {y.size(1)} labels of each node, expected {num_labels}")
    bad = ~((y == 0) | (y == 1) | y.isnan())
    if bool(bad.any()):
        first = bad.nonzero()[0]
        raise ValueError(
            f"data.y: {int(bad.sum())} labels are neither 0, 1 nor NaN, the first at "
            f"{first.tolist()} with {float(y[tuple(first)]):g}"
        )


def fingerprint(data: Data) -> str:
    """SHA-256 of everything that is trained on, hexadecimal."""
    masks = (data[name] for name in MASKS if data.get(name) is not None)
    return digest([data.x, data.y, data.edge_index, *masks])


def _check_finite(x: Tensor) -> None:
    sparse = x.layout == torch.sparse_csr
    bad = ~torch.isfinite(x.values() if sparse else x)
    if not bool(bad.any()):
        return
    first = bad.nonzero()[0]
    if sparse:
        row = torch.searchsorted(x.crow_indices(), first, right=True) - 1
        first = torch.cat([row, x.col_indices()[first]])
    raise ValueError(
        f"data.x: {int(bad.sum())} entries are NaN or infinite, the first at "
        f"{first.tolist()}; expected finite features"
    )


def _check_mask(name: str, mask: Tensor, nodes: int) -> None:
    if mask.dtype != torch.bool or mask.shape != (nodes,):
        raise ValueError(
            f"data.{name}: {mask.dtype} of shape {tuple(mask.shape)}, expected bool [{nodes}]; "
            "of several splits give one column"
        )
    if not bool(mask.any()):
        raise ValueError(f"data.{name}: no node, expected at least one")


def _check_apart(masks: dict[str, Tensor]) -> None:
    total = torch.stack(list(masks.values())).sum(0)
    if bool((total > 1).any()):
        twice = (total > 1).nonzero().flatten()
        raise ValueError(
            f"data: {len(twice)} nodes are in more than one of {', '.join(masks)}, the first is "
            f"node {int(twice[0])}; expected disjoint masks"
        )
