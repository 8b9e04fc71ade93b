import os
import random
from collections.abc import Callable
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import pytest
import torch
from torch import nn

from graphtheory.lab.train import CheckpointError, NodeTask, load_parameters, read_checkpoint
from graphtheory.lab.train.checkpoint import first_difference, replace_file, write_checkpoint

CONTENT = {"numbers": [1, (2, 3)], "weights": torch.arange(200.0)}


class Evil:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "last.ckpt"
    write_checkpoint(path, CONTENT)
    return path


def test_what_was_written_is_read(written: Path) -> None:
    found = read_checkpoint(written)
    assert found["numbers"] == CONTENT["numbers"]
    assert torch.equal(found["weights"], CONTENT["weights"])
    assert list(written.parent.iterdir()) == [written]


def test_torch_reads_the_file_as_it_is(written: Path) -> None:
    found = torch.load(written, weights_only=True)
    assert torch.equal(found["weights"], CONTENT["weights"])


def test_every_flipped_bit_is_noticed(written: Path) -> None:
    raw, draw = written.read_bytes(), random.Random(0)
    places = [draw.randrange(8 * len(raw)) for _ in range(300)] + list(range(-8 * 100, 0, 5))
    for place in places:
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        written.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"last.ckpt: .*(damaged|without a digest)"):
            read_checkpoint(written)


def test_every_truncation_is_noticed(written: Path) -> None:
    raw = written.read_bytes()
    for length in {0, 1, 22, len(raw) - 1, *range(0, len(raw), 97)}:
        written.write_bytes(raw[:length])
        with pytest.raises(CheckpointError, match=f"{length} bytes without a digest"):
            read_checkpoint(written)


@pytest.mark.parametrize("content", [b"<html>not found</html>", b"PK\x05\x06" + b"\0" * 200])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.ckpt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not written by graphtheory"):
        read_checkpoint(path)


def test_a_plain_torch_file_is_refused(tmp_path: Path) -> None:
    torch.save(CONTENT, tmp_path / "x.ckpt")
    with pytest.raises(CheckpointError, match="without a digest"):
        read_checkpoint(tmp_path / "x.ckpt")


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write_checkpoint(tmp_path / "x.ckpt", {"state_dict": Evil(canary)})
    with pytest.raises(CheckpointError, match=r"x.ckpt: holds more than tensors"):
        read_checkpoint(tmp_path / "x.ckpt")
    assert not canary.exists()


def test_the_disk_has_the_content_before_the_name(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    write_checkpoint(written, CONTENT)
    assert events == ["content", "rename", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_costs_nothing_old(
    written: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    before = written.read_bytes()
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match=r"\d+ bytes needed, \d+ free; an earlier file is intact"):
        replace_file(written, b"new")
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_parameters_go_into_a_task(tmp_path: Path, new_task: Callable[..., NodeTask]) -> None:
    task = new_task()
    nn.init.ones_(task.model.linear.weight)
    write_checkpoint(tmp_path / "x.ckpt", {"state_dict": task.state_dict()})
    other = new_task()
    load_parameters(other, tmp_path / "x.ckpt")
    assert torch.equal(other.model.linear.weight, task.model.linear.weight)


def test_parameters_of_another_model_are_refused(
    tmp_path: Path, new_task: Callable[..., NodeTask]
) -> None:
    path = tmp_path / "x.ckpt"
    write_checkpoint(path, {"state_dict": {"model.linear.weight": torch.zeros(3, 5)}})
    message = (
        r"x.ckpt: .* model than OneLayer: model.linear.weight is \[3, 5\] there, \[3, 8\] here"
    )
    with pytest.raises(CheckpointError, match=message):
        load_parameters(new_task(), path)


def test_first_difference_goes_down() -> None:
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 1}}) == ""
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 2}}) == "a: b is 1 there, 2 here"
    assert first_difference({}, {"a": 1}) == "a is absent there, 1 here"
    assert first_difference({"a": 1}, {}) == "a is 1 there, absent here"
