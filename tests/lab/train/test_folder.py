import csv
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from torch import nn
from torch_geometric.data import Data

from graphtheory.lab.train import (
    CheckpointError,
    FitResult,
    FullGraph,
    NodeTask,
    fit,
    load_parameters,
    read_checkpoint,
)
from graphtheory.lab.train.folder import locked
from graphtheory.patterns import Sample

NewTask = Callable[..., NodeTask]


def train(
    task: NodeTask, data: Data, folder: Path, epochs: int = 4, **options: object
) -> FitResult:
    return fit(task, FullGraph(data), epochs=epochs, out_dir=folder, progress=False, **options)


def test_a_run_leaves_three_checkpoints_and_a_log(
    data: Data, new_task: NewTask, tmp_path: Path
) -> None:
    result = train(new_task(), data, tmp_path / "new" / "run")
    folder = tmp_path / "new" / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {".lock", "best.ckpt", "history.csv", "last.ckpt", "previous.ckpt"}
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "train_loss", "val_loss", "val", "seconds"]  # no test score
    logged = [{name: float(value) for name, value in row.items()} for row in rows]
    assert logged == [{k: v for k, v in row.items() if k != "test"} for row in result.history]


def test_best_is_the_best_epoch(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    task = new_task(lr=0.3)
    result = train(task, data, tmp_path, epochs=12)
    assert result.best_epoch < 12
    other = new_task()
    load_parameters(other, tmp_path / "best.ckpt")
    evaluation = FullGraph(data).evaluation_batch()
    assert other.evaluate(evaluation).val == result.val == task.evaluate(evaluation).val
    load_parameters(other, tmp_path / "last.ckpt")
    assert other.evaluate(evaluation).val == result.history[-1]["val"] != result.val


def test_checkpoints_say_what_they_are(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    train(new_task(), data, tmp_path)
    content = read_checkpoint(tmp_path / "last.ckpt")
    assert content["run"]["model"] == "OneLayer" and content["run"]["data"]["name"] == "small"
    assert content["run"]["parameters"]["model.linear.weight"] == [3, 8]
    assert set(content["versions"]) == {"torch", "lightning"}


def test_nothing_is_written_without_a_folder(
    data: Data, new_task: NewTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_run_is_not_written_over(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    train(new_task(), data, tmp_path)
    before = (tmp_path / "last.ckpt").read_bytes()
    with pytest.raises(FileExistsError, match="holds an earlier run; expected resume=True"):
        train(new_task(), data, tmp_path)
    assert (tmp_path / "last.ckpt").read_bytes() == before


class Change(NamedTuple):
    task: Callable[[NewTask], NodeTask]
    data: Callable[[Data], FullGraph]
    seed: int
    message: str


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)


def other_model(new_task: NewTask) -> NodeTask:
    return NodeTask(Wider(), num_classes=3)


def other_labels(data: Data) -> FullGraph:
    data.y[0] = (data.y[0] + 1) % 3
    return FullGraph(data)


CHANGES = {
    "model": Change(other_model, FullGraph, 0, "model is OneLayer there, Wider here"),
    "layer": Change(
        lambda new: new(dropout=0.2), FullGraph, 0,
        r"layers: line 3 is .*Dropout\(p=0.5.* there, .*Dropout\(p=0.2.* here",
    ),
    "step": Change(lambda new: new(lr=0.5), FullGraph, 0, r"optimizer is .*lr=0.01.*lr=0.5.* here"),
    "seed": Change(lambda new: new(), FullGraph, 1, "seed is 0 there, 1 here"),
    "data": Change(lambda new: new(), other_labels, 0, "data: sha256 is .* there, .* here"),
    "pattern": Change(
        lambda new: new(), lambda data: FullGraph(data, Sample(3)), 0, "data: pattern is None there"
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_run_is_not_resumed(
    data: Data, new_task: NewTask, tmp_path: Path, change: Change
) -> None:
    train(new_task(), data, tmp_path)
    with pytest.raises(CheckpointError, match=f"last.ckpt: .*another run: {change.message}"):
        fit(
            change.task(new_task), change.data(data), seed=change.seed, epochs=8,
            out_dir=tmp_path, resume=True, progress=False,
        )  # fmt: skip


def test_a_damaged_checkpoint_is_not_resumed(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    train(new_task(), data, tmp_path)
    path = tmp_path / "last.ckpt"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"last.ckpt: damaged.*previous.ckpt.* is whole"):
        train(new_task(), data, tmp_path, resume=True)
    (tmp_path / "previous.ckpt").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"last.ckpt: damaged[^;]*; restore a copy[^;]*$"):
        train(new_task(), data, tmp_path, resume=True)


@pytest.mark.parametrize("links", [True, False])
def test_a_run_goes_on_from_the_checkpoint_before_the_last(
    data: Data, new_task: NewTask, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*paths: object) -> None:
        raise OSError("a disk without links")

    whole = train(new_task(), data, tmp_path / "whole")
    if not links:
        monkeypatch.setattr("os.link", refuse)
    folder = tmp_path / "run"
    train(new_task(), data, folder)
    assert read_checkpoint(folder / "previous.ckpt")["epoch"] == 2
    (folder / "previous.ckpt").replace(folder / "last.ckpt")
    again = train(new_task(), data, folder, resume=True)
    times = ("seconds", "memory")
    one, other = (
        [{k: v for k, v in row.items() if k not in times} for row in result.history]
        for result in (whole, again)
    )
    assert one == other and again.best_epoch == whole.best_epoch


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/1/graphtheory"])
def test_a_place_that_cannot_be_written_is_refused(
    data: Data, new_task: NewTask, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(NodeTask, "training_step", None)  # refused before anything is trained
    with pytest.raises(OSError, match="out_dir cannot be written to: "):
        train(new_task(), data, tmp_path / where)


def test_a_full_disk_is_refused(
    data: Data, new_task: NewTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(OSError, match=r"out_dir: \d+ bytes needed, 1000 free"):
        train(new_task(), data, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX systems only")
def test_a_folder_in_use_is_refused(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(OSError, match="another run"):
        train(new_task(), data, tmp_path)
    train(new_task(), data, tmp_path)


def test_leftovers_of_a_killed_run_are_swept(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    (tmp_path / ".last.ckpt.1.draft").touch()
    train(new_task(), data, tmp_path)
    assert not list(tmp_path.glob(".*.draft"))
