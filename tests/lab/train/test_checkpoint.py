import csv
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from battery.files import Forged
from graphtheory.lab.train import FitResult, FullGraph, NodeTask, checkpoint, fit, watch
from graphtheory.lab.train.checkpoint import CheckpointError, load_parameters, read_checkpoint
from graphtheory.patterns import Sample
from tests.lab.train.conftest import make_data, new_task, without_time

CONTENT = {"numbers": [1, (2, 3)], "weights": torch.arange(200.0)}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    checkpoint.write_checkpoint(path, CONTENT)
    return path


def test_every_flipped_bit_and_every_truncation_is_noticed(written: Path) -> None:
    for found in (read_checkpoint(written), torch.load(written, weights_only=True)):
        assert found["numbers"] == CONTENT["numbers"]
        assert torch.equal(found["weights"], CONTENT["weights"])
    assert list(written.parent.iterdir()) == [written]
    raw, draw = written.read_bytes(), random.Random(0)
    places = [draw.randrange(8 * len(raw)) for _ in range(300)] + list(range(-8 * 100, 0, 5))
    for place in places:
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        written.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"last.ckpt: .*(damaged|without a digest)"):
            read_checkpoint(written)
    raw = written.read_bytes()
    for length in {0, 1, 22, len(raw) - 1, *range(0, len(raw), 97)}:
        written.write_bytes(raw[:length])
        with pytest.raises(CheckpointError, match=f"{length} bytes without a digest"):
            read_checkpoint(written)


@pytest.mark.parametrize("content", [b"<html>not found</html>", b"PK\x05\x06" + b"\0" * 200, None])
def test_other_files_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.ckpt"
    torch.save(CONTENT, path)
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"without a digest.* not written by graphtheory"):
        read_checkpoint(path)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    checkpoint.write_checkpoint(tmp_path / "x.ckpt", {"state_dict": Forged(Path.touch, [canary])})
    with pytest.raises(CheckpointError, match=r"x.ckpt: holds more than tensors"):
        read_checkpoint(tmp_path / "x.ckpt")
    assert not canary.exists()


def test_content_is_on_disk_before_the_name(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        events.append("folder" if S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    checkpoint.write_checkpoint(written, CONTENT)
    assert events == ["content", "rename", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_full_disks_lose_nothing(written: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before = written.read_bytes()
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match=r"\d+ bytes needed, \d+ free; an earlier file is intact"):
        checkpoint.replace_file(written, b"new")
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_parameters_go_into_a_task_of_the_same_model(tmp_path: Path) -> None:
    task, other, path = new_task(), new_task(), tmp_path / "x.ckpt"
    nn.init.ones_(task.model.linear.weight)
    checkpoint.write_checkpoint(path, {"state_dict": task.state_dict()})
    load_parameters(other, path)
    assert torch.equal(other.model.linear.weight, task.model.linear.weight)
    checkpoint.write_checkpoint(path, {"state_dict": {"model.linear.weight": torch.zeros(3, 5)}})
    message = r"x.ckpt: .* than OneLayer: model.linear.weight is \[3, 5\] there, \[3, 8\] here"
    with pytest.raises(CheckpointError, match=message):
        load_parameters(other, path)
    checkpoint.write_checkpoint(path, CONTENT)
    with pytest.raises(CheckpointError, match=r"x.ckpt: without parameters of a task"):
        load_parameters(other, path)


def test_first_difference_goes_down() -> None:
    for found, expected, said in (
        ({"a": {"b": 1}}, {"a": {"b": 1}}, ""),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a: b is 1 there, 2 here"),
        ({}, {"a": 1}, "a is absent there, 1 here"),
        ({"a": 1}, {}, "a is 1 there, absent here"),
    ):
        assert checkpoint.first_difference(found, expected) == said


def train(task: NodeTask, data: Data, folder: Path, epochs: int = 4, **options: Any) -> FitResult:
    return fit(task, FullGraph(data), epochs=epochs, out_dir=folder, progress=False, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[FitResult, Path]:
    """A run of four epochs that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "new" / "run"
    folder.mkdir(parents=True)
    (folder / ".last.ckpt.1.draft").touch()  # of a run that was killed
    return train(new_task(), make_data(), folder), folder


@pytest.fixture
def finished(whole: tuple[FitResult, Path], tmp_path: Path) -> Path:
    """A folder of a test's own with what that run left."""
    return shutil.copytree(whole[1], tmp_path / "run")


def test_a_run_leaves_three_checkpoints_and_a_log(whole: tuple[FitResult, Path]) -> None:
    result, folder = whole
    names = {path.name for path in folder.iterdir()}
    assert names == {".lock", "best.ckpt", "history.csv", "last.ckpt", "previous.ckpt"}
    with (folder / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["epoch", "train_loss", "val_loss", "val", "seconds"]  # no test score
    logged = [{name: float(value) for name, value in row.items()} for row in rows]
    assert logged == [{k: v for k, v in row.items() if k != "test"} for row in result.history]
    content = read_checkpoint(folder / "last.ckpt")
    assert content["run"]["model"] == "OneLayer" and content["run"]["data"]["name"] == "small"
    assert content["run"]["parameters"]["model.linear.weight"] == [3, 8]
    assert set(content["versions"]) == {"torch", "lightning"}


def test_best_is_the_best_epoch(data: Data, tmp_path: Path) -> None:
    task = new_task(lr=0.3)
    result = train(task, data, tmp_path, epochs=12)
    assert result.best_epoch < 12
    other = new_task()
    load_parameters(other, tmp_path / "best.ckpt")
    evaluation = FullGraph(data).evaluation_batch()
    assert other.evaluate(evaluation).val == result.val == task.evaluate(evaluation).val
    load_parameters(other, tmp_path / "last.ckpt")
    assert other.evaluate(evaluation).val == result.history[-1]["val"] != result.val


def test_no_folder_no_file(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fit(new_task(), FullGraph(data), epochs=2, progress=False)
    assert list(tmp_path.iterdir()) == []


class Wider(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)


def other_labels(data: Data) -> FullGraph:
    data.y[0] = (data.y[0] + 1) % 3
    return FullGraph(data)


CHANGES: dict[str, tuple[Callable[[], NodeTask], Callable[[Data], FullGraph], int, str]] = {
    "model": (
        lambda: NodeTask(Wider(), num_classes=3), FullGraph, 0,
        "model is OneLayer there, Wider here",
    ),
    "layer": (
        lambda: new_task(dropout=0.2), FullGraph, 0,
        r"layers: line 3 is .*Dropout\(p=0.5.* there, .*Dropout\(p=0.2.* here",
    ),
    "step": (lambda: new_task(lr=0.5), FullGraph, 0, r"optimizer is .*lr=0.01.*lr=0.5.* here"),
    "seed": (new_task, FullGraph, 1, "seed is 0 there, 1 here"),
    "data": (new_task, other_labels, 0, "data: sha256 is .* there, .* here"),
    "pattern": (
        new_task, lambda data: FullGraph(data, Sample(3)), 0, "data: pattern is None there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_another_run_is_not_resumed(data: Data, finished: Path, change: str) -> None:
    task, module, seed, message = CHANGES[change]
    options = {"epochs": 8, "out_dir": finished, "resume": True, "progress": False}
    with pytest.raises(CheckpointError, match=f"last.ckpt: .*another run: {message}"):
        fit(task(), module(data), seed=seed, **options)


def test_a_damaged_checkpoint_is_not_resumed(data: Data, finished: Path) -> None:
    path = finished / "last.ckpt"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"last.ckpt: damaged.*previous.ckpt.* is whole"):
        train(new_task(), data, finished, resume=True)
    (finished / "previous.ckpt").write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"last.ckpt: damaged[^;]*; restore a copy[^;]*$"):
        train(new_task(), data, finished, resume=True)


@pytest.mark.parametrize("links", [True, False])
def test_a_run_goes_on_from_the_checkpoint_before_the_last(
    data: Data, whole: tuple[FitResult, Path], tmp_path: Path, links: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def refuse(*paths: object) -> None:
        raise OSError("a disk without links")

    if not links:
        monkeypatch.setattr("os.link", refuse)
    train(new_task(), data, tmp_path)
    assert read_checkpoint(tmp_path / "previous.ckpt")["epoch"] == 2
    (tmp_path / "previous.ckpt").replace(tmp_path / "last.ckpt")
    again, expected = train(new_task(), data, tmp_path, resume=True), whole[0]
    assert without_time(again) == without_time(expected)
    assert again.best_epoch == expected.best_epoch


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/1/graphtheory", "full disk"])
def test_a_place_that_cannot_be_written_is_refused(
    data: Data, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(NodeTask, "training_step", None)  # refused before anything is trained
    message = "out_dir cannot be written to: "
    if where == "full disk":
        full = shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
        message = r"out_dir: \d+ bytes needed, 1000 free"
    with pytest.raises(OSError, match=message):
        train(new_task(), data, tmp_path / where)


def test_a_folder_in_use_is_refused_and_a_run_not_written_over(data: Data, finished: Path) -> None:
    before = (finished / "last.ckpt").read_bytes()
    with watch.locked(finished), pytest.raises(OSError, match="another run"):
        train(new_task(), data, finished, resume=True)
    with pytest.raises(FileExistsError, match="holds an earlier run; expected resume=True"):
        train(new_task(), data, finished)
    assert (finished / "last.ckpt").read_bytes() == before
    assert train(new_task(), data, finished, resume=True).epochs == 4


def test_places_are_in_the_order_of_the_trainings(tmp_path: Path) -> None:
    assert checkpoint.next_place() is None
    with checkpoint.checkpoint_dir(tmp_path):
        assert [checkpoint.next_place() for _ in range(2)] == [tmp_path / "0", tmp_path / "1"]
        with checkpoint.checkpoint_dir(tmp_path / "inner"):
            assert checkpoint.next_place() == tmp_path / "inner" / "0"
        assert checkpoint.next_place() == tmp_path / "2"
    assert checkpoint.next_place() is None


def test_a_fit_goes_on_exactly(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(stop: int = 0) -> tuple[list[int], NodeTask]:
        seen: list[int] = []

        def listener(row: dict[str, float]) -> None:
            seen.append(int(row["epoch"]))
            if len(seen) == stop:
                raise RuntimeError("stopped")

        task = new_task()
        fit(task, FullGraph(data), epochs=6, progress=listener)
        return seen, task

    with checkpoint.checkpoint_dir(tmp_path):
        whole = run()[1]
    assert not list(tmp_path.rglob("*.ckpt"))  # within a minute nothing is written
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    with checkpoint.checkpoint_dir(tmp_path), pytest.raises(RuntimeError, match="stopped"):
        run(stop=4)
    assert [p.name for p in (tmp_path / "0").iterdir() if p.name[0] != "."] == ["last.ckpt"]
    with checkpoint.checkpoint_dir(tmp_path):
        seen, resumed = run()
        assert seen == [4, 5, 6]  # the fourth was told before it was written
        own = fit(new_task(), FullGraph(data), epochs=2, out_dir=tmp_path / "own", progress=False)
        assert own.epochs == 2 and (tmp_path / "own" / "history.csv").exists()
    same = zip(whole.parameters(), resumed.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_a_training_goes_on_where_its_state_cannot_be_written(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    (tmp_path / "file").touch()
    with (
        checkpoint.checkpoint_dir(tmp_path / "file"),
        pytest.warns(UserWarning, match="state of a training was not"),
    ):
        assert fit(new_task(), FullGraph(data), epochs=3, progress=False).epochs == 3


def test_another_state_is_refused(tmp_path: Path) -> None:
    def state(width: int, **settings: int) -> checkpoint.TrainingState:
        parts = {"model": torch.nn.Linear(width, 1)}
        return checkpoint.TrainingState(tmp_path / "a.ckpt", settings, torch.Generator(), parts)

    assert state(2, seed=0).restore() == []
    state(2, seed=0).save([0.5])
    assert not (tmp_path / "a.ckpt").exists()
    state(2, seed=0).save([0.5], last=True)
    assert state(2, seed=0).restore() == [0.5]
    for other in (state(3, seed=0), state(2, seed=1)):
        with pytest.raises(CheckpointError, match="another training: "):
            other.restore()
