"""Discriminative nodes against an eigendecomposition, and against the printed tables."""

import math

import numpy as np
import pytest
import torch

from graphtheory.lab.datasets.graphs import load
from graphtheory.structure import class_balance, discriminative_nodes


def by_eigenvectors(x, label, moment, num_directions, angle):
    """The definition with numpy: eigenvectors of the d x d matrix, angles by arccos."""
    found = np.zeros(len(x), dtype=bool)
    for c in np.unique(label):
        features = x[label == c].astype(np.float64)
        spread = features - features.mean(0) if moment == "covariance" else features
        _, vectors = np.linalg.eigh(spread.T @ spread)
        z = features @ vectors[:, ::-1][:, :num_directions]
        mean = z.mean(0)
        cosine = z @ mean / (np.linalg.norm(z, axis=1) * np.linalg.norm(mean))
        found[label == c] = np.arccos(cosine.clip(-1, 1)) < angle
    return found


@pytest.mark.parametrize("moment", ["uncentered", "covariance"])
@pytest.mark.parametrize(("num_directions", "angle"), [(3, math.pi / 4), (1, 0.5), (5, 1.2)])
def test_nodes_follow_the_definition(moment, num_directions, angle, generator):
    x = torch.randn(200, 6, generator=generator) + torch.tensor([1.0, 0.5, 0, 0, 0, 0])
    label = torch.randint(3, (200,), generator=generator)
    found = discriminative_nodes(
        x, label, moment=moment, num_directions=num_directions, angle=angle
    )
    expected = by_eigenvectors(x.numpy(), label.numpy(), moment, num_directions, angle)
    assert found.tolist() == expected.tolist()
    assert 0.05 < found.double().mean() < 0.95 or num_directions == 1


@pytest.mark.parametrize("moment", ["uncentered", "covariance"])
def test_wide_and_sparse_features_give_the_same_nodes(moment, generator):
    x = (torch.rand(400, 150, generator=generator) < 0.1).float()
    x += (torch.rand(400, 150, generator=generator) < 0.5) * (torch.arange(150) < 12)
    label = torch.randint(2, (400,), generator=generator)
    found = discriminative_nodes(x, label, moment=moment)
    expected = by_eigenvectors(x.numpy(), label.numpy(), moment, 3, math.pi / 4)
    assert found.tolist() == expected.tolist()
    assert 0 < found.sum() < 400
    assert torch.equal(discriminative_nodes(x.to_sparse(), label, moment=moment), found)
    assert torch.equal(discriminative_nodes(x.to_sparse_csr(), label, moment=moment), found)


def test_classes_do_not_see_each_other(generator):
    x = torch.randn(60, 5, generator=generator) + 1
    label = torch.arange(60) % 3
    alone = discriminative_nodes(x[label == 1], label[label == 1])
    assert torch.equal(discriminative_nodes(x, label)[label == 1], alone)


def test_zero_features_and_tiny_classes(generator):
    x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 0.1, 0.0], [0.0, 0.0, 3.0]])
    label = torch.tensor([0, 0, 0, 7])  # class 7 has one node, classes between have none
    assert discriminative_nodes(x, label).tolist() == [True, False, True, True]
    assert discriminative_nodes(x[:0], label[:0]).shape == (0,)


def cora(root, cache):
    """Features and labels of Cora from its raw files."""
    data = load("Cora", root, cache=cache)
    assert set(data.x.unique().tolist()) == {0.0, 1.0}
    return data.x, data.y


def shares(x, label, moment):
    found = discriminative_nodes(x, label, moment=moment)
    return [round(100 * float(found[label == c].double().mean()), 2) for c in range(7)]


def test_table_b1_of_cora(data_root, cache):
    x, label = cora(data_root, cache)
    printed = torch.tensor([82.05, 88.02, 82.54, 78.12, 78.17, 83.56, 76.11])
    uncentered = shares(x, label, "uncentered")
    assert uncentered == [82.05, 90.78, 82.3, 76.53, 76.76, 83.22, 75.56]
    assert float((torch.tensor(uncentered) - printed).abs().mean()) < 1
    centered = shares(x, label, "covariance")
    assert float((torch.tensor(centered) - printed).abs().mean()) > 30
    balance = class_balance(label)
    assert [round(value, 2) for value in balance] == [386.86, 431.14, 520.38]


def test_balance_counts_empty_classes_and_skips_the_unlabeled():
    balance = class_balance(torch.tensor([0, 0, 3, -1, -1]))
    assert balance.mean == 0.75 and balance.largest_gap == 1.25
    assert balance.bound == pytest.approx(10 * math.sqrt(3))
    assert class_balance(torch.tensor([-1])) == (0.0, 0.0, 0.0)
    with pytest.raises(TypeError, match=r"label: dtype torch\.float32"):
        class_balance(torch.tensor([0.0]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": torch.ones(4, 3, dtype=torch.int64)}, TypeError, r"x: dtype torch\.int64"),
        ({"x": torch.ones(5, 3)}, ValueError, r"x: shape \(5, 3\) and label \(4,\)"),
        ({"x": torch.full((4, 3), math.nan)}, ValueError, "x: holds nan"),
        ({"x": torch.full((4, 3), math.inf).to_sparse()}, ValueError, "x: holds nan"),
        ({"label": torch.ones(4)}, TypeError, "label: dtype"),
        ({"label": torch.tensor([0, 1, -1, 0])}, ValueError, "label: smallest is -1"),
        ({"moment": "centered"}, ValueError, "moment: got 'centered'"),
        ({"num_directions": 4}, ValueError, r"num_directions: got 4, expected 1\.\.3"),
        ({"num_directions": 0}, ValueError, r"num_directions: got 0, expected 1\.\.3"),
        ({"angle": 0.0}, ValueError, r"angle: got 0\.0"),
        ({"angle": 3.15}, ValueError, r"angle: got 3\.15, expected radians in \(0, pi\]"),
        ({"x": torch.ones(4)}, ValueError, r"x: shape \(4,\) and label \(4,\)"),
        ({"label": torch.zeros(4, 1).long()}, ValueError, r"x: shape .* and label \(4, 1\)"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    arguments = {"x": torch.ones(4, 3), "label": torch.tensor([0, 1, 1, 0])} | change
    with pytest.raises(error, match=message):
        discriminative_nodes(**arguments)


def test_the_ends_of_the_ranges_are_taken():
    x = torch.tensor([[1.0, 0.5, 0.0], [1.0, -0.5, 0.0], [-3.0, 0.1, 0.2], [0.0, 0.0, 2.0]])
    label = torch.zeros(4, dtype=torch.int64)
    opposite = x[2:3] * torch.tensor([[-2.0]])
    half = torch.cat([x[2:3], opposite])  # the mean points along the second, 180 degrees away
    every = discriminative_nodes(half, label[:2], num_directions=1, angle=math.pi)
    assert every.tolist() == [False, True]  # an angle of pi is not below pi
    below = discriminative_nodes(x, label, num_directions=3, angle=math.pi / 2)
    mean = x.mean(0)
    assert below.tolist() == (x @ mean > 0).tolist()
    assert (
        discriminative_nodes(x, label).tolist()
        == (
            discriminative_nodes(x, label, moment="uncentered", num_directions=3, angle=math.pi / 4)
        ).tolist()
    )


def test_two_nodes_of_one_class_are_balanced():
    assert class_balance(torch.tensor([0, 0, 1, 1])) == (2.0, 0.0, 20.0)


def test_as_many_directions_as_features_change_no_angle(generator):
    x = torch.randn(100, 70, generator=generator).double() + 0.4
    found = discriminative_nodes(x, torch.zeros(100).long(), num_directions=70, angle=1.2)
    mean = x.mean(0)
    angle = torch.arccos(x @ mean / (x.norm(dim=1) * mean.norm()))
    assert found.tolist() == (angle < 1.2).tolist()
    assert 0 < found.sum() < 100
