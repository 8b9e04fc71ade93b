import math
import signal
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from graphtheory import Neighborhood
from graphtheory.lab.train import CheckpointError, FitResult, NodeTask, fit, read_checkpoint
from graphtheory.papers.fusion import views as fusion
from graphtheory.papers.fusion.contrastive import SGDOptions, SimCLR
from graphtheory.papers.fusion.recipe import GCNEncoder
from graphtheory.papers.fusion.views import GraphViews, ImageViews, Unlabeled


@pytest.mark.parametrize("channels", [1, 3])
def test_two_views_of_an_image_differ_and_stay_images(channels: int) -> None:
    augment = fusion.Strengths(flip=channels == 3).build(channels, 8)
    images = torch.randint(0, 256, (5, channels, 8, 8), dtype=torch.uint8)
    seen = ImageViews(nn.Flatten(), augment)
    torch.manual_seed(3)
    views = seen(images)
    assert views.shape == (10, channels * 64) and views.min() >= 0 and views.max() <= 1
    assert not torch.allclose(views[:5], views[5:])
    torch.manual_seed(3)
    assert torch.equal(seen(images), views)  # drawn from global state alone


class Seen(nn.Module):
    """What reaches the encoder: features, and the number of sources."""

    def forward(self, x: torch.Tensor, neighborhood: Neighborhood) -> torch.Tensor:
        dense = x.to_dense() if x.layout == torch.sparse_csr else x
        return torch.cat([dense, neighborhood.degree()[:, None].float()], 1)


def test_a_view_of_a_graph_drops_edges_and_whole_features() -> None:
    x, edges = torch.ones(50, 40), torch.randint(50, (2, 400))
    features = GraphViews(Seen(), x, edges, 0.5, 0.25)
    first, second = features(torch.arange(50)).chunk(2)
    for view in (first, second):
        assert ((view[:, :40] == 0) | (view[:, :40] == 1)).all()
        assert (view[:, :40] == view[:1, :40]).all()  # a feature is dropped at all nodes
        assert 120 < view[:, 40].sum() < 280 and 0 < (view[0, :40] == 0).sum() < 25
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    dense = features(torch.tensor([3, 7]))
    torch.manual_seed(0)
    sparse = GraphViews(Seen(), x.to_sparse_csr(), edges, 0.5, 0.25)(torch.tensor([3, 7]))
    assert torch.equal(sparse, dense) and dense.shape == (4, 41)
    x, factor = torch.randn(4, 3).relu(), torch.tensor([0.0, 1.0, 2.0])
    found = fusion.columns_times(x.to_sparse_csr(), factor).to_dense()
    torch.testing.assert_close(found, x * factor)


class Noisy(nn.Module):
    """Views are noise from global random state."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, batch: Tensor) -> Tensor:
        views = batch.repeat(2, 1)
        return self.backbone(views + 0.1 * torch.randn_like(views))


def new(**options: Any) -> SimCLR:
    torch.manual_seed(0)
    return SimCLR(Noisy(), nn.Linear(8, 4), optimizer=SGDOptions(0.1), **options)


def samples(batch: int = 8) -> Unlabeled:
    drawn = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    return Unlabeled(drawn, batch, seed=1)


def train(task: SimCLR, data: Unlabeled, **options: Any) -> FitResult:
    return fit(task, data, **{"progress": False} | options)


def losses(found: FitResult) -> list[float]:
    return [row["train_loss"] for row in found.history]


def test_it_learns_and_leaves_the_callers_randomness_alone() -> None:
    before = torch.get_rng_state()
    task = new()
    state = torch.get_rng_state()
    history = train(task, samples(), epochs=30)
    assert torch.equal(torch.get_rng_state(), state) and not torch.equal(state, before)
    assert losses(history)[-1] < 0.9 * losses(history)[0] and not task.training
    assert history.best_epoch == 30 and math.isnan(history.val) and history.test is None
    torch.manual_seed(99)
    assert losses(train(new(), samples(), epochs=30)) == losses(history)


def test_a_run_in_parts_is_the_run_in_one(tmp_path: Path) -> None:
    whole = new()
    expected = train(whole, samples(), epochs=6, out_dir=tmp_path / "whole")

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(new(), samples(), epochs=6, out_dir=tmp_path / "parts", progress=stop)
    torch.manual_seed(5)  # the state outside does not matter
    parts = new()
    found = train(parts, samples(), epochs=6, out_dir=tmp_path / "parts", resume=True)
    assert losses(found) == losses(expected)
    torch.testing.assert_close(parts.state_dict(), whole.state_dict(), rtol=0, atol=0)
    log = (tmp_path / "parts" / "history.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in log] == ["epoch", *"123456"]
    again = new()
    last = train(again, samples(), epochs=6, out_dir=tmp_path / "parts", resume=True)
    assert astuple(last) == astuple(found)  # of tuples NaN equals itself
    assert torch.equal(again.head.weight, whole.head.weight)
    assert read_checkpoint(tmp_path / "parts" / "last.ckpt")["run"]["epochs"] == 6


def test_another_run_or_graph_is_not_gone_on_with(tmp_path: Path) -> None:
    train(new(), samples(), epochs=1, out_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"temperature is 0.2 there, 0.5 here"):
        train(new(temperature=0.5), samples(), epochs=1, out_dir=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="batch is 8 there, 4 here"):
        train(new(), samples(4), epochs=1, out_dir=tmp_path, resume=True)
    with pytest.raises(FileExistsError):
        train(new(), samples(), epochs=1, out_dir=tmp_path)
    x, edges = torch.rand(6, 3), torch.randint(6, (2, 12))

    def task(x: Tensor, edges: Tensor, drop: float = 0.3) -> SimCLR:
        torch.manual_seed(0)
        views = GraphViews(GCNEncoder(3, 4), x, edges, drop_edge=drop)
        return SimCLR(views, nn.Linear(4, 2), optimizer=SGDOptions(0.1))

    nodes = Unlabeled(torch.arange(6), 6, seed=0)
    train(task(x, edges), nodes, epochs=1, out_dir=tmp_path / "graph")
    for other in (task(x + 1, edges), task(x, edges.flip(0)), task(x, edges, 0.4)):
        with pytest.raises(CheckpointError, match="of another run"):
            train(other, nodes, epochs=1, out_dir=tmp_path / "graph", resume=True)
    train(task(x, edges), nodes, epochs=1, out_dir=tmp_path / "graph", resume=True)


def test_what_cannot_be_learned_from_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="epochs: got 0"):
        train(new(), samples(), epochs=0)
    with pytest.raises(ValueError, match="batch_size, seed, limit: got 0"):
        samples(0)
    bad = new()
    nn.init.constant_(bad.head.weight, torch.nan)
    smaller = r"loss nan; .*smaller step than that of SGDOptions"
    with pytest.raises(FloatingPointError, match=smaller):
        train(bad, samples(), epochs=1)
    with pytest.raises(ValueError, match="samples without labels, expected labels in"):
        fit(NodeTask(nn.Linear(3, 2), num_classes=2), samples())
    with pytest.raises(TypeError, match="loader: got list, expected a DataLoader"):
        fusion.Loaded([torch.zeros(2, 3)])  # type: ignore[arg-type]
    words = DataLoader([{"image": 1.0}] * 4, batch_size=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a batch of dict, expected a tensor of samples"):
        fit(new(), words, epochs=1, progress=False)
    views = ImageViews(nn.Flatten(), nn.Identity())
    assert views(torch.full((1, 1, 2, 2), 0.5)).max() == 0.5  # floating images stay as they are
    with pytest.raises(TypeError, match=r"images: got torch.int64, expected a floating tensor"):
        views(torch.ones(1, 1, 2, 2, dtype=torch.int64))
    for arrays in (np.zeros((4, 1, 8, 8), np.uint8), [0, 1]):
        with pytest.raises(TypeError, match=r"samples: got .*, expected a tensor; .*as_pixels"):
            Unlabeled(arrays, 2, 0)
    task = NodeTask(nn.Linear(3, 2), num_classes=2)
    with pytest.raises(TypeError, match="datamodule: got DataLoader, expected the batches of"):
        fit(task, loader(), progress=False)  # type: ignore[arg-type]


def test_batches_follow_from_seed_and_epoch_and_no_epoch_is_better_than_another(tmp_path) -> None:
    one, other = samples(), samples()
    assert len(list(one.train_batches(0))) == one.count == 3
    assert all(map(torch.equal, one.train_batches(4), other.train_batches(4)))
    assert not torch.equal(next(one.train_batches(0)), next(one.train_batches(1)))
    train(new(), samples(), epochs=3, patience=1, out_dir=tmp_path)
    assert not (tmp_path / "best.ckpt").exists()
    log = (tmp_path / "history.csv").read_text().splitlines()
    assert log[0] == "epoch,train_loss,seconds" and len(log) == 4


def loader() -> DataLoader[Any]:
    drawn = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(drawn, torch.arange(30)), batch_size=8, shuffle=True)


def test_a_loader_is_taken_and_its_order_follows_from_seed_and_epoch(tmp_path: Path) -> None:
    whole, parts = new(), new()
    found = fit(whole, loader(), epochs=4, progress=False, out_dir=tmp_path / "whole")
    assert losses(found)[-1] < losses(found)[0]

    class Stopped(Exception):
        pass

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise Stopped

    options: dict[str, Any] = {"epochs": 4, "out_dir": tmp_path / "parts"}
    with pytest.raises(Stopped):
        fit(parts, loader(), progress=stop, **options)
    again = new()
    fit(again, loader(), progress=False, resume=True, **options)
    assert all(map(torch.equal, whole.parameters(), again.parameters()))
