"""Trainings of a study that keep their state and go on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import CheckpointError, FullGraph, NodeTask, fit, partial
from graphtheory.lab.train.partial import TrainingState, checkpoint_dir, next_place

NewTask = Callable[..., NodeTask]


def test_places_are_in_the_order_of_the_trainings(tmp_path: Path) -> None:
    assert next_place() is None
    with checkpoint_dir(tmp_path):
        assert [next_place() for _ in range(2)] == [tmp_path / "0", tmp_path / "1"]
        with checkpoint_dir(tmp_path / "inner"):
            assert next_place() == tmp_path / "inner" / "0"
        assert next_place() == tmp_path / "2"
    assert next_place() is None


def test_a_fit_goes_on_to_the_same_bits(
    data: Data, new_task: NewTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "SECONDS", 0.0)

    def run(stop: int = 0) -> tuple[list[int], NodeTask]:
        seen: list[int] = []

        def listener(row: dict[str, float]) -> None:
            seen.append(int(row["epoch"]))
            if len(seen) == stop:
                raise RuntimeError("stopped")

        task = new_task()
        fit(task, FullGraph(data), epochs=6, progress=listener)
        return seen, task

    whole = run()[1]
    with checkpoint_dir(tmp_path), pytest.raises(RuntimeError, match="stopped"):
        run(stop=4)
    assert [p.name for p in (tmp_path / "0").iterdir() if p.name[0] != "."] == ["last.ckpt"]
    with checkpoint_dir(tmp_path):
        seen, resumed = run()
        assert seen == [4, 5, 6]  # the fourth was told before it was written
        own = fit(new_task(), FullGraph(data), epochs=2, out_dir=tmp_path / "own", progress=False)
        assert own.epochs == 2 and (tmp_path / "own" / "history.csv").exists()
    same = zip(whole.parameters(), resumed.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_short_fits_write_nothing(data: Data, new_task: NewTask, tmp_path: Path) -> None:
    with checkpoint_dir(tmp_path):
        fit(new_task(), FullGraph(data), epochs=3, progress=False)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_training_goes_on_where_its_state_cannot_be_written(
    data: Data, new_task: NewTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "SECONDS", 0.0)
    (tmp_path / "file").touch()
    with (
        checkpoint_dir(tmp_path / "file"),
        pytest.warns(UserWarning, match="state of a training was not"),
    ):
        assert fit(new_task(), FullGraph(data), epochs=3, progress=False).epochs == 3


def test_another_state_is_refused(tmp_path: Path) -> None:
    def state(width: int, **settings: int) -> TrainingState:
        model = torch.nn.Linear(width, 1)
        return TrainingState(tmp_path / "a.ckpt", settings, torch.Generator(), model=model)

    assert state(2, seed=0).restore() == []
    state(2, seed=0).save([0.5])
    assert not (tmp_path / "a.ckpt").exists()
    state(2, seed=0).save([0.5], last=True)
    assert state(2, seed=0).restore() == [0.5]
    for other in (state(3, seed=0), state(2, seed=1)):
        with pytest.raises(CheckpointError, match="another training: "):
            other.restore()
