"""Decides whether rows of features are scaled where no search has chosen it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from graphtheory.lab.bench.node_config import prepare
from graphtheory.lab.datasets.graphs import Data

_TRAIN, _VAL = 2000, 4000
_STRENGTHS = (1.0, 100.0)


def scales_rows(data: Data, otherwise: bool) -> bool:
    r"""Whether rows are scaled, by how many validation labels a linear classifier has right.

    Logistic regression reads :math:`[x_n, \sum_{m} \hat A_{nm} x_m]`, a node's features beside the
    mean over its neighbors, with the features as they are and with rows scaled as `prepare` does,
    at two strengths of regularization; on at most 2,000 training and 4,000 validation nodes. One
    has to be ahead by a standard error of the better share.

    Args:
        data: A graph with `train_mask` and `val_mask`.
        otherwise: What holds where neither is ahead, and with several labels a node. Where scaling
            changes nothing, with negative entries or rows that sum to at most 1, it is False.
    """
    dense = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    if bool((dense < 0).any()):
        return False
    if data.y.dim() > 1:
        return otherwise
    plain, scaled = (_csr(prepare(data, row_scale=scale).x) for scale in (False, True))
    if np.array_equal(plain.data, scaled.data):
        return False
    train, val = _some(data.train_mask, _TRAIN), _some(data.val_mask, _VAL)
    if len(val) == 0 or len(np.unique(data.y.numpy()[train])) < 2:
        return otherwise
    mean = _mean_over_neighbors(data.edge_index.numpy(), plain.shape[0])
    y = data.y.numpy()
    scores = [_score(x, mean, y, train, val) for x in (plain, scaled)]
    best = max(scores)
    if abs(scores[1] - scores[0]) <= math.sqrt(best * (1 - best) / len(val)):
        return otherwise
    return scores[1] > scores[0]


def _score(
    x: sp.csr_matrix, mean: sp.csr_matrix, y: np.ndarray, train: np.ndarray, val: np.ndarray
) -> float:
    """The best share of right validation labels over the strengths of regularization."""
    seen, held = (sp.hstack([x[rows], mean[rows] @ x]).tocsr() for rows in (train, val))
    scores = []
    for strength in _STRENGTHS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a comparison needs no last digit
            found = LogisticRegression(C=strength, max_iter=50).fit(seen, y[train])
        scores.append(float(found.score(held, y[val])))
    return max(scores)


def _mean_over_neighbors(edge_index: np.ndarray, nodes: int) -> sp.csr_matrix:
    sources, targets = edge_index
    adjacency = sp.csr_matrix((np.ones(len(sources)), (targets, sources)), (nodes, nodes))
    return sp.diags(1 / np.maximum(adjacency.sum(1).A1, 1)) @ adjacency


def _csr(x: Tensor) -> sp.csr_matrix:
    if x.layout != torch.sparse_csr:
        return sp.csr_matrix(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_matrix(parts, tuple(x.shape))


def _some(mask: Tensor, most: int) -> np.ndarray:
    """At most so many nodes of a mask, drawn with a fixed seed."""
    nodes = mask.nonzero().flatten()
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))
    return nodes[order[:most].sort().values].numpy()
