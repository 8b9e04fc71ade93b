from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphtheory.lab.bench import image_task
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns
from graphtheory.lab.bench.config import checked_options, with_options
from graphtheory.lab.bench.image_task import image_config, pictures, prepare
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.report.benchmark import ImageReport
from graphtheory.lab.zoo.image_models import NAMES
from tests.lab.drawing import one_picture_of_a_kind


def test_recipes_batches_and_options_of_a_set() -> None:
    for name in image_sets.names():
        trial = image_config(name, "stvit", epochs=3)
        assert trial.model == "stvit" and trial.recipe.epochs == 3
        assert replace(image_config(name, "vit"), model="swin") == image_config(name, "swin")
    flips = {name: image_config(name, "vit").recipe.augment.flip for name in image_sets.names()}
    assert not flips["mnist"] and not flips["digits"] and flips["cifar10"]
    sizes = [image_config("digits", "vit", epochs).batch_size for epochs in (40, 6, 1)]
    assert sizes == [32, 8, 8]  # 1,293 images
    given = {"lr": "0.01", "mixup": 0.2, "batch_size": 4, "tokens": "9"}

    def with_given(model: str, **options: Any) -> Any:
        config = image_config("digits", model, 1)
        return with_options(config, checked_options([config], options))

    found = with_given("stvit", **given)
    assert (found.recipe.lr, found.recipe.augment.mixup, found.batch_size) == (0.01, 0.2, 4)
    assert found.network.tokens == 9 and with_given("vit", **given).network.tokens is None
    with pytest.raises(
        ValueError, match=r"k: got 1\.5, expected a share below 1 or a whole number"
    ):
        with_given("kvt", k=1.5)
    with pytest.raises(ValueError, match="width: got 30, expected a multiple of heads=4"):
        with_given("vit", width=30)


def test_a_run_scores_the_test_images_once_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    images = image_sets.load("digits")
    quick = replace(image_config("digits", "cnn", epochs=2), batch_size=32)
    task, data = prepare(quick, images, seed=1)
    assert len(data.val) + len(data.train) == 1437
    opened: list[int] = []
    test = image_sets.ImageSet.test

    def noted(self: image_sets.ImageSet) -> image_sets.Images:
        opened.append(len(epochs))
        return test(self)

    monkeypatch.setattr(image_sets.ImageSet, "test", noted)
    epochs: list[float] = []
    found = image_task.train_images(
        task, data, images, seed=1, progress=lambda row: epochs.append(row["epoch"])
    )
    assert opened == [2]  # after both epochs
    assert found.fit.test == pytest.approx(float((found.predicted == found.y).double().mean()))
    assert found.fit.test > 0.5 and found.gmacs > 0
    table = found.rows(images)
    assert table[0] == ["image", "class", "predicted"] and len(table) == 361
    assert table[1] == ["0", str(int(found.y[0])), str(int(found.predicted[0]))]


def test_weights_and_images_follow_from_the_seed() -> None:
    images, trial = image_sets.load("digits"), image_config("digits", "vit")
    one, same, other = (prepare(trial, images, seed) for seed in (0, 0, 1))
    assert one[1].train.equal(same[1].train) and not one[1].train.equal(other[1].train)
    weights = [task.model.head.output.weight for task, _ in (one, same, other)]  # type: ignore[union-attr]
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


@pytest.mark.parametrize(("model", "expected"), [
    ("vit", {"class-attention"}), ("kvt", {"class-attention", "k-nearest"}),
    ("stvit", {"semantic-attention", "assignment"}), ("evit", {"assignment"}),
    ("swin", {"window-attention"}), ("vig", {"nearest-first", "nearest-last"}), ("cnn", set()),
])  # fmt: skip
def test_pictures_of_a_model(model: str, expected: set[str]) -> None:
    assert model in NAMES
    images = image_sets.load("digits")
    task, data = prepare(image_config("digits", model), images, seed=0)
    drawn = pictures(task, data.pixels[0])
    assert drawn.keys() == expected and task.training
    assert torch.is_grad_enabled()


def make(folder: Path, epochs: int = 1) -> Benchmark:
    record = FinishedRuns(folder / "runs.jsonl")
    task, options = image_task.ImageBenchTask("digits"), {"batch_size": 128}
    return Benchmark(task, ("cnn", "vit"), 1, epochs=epochs, record=record, options=options)


def test_finished_runs_are_taken_and_others_added(tmp_path: Path) -> None:
    first = make(tmp_path)
    runs = first.run()
    assert [(run.model, run.seed) for run in runs] == [("cnn", 0), ("vit", 0)]
    assert all(0 < run.extra["gmacs"] < 1 for run in runs)
    assert (tmp_path / "vit-0/last.ckpt").exists()
    again = make(tmp_path)
    assert again.count_known() == 2 and again.run() == runs
    with pytest.raises(ValueError, match="holds model cnn, seed 0 under other settings: recipe"):
        make(tmp_path, epochs=2).count_known()
    here = Environment("none", {}, "")
    report = ImageReport(again, runs, "the command", here)
    table = report.tables()[0]
    assert table.title == "digits (embedded), split random-90-10" and len(table.rows) == 2
    assert table.columns[-1] == "MMACs" and "1 seed." in table.note
    assert {row.name for row in report.rows()} >= {"multiply-accumulates of an image"}
    with one_picture_of_a_kind():
        html = report.page().html()
    assert "the command" in html and html.count("<img") == 4
