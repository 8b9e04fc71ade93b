"""How much of the classes lies in features that were learned without them."""

from __future__ import annotations

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

_ROWS = 1024  # of the table of distances that are held at once


def linear_probe(
    train: Tensor, train_y: Tensor, test: Tensor, test_y: Tensor, *, strength: float = 1.0
) -> float:
    """Accuracy of one linear layer with softmax on frozen features, 0..1.

    scikit-learn's logistic regression, on features that were scaled to mean 0 and deviation 1 over
    the training samples.

    Args:
        train: Features that may be learned from.
        train_y: Their classes.
        test: Features that are scored.
        test_y: Their classes.
        strength: Inverse of the L2 penalty, C.

    Shapes:
        train [n, F], test [m, F], classes int64 [n] and [m].

    Raises:
        ValueError: Fewer than two classes to learn from, by scikit-learn.

    Source: Li and Pimentel-Alarcon (2024), "Supervised Test Accuracy".
    """
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000))
    model.fit(train.detach().cpu().double().numpy(), train_y.cpu().numpy())
    return float(model.score(test.detach().cpu().double().numpy(), test_y.cpu().numpy()))


@torch.no_grad()
def nearest_accuracy(features: Tensor, labels: Tensor) -> float:
    """Share of samples whose nearest other sample, by Euclidean distance, has their class, 0..1.

    Of equally near ones the first counts.

    Args:
        features: Of the test samples, which are each other's only neighbors.
        labels: Their classes.

    Shapes:
        features [n, F], n at least 2; labels int64 [n].

    Raises:
        ValueError: Fewer than two samples, or labels of another number.

    Source: Li and Pimentel-Alarcon (2024), "Unsupervised Test Accuracy".

    Example:
        >>> nearest_accuracy(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 2]))
        0.5
    """
    if len(features) < 2 or len(labels) != len(features):
        raise ValueError(f"features: {len(features)} for {len(labels)} labels, expected 2 or more")
    features = features.double()
    features = features - features.mean(0)  # rounding of a common offset would hide near ones
    near = []
    for first in range(0, len(features), _ROWS):
        rows = features[first : first + _ROWS]
        distance = torch.cdist(rows, features)
        distance[torch.arange(len(rows)), torch.arange(len(rows)) + first] = torch.inf
        near.append(distance.argmin(1))
    return float((labels[torch.cat(near)] == labels).float().mean())
