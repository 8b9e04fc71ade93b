import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.train import FitResult, FullGraph, NodeTask, SampledGraph, fit, read_checkpoint
from graphtheory.lab.train.fit import quiet_lightning
from graphtheory.patterns import Sample
from tests.lab.train.conftest import OneLayer, new_task, without_time

MODULES = {
    "full": FullGraph,
    "random pattern": lambda data: FullGraph(data, Sample(5, whole_graph=True)),
    "sampled": lambda data: SampledGraph(data, num_neighbors=[3, 3], batch_size=8),
}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_it_learns(data: Data) -> None:
    before = new_task().evaluate(FullGraph(data).evaluation_batch()).val_loss
    result = fit(new_task(dropout=0.0, lr=0.05), FullGraph(data), epochs=60, progress=False)
    losses = [row["train_loss"] for row in result.history]
    assert losses[-1] < 0.7 * losses[0]
    assert min(row["val_loss"] for row in result.history) < before
    assert result.seconds_per_epoch > 0 and result.peak_mb >= 0


def test_the_caller_keeps_random_state_and_the_seed_decides(data: Data) -> None:
    def run(seed: int) -> list[dict[str, float]]:
        return without_time(fit(new_task(), FullGraph(data), epochs=3, seed=seed, progress=False))

    task, before = new_task(), torch.get_rng_state()
    first = without_time(fit(task, FullGraph(data), epochs=3, progress=False))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert run(0) == first != run(1)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_a_run_in_parts_is_the_run_in_one(
    data: Data, tmp_path: Path, module: Callable[[Data], FullGraph]
) -> None:
    if module is MODULES["sampled"]:
        pytest.importorskip("torch_sparse", reason="PyG's sampler needs torch-sparse")

    def run(folder: str, epochs: int, **options: bool) -> FitResult:
        return fit(
            new_task(average=0.9), module(data), epochs=epochs, out_dir=tmp_path / folder,
            progress=False, **options,
        )  # fmt: skip

    whole = run("whole", 7)
    for epochs in (2, 3, 7):
        torch.manual_seed(epochs)  # the state outside does not matter
        parts = run("parts", epochs, resume=True)
    assert without_time(parts) == without_time(whole)
    one, other = (read_checkpoint(tmp_path / name / "last.ckpt") for name in ("whole", "parts"))
    assert equal(one["state_dict"], other["state_dict"])
    states = [c["optimizer_states"][0]["state"] for c in (one, other)]
    assert all(equal(states[0][i], states[1][i]) for i in states[0])
    log = (tmp_path / "parts" / "history.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in log] == ["epoch", *"1234567"]


def test_resuming_a_finished_run_trains_nothing(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"epochs": 50, "patience": 2, "out_dir": tmp_path, "progress": False}
    task = new_task(lr=0.5)
    first = fit(task, FullGraph(data), **options)
    assert first.epochs < 50
    monkeypatch.setattr(NodeTask, "training_step", None)
    again = new_task(lr=0.5)
    assert fit(again, FullGraph(data), resume=True, **options) == first
    assert equal(again.state_dict(), task.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs: got 0, expected 1 or more"),
        ({"patience": 0}, "patience: got 0, expected 1 or more"),
        ({"seed": -1}, "seed: got -1, expected 0 or more"),
        ({"resume": True}, "resume: got True with out_dir=None"),
    ],
)
def test_refuses(data: Data, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(new_task(), FullGraph(data), progress=False, **options)


def test_labels_beyond_the_classes_are_refused(data: Data) -> None:
    with pytest.raises(ValueError, match=r"data.y: \d+ nodes .*expected 0\.\.1"):
        fit(NodeTask(OneLayer(2), num_classes=2), FullGraph(data), progress=False)


@pytest.mark.slow  # a measurement: right on a machine that does nothing else
def test_an_epoch_costs_little_more_than_a_bare_one(data: Data) -> None:
    epochs, batch = 100, FullGraph(data).train_batch(0)

    def bare() -> float:
        task, began = new_task(), process_time()
        optimizer = task.configure_optimizers()
        for _ in range(epochs):
            optimizer.zero_grad()
            task.training_step(batch, 0).backward()
            optimizer.step()
            task.evaluate(FullGraph.evaluation_batch(module))
        return process_time() - began

    def fitted() -> float:
        began = process_time()
        fit(new_task(), module, epochs=epochs, patience=epochs, progress=False)
        return process_time() - began

    module = FullGraph(data)
    more = min(fitted() for _ in range(3)) - min(bare() for _ in range(3))
    assert more / epochs < 3e-3


def test_quiet_is_only_inside_and_only_that() -> None:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    old = "`isinstance(treespec, LeafSpec)` is deprecated"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_lightning():
            assert not logger.isEnabledFor(logging.INFO) and logger.isEnabledFor(logging.WARNING)
            warnings.warn(old, FutureWarning, stacklevel=1)
            with pytest.raises(UserWarning, match="anything else"):
                warnings.warn("anything else", UserWarning, stacklevel=1)
        with pytest.raises(FutureWarning):
            warnings.warn(old, FutureWarning, stacklevel=1)
    assert logger.level == level
    logger.setLevel(logging.CRITICAL)
    with quiet_lightning():  # a level that is quieter still is kept
        assert logger.level == logging.CRITICAL
    logger.setLevel(level)
