import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import RandomNodeSplit

from graphtheory.lab.datasets import splits
from graphtheory.lab.datasets.splits import Split


def _disjoint(masks: Split, y: Tensor) -> None:
    stacked = torch.stack(masks)
    assert stacked.dtype == torch.bool and stacked.shape == (3, len(y))
    assert int(stacked.sum(0).max()) <= 1
    assert not (stacked.any(0) & (y < 0)).any()


@given(
    labels=st.lists(st.integers(-1, 3), min_size=8, max_size=60).filter(
        lambda labels: sum(label >= 0 for label in labels) >= 4
    ),
    seed=st.integers(0, 2**31),
)
def test_fractions_share_out_all_labeled_nodes(labels: list[int], seed: int) -> None:
    y = torch.tensor(labels)
    masks = splits.by_fraction(y, val=0.25, test=0.25, generator=Generator().manual_seed(seed))
    _disjoint(masks, y)
    assert torch.equal(torch.stack(masks).any(0), y >= 0)
    assert int(masks.test.sum()) == int(masks.val.sum()) == round(int((y >= 0).sum()) / 4)


@pytest.mark.parametrize("size", [7, 63, 257, 1797])
def test_sizes_are_those_of_pyg(size: int, generator: Generator) -> None:
    y = torch.zeros(size, dtype=torch.long)
    theirs = RandomNodeSplit("train_rest", num_val=0.2, num_test=0.2)(Data(y=y, num_nodes=size))
    ours = splits.by_fraction(y, val=0.2, test=0.2, generator=generator)
    for mask, name in zip(ours, ("train_mask", "val_mask", "test_mask"), strict=True):
        assert int(mask.sum()) == int(theirs[name].sum())


def test_splits_of_the_published_codes_are_theirs() -> None:
    y = torch.arange(7650) % 8  # of as many nodes as Photo, whose published file begins so
    masks = splits.by_permutation(y, train=0.6, val=0.2, seed=12)
    assert [int(mask.sum()) for mask in masks] == [4590, 1530, 1530]
    assert masks.train[[7311, 2850, 4912]].all() and masks.val[[754, 6716, 1882]].all()
    assert masks.test[[2736, 6359, 6487]].all() and int(torch.stack(masks).sum()) == 7650
    y = torch.arange(2700) % 7
    torch.manual_seed(123)
    chosen = []
    for c in range(7):  # the loop of the code that SGFormer and others share
        nodes = torch.arange(2700)[y == c]
        chosen.append(nodes[torch.randperm(len(nodes))])
    rest = torch.cat([nodes[20:] for nodes in chosen])
    rest = rest[torch.randperm(len(rest))]
    masks = splits.class_by_class(y, generator=Generator().manual_seed(123))
    for mask, nodes in zip(
        masks, (torch.cat([n[:20] for n in chosen]), rest[:500], rest[500:1500]), strict=True
    ):
        assert torch.equal(mask.nonzero().view(-1), nodes.sort().values)


def test_every_node_has_the_same_chance(generator: Generator) -> None:
    y, total = torch.zeros(10, dtype=torch.long), torch.zeros(10)
    for _ in range(2000):
        total += splits.by_fraction(y, val=0.2, test=0.2, generator=generator).test
    assert (total / 2000 - 0.2).abs().max() < 0.05  # five standard errors


def test_sizes_of_a_split_by_class_and_by_share(generator: Generator) -> None:
    y = torch.arange(300) % 4
    y[200:] = -1
    masks, again, other = (
        splits.per_class(y, train=5, val=30, test=40, generator=Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    _disjoint(masks, y)
    assert y[masks.train].bincount().tolist() == [5] * 4
    assert [int(mask.sum()) for mask in masks] == [20, 30, 40]
    assert torch.equal(masks.train, again.train) and not torch.equal(masks.train, other.train)
    y = torch.tensor([0] * 50 + [1] * 30)
    parts = splits.stratified(y, val=0.1, test=0.2, generator=generator)
    assert [y[part].bincount().tolist() for part in parts] == [[35, 21], [5, 3], [10, 6]]
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(80))
    assert all(torch.equal(part, part.sort().values) for part in parts)
    assert not torch.equal(
        splits.stratified(y, val=0.1, test=0.2, generator=generator).test, parts.test
    )


def test_what_cannot_be_split_is_refused(generator: Generator) -> None:
    y = torch.arange(10) % 2
    for val, test in ((0.5, 0.5), (-0.1, 0.2), (0.2, 1.0)):
        with pytest.raises(ValueError, match=f"val, test: {val} and {test} of 10 labeled nodes"):
            splits.by_fraction(y, val=val, test=test, generator=generator)
    with pytest.raises(ValueError, match=r"20 of each of 2 classes and 500 \+ 1000 more.*\[5, 5\]"):
        splits.per_class(y, generator=generator)
    with pytest.raises(ValueError, match="6 of each of 2 classes"):
        splits.per_class(y, train=6, val=0, test=0, generator=generator)


def test_folds_are_disjoint_cover_all_and_keep_the_shares() -> None:
    y = torch.arange(60) % 3
    parts = [splits.folds(y, number=5, fold=fold) for fold in range(5)]
    assert torch.cat([p.test for p in parts]).sort().values.tolist() == list(range(60))
    for number, part in enumerate(parts):
        assert sorted(torch.cat(list(part)).tolist()) == list(range(60))
        assert torch.equal(part.val, parts[(number + 1) % 5].test)
        assert y[part.test].bincount().tolist() == [4, 4, 4]
    assert torch.equal(splits.folds(y, number=5, fold=7).test, parts[2].test)
    with pytest.raises(ValueError, match="number: got 2 folds"):
        splits.folds(y, number=2, fold=0)
