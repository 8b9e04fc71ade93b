"""What linear classifiers say before any training: which distances help, whether to scale rows."""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from graphtheory.lab.bench.node_config import prepare
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Difference, reading
from graphtheory.lab.datasets.graphs import Data

ACCURACY, GAIN = "linear accuracy", "linear gain"  # rows of `hop_rows`
_FOLDS, _LABELS, _HOPS = 5, 2000, 3
_TRAIN, _VAL = 2000, 4000  # nodes that tell whether rows are scaled, at most
_STRENGTHS = (1.0, 100.0)
_PAIRS = 20_000_000  # of labeled nodes and others at one distance, at most


def hop_rows(data: Data, dataset: str) -> list[Row]:
    """Cross-validated accuracy of a linear classifier on mean features at distance 0, 1, ..., z.

    It reads nodes of training and validation, and classes with five of them; there have to be two.
    """
    labels = data.y.numpy()
    rows = _nodes_of(data.train_mask | data.val_mask, _LABELS)
    rows = rows[np.bincount(labels[rows])[labels[rows]] >= _FOLDS]
    y, means, found, before = labels[rows], list[Any](), list[Row](), None
    if len(np.unique(y)) < 2:
        return []
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression(max_iter=100))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    for z, mean in enumerate(_means(data, rows)):
        means.append(mean)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # no last digit is needed
            right = cross_val_predict(model, sp.hstack(means).tocsr(), y, cv=folds) == y
        gains: list[float] = [] if before is None else (right.astype(float) - before).tolist()
        for name, values in ((ACCURACY, right.tolist()), (GAIN, gains)):
            found += [Row.of(name, values, "1", dataset=dataset, distance=z)] if values else []
        before = right
    return found


def _means(data: Data, rows: np.ndarray) -> Iterator[sp.csr_matrix]:
    """Mean features of the nodes at distance 0, 1, ... from each of these nodes."""
    (sources, targets), nodes = data.edge_index.numpy(), len(data.y)
    step = sp.csr_matrix((np.ones(len(sources), bool), (targets, sources)), (nodes, nodes))
    x, ring = _csr_of(data.x), sp.eye(nodes, dtype=bool, format="csr")[rows]
    seen = ring
    for _ in range(_HOPS + 1):
        yield sp.diags(1 / np.maximum(ring.getnnz(1), 1)) @ ring @ x
        if not 0 < (ring @ step.getnnz(1)).sum() <= _PAIRS:
            return
        ring = (ring @ step) > seen
        seen = seen + ring


def gains_of(rows: Sequence[Row]) -> dict[int, Difference]:
    """What each distance adds to the accuracy of `hop_rows`, paired by node."""
    return {
        row.parameters["distance"]: Difference(
            "", row.value, (row.std or 0.0) / math.sqrt(row.repeats), 0, row.repeats
        )
        for row in rows
        if row.name == GAIN
    }


def helpful_hops(rows: Sequence[Row]) -> int:
    """The largest distance whose nodes help a linear classifier; 0 where none does."""
    return max((z for z, gain in gains_of(rows).items() if reading(gain) == "ahead"), default=0)


def scales_rows(data: Data, otherwise: bool) -> bool:
    """Whether rows are scaled, by how many validation labels a linear classifier has right.

    Logistic regression reads a node's features beside the mean over its neighbors, with rows as
    they are and scaled as `prepare` does; one has to be ahead by a standard error of the better
    share. Where neither is, and with several labels a node, `otherwise` holds.
    """
    dense = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    if bool((dense < 0).any()):
        return False
    if data.y.dim() > 1:
        return otherwise
    plain, scaled = (_csr_of(prepare(data, row_scale=scale).x) for scale in (False, True))
    if np.array_equal(plain.data, scaled.data):
        return False
    train, val = _nodes_of(data.train_mask, _TRAIN), _nodes_of(data.val_mask, _VAL)
    y = data.y.numpy()
    if len(val) == 0 or len(np.unique(y[train])) < 2:
        return otherwise
    (sources, targets), nodes = data.edge_index.numpy(), plain.shape[0]
    adjacency = sp.csr_matrix((np.ones(len(sources)), (targets, sources)), (nodes, nodes))
    mean = sp.diags(1 / np.maximum(adjacency.sum(1).A1, 1)) @ adjacency
    scores = []
    for x in (plain, scaled):
        seen, held = (sp.hstack([x[rows], mean[rows] @ x]).tocsr() for rows in (train, val))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a comparison needs no last digit
            fits = [LogisticRegression(C=c, max_iter=50).fit(seen, y[train]) for c in _STRENGTHS]
        scores.append(max(float(fit.score(held, y[val])) for fit in fits))
    best = max(scores)
    if abs(scores[1] - scores[0]) <= math.sqrt(best * (1 - best) / len(val)):
        return otherwise
    return scores[1] > scores[0]


def _csr_of(x: Tensor) -> sp.csr_matrix:
    """Features, dense or sparse by rows, as a matrix of scipy."""
    if x.layout != torch.sparse_csr:
        return sp.csr_matrix(x.numpy())
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return sp.csr_matrix(parts, tuple(x.shape))


def _nodes_of(mask: Tensor, most: int) -> np.ndarray:
    """The nodes of a mask in order, at most that many, drawn with a fixed seed."""
    nodes = mask.nonzero().flatten()
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(0))
    return nodes[order[:most].sort().values].numpy()
