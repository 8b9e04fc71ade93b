from collections.abc import Callable

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import FullGraph
from graphtheory.lab.train.full_graph import check_classes, check_data, fingerprint


def nan_in_x(data: Data) -> None:
    data.x[4, 2], data.x[9, 1] = float("nan"), float("inf")


def nan_in_sparse_x(data: Data) -> None:
    x = torch.eye(60)
    x[30, 30] = float("nan")
    data.x = x.to_sparse_csr()


def float_labels(data: Data) -> None:
    data.y = data.y.float()


def labels_of_two_axes(data: Data) -> None:
    data.y = data.y[:, None]


def negative_label(data: Data) -> None:
    data.y[3] = -1


def masks_that_overlap(data: Data) -> None:
    data.val_mask[0] = True


def empty_mask(data: Data) -> None:
    data.train_mask[:] = False


def many_splits(data: Data) -> None:
    data.train_mask = data.train_mask[:, None].repeat(1, 10)


def integer_x(data: Data) -> None:
    data.x = data.x.long()


def no_x(data: Data) -> None:
    data.x = None


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (nan_in_x, ValueError, r"data.x: 2 entries are NaN or infinite, the first at \[4, 2\]"),
        (nan_in_sparse_x, ValueError, r"data.x: 1 entries .* the first at \[30, 30\]"),
        (float_labels, ValueError, r"data.y: torch.float32 of shape \(60,\), expected int64"),
        (labels_of_two_axes, ValueError, r"data.y: .* shape \(60, 1\), expected int64 \[60\]"),
        (negative_label, ValueError, "data.y: 1 nodes .* node 3 with -1; expected 0 or more"),
        (masks_that_overlap, ValueError, "1 nodes are in more than one of train_mask, val_mask"),
        (empty_mask, ValueError, "data.train_mask: no node"),
        (many_splits, ValueError, r"data.train_mask: .* \(60, 10\), expected bool \[60\]"),
        (integer_x, TypeError, "data.x: dtype torch.int64, expected a floating type"),
        (no_x, TypeError, "data.x: got NoneType, expected a tensor"),
    ],
)
def test_spoiled_data_is_refused(
    data: Data, spoil: Callable[[Data], None], error: type[Exception], message: str
) -> None:
    spoil(data)
    with pytest.raises(error, match=message):
        FullGraph(data)


def test_labels_outside_the_masks_do_not_matter(data: Data) -> None:
    data.train_mask[0] = False
    data.y[0] = -1
    check_data(data)
    check_classes(data, 3)


def test_labels_above_the_classes_are_refused(data: Data) -> None:
    data.y[5] = 3
    with pytest.raises(ValueError, match=r"node 5 with 3; expected 0\.\.2"):
        check_classes(data, 3)


@pytest.mark.parametrize("name", ["x", "y", "edge_index", "train_mask", "val_mask", "test_mask"])
def test_fingerprint_sees_every_part(data: Data, name: str) -> None:
    before = fingerprint(data)
    assert before == fingerprint(data.clone())
    part = data[name].view(-1)
    part[0] = ~part[0] if part.dtype == torch.bool else part[0] + 1
    assert fingerprint(data) != before
