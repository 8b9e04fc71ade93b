"""Splits into training, validation and test: masks of nodes, or positions of graphs."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from torch_geometric.utils import index_to_mask


class Split(NamedTuple):
    """Three disjoint sets, as bool masks [N] for nodes or int64 positions for graphs."""

    train: Tensor
    val: Tensor
    test: Tensor


def by_fraction(y: Tensor, *, val: float, test: float, generator: Generator) -> Split:
    """A random split of the entries whose y is not -1, of fractions `val` and `test`, into masks.

    The sizes are those of PyG's `RandomNodeSplit("train_rest")`, which draws from the global state.
    """
    labeled = (y >= 0).nonzero().view(-1)
    num_val, num_test = round(len(labeled) * val), round(len(labeled) * test)
    if min(val, test) < 0 or num_val + num_test >= len(labeled):
        raise ValueError(
            f"val, test: {val} and {test} of {len(labeled)} labeled nodes, expected fractions "
            "that leave some for training"
        )
    order = labeled[torch.randperm(len(labeled), generator=generator)]
    parts = order.split([len(order) - num_val - num_test, num_val, num_test])
    return Split(*(index_to_mask(part, len(y)) for part in parts))


def per_class(
    y: Tensor, *, train: int = 20, val: int = 500, test: int = 1000, generator: Generator
) -> Split:
    """A random split, `train` labeled nodes of each class: Shchur et al., 2018, section 3."""
    order = torch.randperm(len(y), generator=generator)
    order = order[y[order] >= 0]
    classes = y[order]
    counts = classes.bincount()
    if int(counts.min()) < train or len(order) < train * len(counts) + val + test:
        raise ValueError(
            f"train, val, test: asked for {train} of each of {len(counts)} classes and {val} + "
            f"{test} more, found {counts.tolist()} labeled nodes of each class"
        )
    chosen = torch.cat([(classes == c).nonzero().view(-1)[:train] for c in range(len(counts))])
    rest = order[~index_to_mask(chosen, len(order))]
    parts = (order[chosen], rest[:val], rest[val : val + test])
    return Split(*(index_to_mask(part, len(y)) for part in parts))


def class_by_class(y: Tensor, *, generator: Generator) -> Split:
    """A split of 20 a class, 500 and 1000 as the code of Wu et al., 2023, draws it, by seed 123."""

    def shuffled(nodes: Tensor) -> Tensor:
        return nodes[torch.randperm(len(nodes), generator=generator)]

    classes = [shuffled((y == c).nonzero().view(-1)) for c in y.unique()]
    rest = shuffled(torch.cat([nodes[20:] for nodes in classes]))
    parts = (torch.cat([nodes[:20] for nodes in classes]), rest[:500], rest[500:1500])
    return Split(*(index_to_mask(part, len(y)) for part in parts))


def by_permutation(y: Tensor, *, train: float, val: float, seed: int) -> Split:
    """Cut numpy's permutation; sizes are rounded down.

    Seed 12 gives the published split of Photo (Luo et al., 2024), 42 those of Computers and CS, 301
    that of Physics.
    """
    labeled = (y >= 0).nonzero().view(-1)
    order = labeled[np.random.RandomState(seed).permutation(len(labeled))]
    sizes = [int(len(order) * train), int(len(order) * val)]
    parts = order.split([*sizes, len(order) - sum(sizes)])
    return Split(*(index_to_mask(part, len(y)) for part in parts))


def stratified(y: Tensor, *, val: float, test: float, generator: Generator) -> Split:
    """A random split of graphs, y [G] their classes, each split `by_fraction`; sorted positions."""
    parts: list[Split] = []
    for c in y.unique():
        members = (y == c).nonzero().view(-1)
        masks = by_fraction(y[members], val=val, test=test, generator=generator)
        parts.append(Split(*(members[mask] for mask in masks)))
    return Split(*(torch.cat(part).sort().values for part in zip(*parts, strict=True)))


def folds(y: Tensor, *, number: int, fold: int) -> Split:
    """Positions, sorted: fold s, modulo `number`, is tested, s + 1 validates, the others train.

    The folds are scikit-learn's, keep the share of each class y [G], and are the same for every s.
    """
    if number < 3:
        raise ValueError(f"number: got {number} folds, expected at least 3")
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(number, shuffle=True, random_state=0)
    parts = [torch.from_numpy(test) for _, test in splitter.split(np.zeros(len(y)), y.numpy())]
    test, val = parts[fold % number], parts[(fold + 1) % number]
    rest = ~index_to_mask(torch.cat([test, val]), len(y))
    return Split(rest.nonzero().view(-1), val, test)
