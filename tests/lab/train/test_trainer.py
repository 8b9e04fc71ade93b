"""Schedules, clipping, accumulation, precision, callbacks, loggers and several devices."""

import csv
import json
import os
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LambdaCallback,
    LearningRateMonitor,
    ModelCheckpoint,
)
from lightning.pytorch.loggers import CSVLogger
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch_geometric.data import Data

from battery.forked import printed
from graphtheory.lab.train import AdamOptions, FullGraph, NodeTask, SampledLayers
from graphtheory.lab.train.checkpoint import CheckpointError, read_checkpoint
from graphtheory.lab.train.fit import FitResult, TrainerOptions, fit
from graphtheory.models import SampledGCN
from graphtheory.patterns import Compose, UniformNodes
from tests.lab.train.conftest import make_data, new_task, without_time

PLATEAU = partial(ReduceLROnPlateau, factor=0.5, patience=0, threshold=10.0)


class Steps(Callback):
    """Notes the step size of every epoch and the norm of the gradient after every batch."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.norms: list[float] = []
        self.ends = 0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        grads = [p.grad.norm() for p in pl_module.model.parameters()]
        self.norms.append(float(torch.stack(grads).norm()))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.ends += 1

    def state_dict(self) -> dict[str, Any]:
        return {"ends": self.ends}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.ends = state_dict["ends"]


def batches(data: Data) -> SampledLayers:
    """Five batches of four nodes in an epoch."""
    return SampledLayers(data, UniformNodes(share=0.5), 1, evaluation=Compose(), batch_size=4)


def run(data: Data, *, epochs: int = 6, several: bool = False, **given: Any) -> FitResult:
    names = ("schedule", "warmup", "clip", "lr", "average")
    options = {name: given.pop(name) for name in names if name in given}
    task = new_task(dropout=0.2, several=several, **options)
    source = batches(data) if several else FullGraph(data)
    return fit(task, source, epochs=epochs, patience=99, progress=False, **given)


@pytest.mark.parametrize(("options", "expected"), [
    ({}, [1, 1, 1, 1]),
    ({"warmup": 2}, [0.5, 1, 1, 1]),
    ({"schedule": "linear"}, [1, 0.75, 0.5, 0.25]),
    ({"schedule": "linear", "warmup": 2}, [0.5, 1, 1, 0.5]),
    ({"schedule": "cosine"}, [1, 0.853553, 0.5, 0.146447]),
    ({"schedule": partial(StepLR, step_size=2)}, [1, 1, 0.1, 0.1]),
    ({"schedule": partial(StepLR, step_size=2), "warmup": 1}, [1, 1, 1, 0.1]),
    ({"schedule": PLATEAU}, [1, 0.5, 0.25, 0.125]),
])  # fmt: skip
def test_step_sizes_of_epochs(data: Data, options: dict[str, Any], expected: list[float]) -> None:
    steps = Steps()
    run(data, epochs=4, lr=1.0, trainer=TrainerOptions(callbacks=[steps]), **options)
    assert steps.rates == pytest.approx(expected, abs=1e-6)


def test_a_schedule_may_move_after_every_step(data: Data) -> None:
    def halved(optimizer: Any) -> dict[str, Any]:
        return {"scheduler": LambdaLR(optimizer, lambda n: 0.5**n), "interval": "step"}

    steps = Steps()
    trainer = TrainerOptions(callbacks=[steps], accumulate=2)  # 3 steps in 5 batches
    run(data, epochs=3, several=True, lr=1.0, schedule=halved, trainer=trainer)
    assert steps.rates == [1, 0.5**3, 0.5**6]


def test_gradients_are_clipped_and_accumulated(data: Data) -> None:
    free, clipped = Steps(), Steps()
    run(data, several=True, trainer=TrainerOptions(callbacks=[free]))
    run(data, several=True, clip=0.01, trainer=TrainerOptions(callbacks=[clipped]))
    assert max(clipped.norms) < 0.010001 < min(free.norms) and len(free.norms) == 30


def test_nothing_given_is_the_run_that_it_was(data: Data) -> None:
    plain = run(data)
    assert without_time(run(data, trainer=TrainerOptions(callbacks=[Steps()]))) == (
        without_time(plain)
    )
    half = run(data, trainer=TrainerOptions(precision="bf16-mixed"))
    assert without_time(half) != without_time(plain)
    assert half.history[0]["train_loss"] == pytest.approx(plain.history[0]["train_loss"], rel=0.02)


@pytest.mark.parametrize("options", [
    {"schedule": "cosine", "warmup": 2, "clip": 0.1},
    {"schedule": PLATEAU, "clip": 0.1},
    {"schedule": lambda o: {"scheduler": OneCycleLR(o, 1.0, 100), "interval": "step"}},
], ids=["cosine", "plateau", "one cycle"])  # fmt: skip
def test_runs_in_parts_are_runs_in_one(data: Data, tmp_path: Path, options: dict[str, Any]) -> None:
    def part(folder: str, at: int | None = None, **more: Any) -> tuple[FitResult | None, Steps]:
        def stop(trainer: Any, task: Any) -> None:
            if trainer.current_epoch == at:
                raise KeyboardInterrupt

        steps, stopper = Steps(), LambdaCallback(on_train_epoch_start=stop)
        trainer = TrainerOptions(accumulate=2, precision="bf16-mixed", callbacks=[steps, stopper])
        more |= options | {"average": 0.9, "out_dir": tmp_path / folder}
        try:
            return run(data, several=True, trainer=trainer, **more), steps
        except (KeyboardInterrupt, SystemExit):
            return None, steps

    whole, steps = part("whole")
    assert whole is not None and steps.ends == 6
    assert part("parts", 2)[0] is None and part("parts", 3, resume=True)[0] is None
    parts, last = part("parts", resume=True)
    assert parts is not None and without_time(parts) == without_time(whole)
    assert last.ends == 6 and last.rates == steps.rates[3:]
    one, other = (read_checkpoint(tmp_path / name / "last.ckpt") for name in ("whole", "parts"))
    assert all(torch.equal(v, other["state_dict"][k]) for k, v in one["state_dict"].items())


@pytest.mark.parametrize(("first", "then", "message"), [
    ({"schedule": "cosine"}, {"epochs": 9}, "epochs is 6 there, 9 here"),
    ({"clip": 1.0}, {}, "clip=1.0"),
    ({}, {"warmup": 3}, "warmup=3"),
    ({"schedule": partial(StepLR, step_size=2)}, {}, "StepLR"),
    ({"trainer": TrainerOptions(accumulate=2)}, {}, "accumulate is 2 there, absent here"),
])  # fmt: skip
def test_another_way_to_learn_is_another_run(
    data: Data, tmp_path: Path, first: dict[str, Any], then: dict[str, Any], message: str
) -> None:
    run(data, out_dir=tmp_path, **first)
    again = first | then if "epochs" in then else then
    with pytest.raises(CheckpointError, match=message):
        run(data, out_dir=tmp_path, resume=True, **again)


def test_loggers_and_callbacks_get_epochs_without_test_scores(data: Data, tmp_path: Path) -> None:
    logger, best = CSVLogger(tmp_path / "log"), ModelCheckpoint(tmp_path / "best", monitor="val")
    callbacks = [LearningRateMonitor("epoch"), best]
    found = run(data, trainer=TrainerOptions(callbacks=callbacks, loggers=[logger]))
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["val_loss"]]
    assert [float(row["val"]) for row in rows] == pytest.approx([r["val"] for r in found.history])
    assert [row["epoch"] for row in rows] == list("012345") and "test" not in rows[0]
    assert Path(best.best_model_path).is_file()


def test_a_callback_that_stops_has_ended_the_run(data: Data, tmp_path: Path) -> None:
    def part(resume: bool) -> FitResult:
        stop = EarlyStopping("val_loss", patience=1, min_delta=100.0)
        trainer = TrainerOptions(callbacks=[stop])
        return run(data, out_dir=tmp_path, resume=resume, trainer=trainer)

    first = part(False)
    assert first.epochs == 2 and part(True) == first


@pytest.mark.parametrize(("kind", "options", "message"), [
    (AdamOptions, {"schedule": "step"}, "schedule: got 'step', expected 'cosine', 'linear'"),
    (AdamOptions, {"warmup": -1}, "warmup: got -1, expected 0 or more epochs"),
    (AdamOptions, {"clip": 0.0}, "clip: got 0.0, expected a norm above 0"),
    (TrainerOptions, {"accumulate": 0}, "accumulate: got 0, expected 1 or more"),
    (TrainerOptions, {"num_nodes": 0}, "num_nodes: got 0, expected 1 or more"),
    (TrainerOptions, {"precision": "bf16-true"}, "precision: got 'bf16-true', expected one of"),
    (TrainerOptions, {"callbacks": [3]}, "callbacks: got a builtins.int, expected those of"),
    (TrainerOptions, {"loggers": ["csv"]}, "loggers: got a builtins.str, expected those of"),
])  # fmt: skip
def test_refuses(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        kind(**options)


def test_processes_that_nobody_can_follow_are_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="strategy: 'ddp_spawn' forks or spawns"):
        run(data, trainer=TrainerOptions(device="cpu", devices=2, strategy="ddp_spawn"))


SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.lab.train.test_trainer import six_runs

out = Path(sys.argv[1])
found = six_runs(out, devices=2, strategy="ddp")
(out / f"rank{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))
"""


def six_runs(out: Path, **options: Any) -> list[Any]:
    """History and sum of parameters of each."""

    def in_rows(rows: int | None) -> Any:
        torch.manual_seed(0)
        sampled = SampledLayers(
            make_data(), UniformNodes(share=0.5), 3, evaluation=Compose(), batch_size=4,
            evaluation_rows=rows,
        )  # fmt: skip
        trainer = TrainerOptions(device="cpu", **options)
        task = NodeTask(SampledGCN(8, 4, 3), num_classes=3)
        return without_time(fit(task, sampled, epochs=2, progress=False, trainer=trainer))

    def trained(folder: str, several: bool, epochs: int) -> tuple[Any, float]:
        task = new_task(dropout=0.0, average=0.9, several=several)
        data = (batches if several else FullGraph)(make_data())
        found = fit(
            task, data, epochs=epochs, out_dir=out / folder, resume=True, progress=False,
            trainer=TrainerOptions(device="cpu", **options),
        )  # fmt: skip
        parameters = sum(p.detach().abs().sum() for p in task.model.parameters())
        return without_time(found), float(parameters)

    return [
        trained("one", True, 4), trained("parts", True, 2), trained("parts", True, 4),
        trained("all", False, 3), in_rows(None), in_rows(7),
    ]  # fmt: skip


def run_script(folder: Path) -> None:
    """As Python runs it: Lightning starts the second process by the name of the script."""
    sys.argv = [str(folder / "script.py"), str(folder)]
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])
    Path(sys.argv[0]).write_text(SCRIPT)
    runpy.run_path(sys.argv[0])


def test_two_processes_share_the_batches_of_an_epoch_and_go_on(tmp_path: Path) -> None:
    said, code = printed(run_script, tmp_path)
    assert code == 0, said[-3000:]
    both = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("rank*.json"))]
    assert len(both) == 2 and both[0] == both[1]
    whole, _, parts, graph, at_once, in_rows = both[0]
    for row, expected in zip(in_rows, at_once, strict=True):
        assert row == pytest.approx(expected, rel=1e-4)
    assert parts == whole and len(whole[0]) == 4
    lines = (tmp_path / "parts/history.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", *"1234"]
    alone, _, _, same, *_ = six_runs(tmp_path / "alone")
    assert alone[0] != whole[0]  # five batches in three steps
    assert same[1] == pytest.approx(graph[1], rel=1e-5)  # one batch with the whole graph
