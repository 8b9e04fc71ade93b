"""The benchmark of scale: every part runs on small graphs and gives a row for each question."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> ModuleType:
    """The script, measuring in this process."""

    def here(what: str, **options: Any) -> Any:
        found = json.loads(json.dumps(module.measured(what, json.loads(json.dumps(options)))))
        return max(found, 1) if what == "flat" else found  # memory that is reused is not seen

    monkeypatch.setattr(module, "fresh", here)
    return module


def test_training_learns_and_names_every_network(scale: ModuleType) -> None:
    about = {"dataset": "digits", "root": None, "threads": 1, "batch_size": 256}
    rows = scale.train_rows(about, 1, 3)
    assert len(rows) == 5 * len(scale.EPOCHS)
    found = {(row.name, row.parameters["network"]): row.value for row in rows}
    for name in scale.EPOCHS:
        own = name.replace(",", ":")
        assert found["scale, test accuracy at best validation", own] > 25  # of ten classes
        assert found["scale, CPU time of an epoch", own] > 0
    assert found["scale, CPU time of an epoch over the full GCN's", "gcn: full"] == 1


def test_validation_decides_not_test(scale: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    data = scale.load("karate", None)
    right, wrong = data.y.clone(), 1 - data.y
    first = right.where(data.test_mask, wrong)  # good on the test alone
    second = right.where(data.val_mask, wrong)  # good on validation alone
    guesses = iter([first, second, first])
    job = scale.job_of("mlp, full", data, batch_size=8, seed=0)

    def predict() -> Any:
        return scale.torch.nn.functional.one_hot(next(guesses), 2).float()

    replaced = scale.Job(job.model, job.lr, job.batches, job.logits, job.labels, predict)
    monkeypatch.setattr(scale, "job_of", lambda *_, **__: replaced)
    found = scale.trained(data, "mlp, full", 3, 8, 0)
    assert (found["val"], found["test"]) == (100, 0)


def test_large_and_flat_give_rows_and_a_picture(
    scale: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scale, "LARGE", {"num_nodes": 3000, "num_links": 20_000, "max_degree": 300})
    monkeypatch.setattr(scale, "SIZES", (2000, 4000))
    monkeypatch.setattr(scale, "show", lambda rows: None)
    about = {"batch_size": 64, "threads": 1}
    large = scale.large_rows(about, 0.08)
    assert len(large) == 2 * 6 and all(row.value > 0 for row in large)
    flat = scale.flat_rows(about, steps=8, repeats=1)
    assert len(flat) == 2 * 2 * 3
    assert {row.parameters["nodes"] for row in flat} == {2000, 4000}
    scale.drawing(flat, tmp_path / "flat.png")
    assert (tmp_path / "flat.png").stat().st_size > 5000
