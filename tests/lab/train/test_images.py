import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphtheory.lab.train import CheckpointError, FitResult, ImageData, fit, read_checkpoint
from graphtheory.lab.train.images import Augmentation, ImageTask, Recipe, require_kornia


def some_data(**options: int) -> ImageData:
    pixels = torch.randint(256, (20, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    y, order = torch.arange(20) % 4, torch.arange(20)
    return ImageData(pixels.to(torch.uint8), y, order[:13], order[13:], batch_size=4, **options)


def test_an_epoch_is_a_shuffle_by_seed_whose_batches_hold_their_images() -> None:
    data = some_data()
    first = torch.cat(data.order(0))
    assert [len(part) for part in data.order(0)] == [4, 4, 4]
    assert len(first.unique()) == 12 and int(first.max()) < 13
    assert torch.cat(some_data().order(0)).equal(first)
    assert not torch.cat(data.order(1)).equal(first)
    assert not torch.cat(some_data(seed=1).order(0)).equal(first)
    loader = data.train_dataloader()
    assert len(loader) == 3
    for positions, batch in zip(data.order(0), loader, strict=True):
        assert batch.pixels.equal(data.pixels[positions]) and batch.y.equal(data.y[positions])
        assert batch.count == 4
    assert data.evaluation_batch().y.equal(data.y[13:])
    few = ImageData(data.pixels, data.y, data.train[:3], data.val)  # fewer than a batch are one
    assert [len(part) for part in few.order(0)] == [3] and len(few.train_dataloader()) == 1


def test_statistics_are_those_of_the_training_images_and_the_record_tells_data_apart() -> None:
    data = some_data()
    values = data.pixels[:13].double() / 255
    mean, std = data.statistics()
    assert torch.allclose(mean.double(), values.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(std.double(), values.std((0, 2, 3), correction=0), atol=1e-6)
    described, other = some_data().describe(), some_data()
    assert described == some_data().describe() != some_data(seed=1).describe()
    other.pixels[0, 0, 0, 0] += 1
    assert described["sha256"] != other.describe()["sha256"]


FEW, REST = torch.tensor([0, 1]), torch.tensor([2, 3])


@pytest.mark.parametrize(("changed", "error", "message"), [
    ({"pixels": torch.zeros(4, 1, 2, 2)}, TypeError,
     r"pixels: got torch.float32, expected a tensor of torch.uint8; .*as_pixels"),
    ({"y": torch.tensor([0, 1, 0])}, ValueError, "pixels, y: shapes"),
    ({"val": REST[:0]}, ValueError, "expected some of either"),
    ({"val": REST + 1}, ValueError, r"positions outside 0\.\.3"),
    ({"val": FEW}, ValueError, "in them twice"),
    ({"batch_size": 0}, ValueError, "batch_size: got 0"),
    ({}, ValueError, "2 labels out of range, the first is image 1 with 1"),
])  # fmt: skip
def test_wrong_images_are_refused(changed: Any, error: type[Exception], message: str) -> None:
    pixels, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    given = {"pixels": pixels, "y": y, "train": FEW, "val": REST} | changed
    with pytest.raises(error, match=message):
        ImageData(**given).check_classes(1)


CHANGES = Augmentation(crop=1, flip=True, erase=0.3, mixup=0.3, cutmix=0.3)


def images() -> ImageData:
    """Bright above or below."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    pixels = torch.randint(100, (60, 1, 8, 8), generator=generator)
    pixels[y == 0, :, :4] += 100
    pixels[y == 1, :, 4:] += 100
    order = torch.randperm(60, generator=generator)
    return ImageData(pixels.to(torch.uint8), y, order[:40], order[40:], batch_size=8)


def make(data: ImageData, **options: object) -> ImageTask:
    torch.manual_seed(0)
    recipe = Recipe(**{"epochs": 4, "lr": 0.01, **options})  # type: ignore[arg-type]
    first = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
    network = nn.Sequential(*first, nn.Dropout(0.2), nn.Linear(256, 2))
    return ImageTask(network, num_classes=2, statistics=data.statistics(), recipe=recipe)


def trained(task: ImageTask, data: ImageData, **options: object) -> FitResult:
    return fit(task, data, epochs=4, patience=4, progress=False, **options)  # type: ignore[arg-type]


def test_it_learns_and_no_test_part_is_looked_at() -> None:
    data = images()
    task = make(data)
    found = trained(task, data)
    assert found.val > 0.9 and found.test is None and "test" not in found.history[0]
    assert not task.training
    y = data.evaluation_batch().y
    right = (task.logits(data.evaluation_batch().pixels).argmax(1) == y).float().mean()
    assert float(right) == pytest.approx(found.val)


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    data = images()
    trained(make(data, augment=CHANGES), data, out_dir=tmp_path / "whole")

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise KeyError("stopped")

    parts: dict[str, Any] = {"out_dir": tmp_path / "parts"}
    with pytest.raises(KeyError, match="stopped"):
        fit(make(data, augment=CHANGES), images(), epochs=4, patience=4, progress=stop, **parts)
    torch.rand(3)  # the caller's random state plays no part
    trained(make(data, augment=CHANGES), images(), resume=True, **parts)
    one, other = (read_checkpoint(tmp_path / f"{name}/last.ckpt") for name in ("whole", "parts"))
    assert all(torch.equal(other["state_dict"][k], v) for k, v in one["state_dict"].items())
    assert one["lr_schedulers"] == other["lr_schedulers"]
    assert {"model.0.weight", "average.module.0.weight"} <= one["state_dict"].keys()
    (schedule,) = one["lr_schedulers"]  # the last step is small
    assert schedule["last_epoch"] == 4 * 5 and schedule["_last_lr"] == [0.0, 0.0]
    with pytest.raises(CheckpointError, match=r"another run: optimizer is Recipe.*epochs=4"):
        trained(make(data, augment=CHANGES, epochs=5), data, resume=True, **parts)


def test_steps_and_decay_of_a_recipe() -> None:
    steps = [Recipe(warmup=0.2).factor(step, 100) for step in range(101)]
    assert steps[0] == pytest.approx(1 / 20) and steps[19] == steps[20] == 1
    assert all(a >= b for a, b in pairwise(steps[20:]))
    assert steps[60] == pytest.approx(0.5) and steps[100] == 0
    assert steps[40] == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))
    data = images()
    task = make(data)
    decayed, plain = task.options.optimizer(task.model).param_groups
    assert {p.dim() for p in decayed["params"]} == {2, 4} and decayed["weight_decay"] == 0.05
    assert {p.dim() for p in plain["params"]} == {1} and plain["weight_decay"] == 0
    total = len(list(task.model.parameters()))
    assert len(decayed["params"]) + len(plain["params"]) == total


def test_the_average_follows_its_definition() -> None:
    task = make(images(), ema=0.5)
    weight = task.model[0].weight  # type: ignore[index]
    expected = None
    for n in range(4):
        with torch.no_grad():
            weight.fill_(float(n))
        task.on_train_batch_end(None, None, n)
        keep = min(0.5, (1 + n) / (10 + n))
        expected = float(n) if expected is None else keep * expected + (1 - keep) * n
    average = task.evaluated[0].weight  # type: ignore[index]
    assert torch.allclose(average, torch.full_like(average, expected or 0.0))
    assert not average.requires_grad and make(images(), ema=None).average is None


def test_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    data, norms = images(), []
    task = make(data, clip=0.01, epochs=1)

    def note(optimizer: torch.optim.Optimizer) -> None:
        if task.global_step:
            groups = optimizer.param_groups
            grads = [p.grad.flatten() for g in groups for p in g["params"] if p.grad is not None]
            norms.append(float(torch.cat(grads).norm()))

    monkeypatch.setattr(task, "on_before_zero_grad", note)
    fit(task, data, epochs=1, patience=1, progress=False)
    assert norms and max(norms) <= 0.01 + 1e-6


def test_a_model_that_draws_in_evaluation_draws_the_same() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(64, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x.flatten(1)) + torch.rand(len(x), 2)

    data = images()
    task = ImageTask(Noisy(), num_classes=2, statistics=data.statistics())
    before = torch.random.get_rng_state()
    assert task.logits(data.pixels).equal(task.logits(data.pixels))
    assert torch.random.get_rng_state().equal(before)


def augmentation(**options: Any) -> Augmentation:
    torch.manual_seed(0)
    return Augmentation(**options)


def test_nothing_is_done_by_default_nor_kornia_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kornia", None)
    nothing = Augmentation()
    images, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    assert nothing.reshape(images) is images
    same, target = nothing.blend(images, y, 3)
    assert same is images and target.argmax(1).equal(y) and target.sum(1).eq(1).all()
    with pytest.raises(ImportError, match=r"install pyg-graphtheory\[images\]"):
        require_kornia()


def test_images_are_cropped_mirrored_and_erased() -> None:
    images = torch.arange(1, 65.0).view(1, 1, 8, 8).expand(16, -1, -1, -1) / 64
    cropped = augmentation(crop=2).reshape(images)
    around = torch.nn.functional.pad(images[0, 0], (2, 2, 2, 2))
    parts = around.unfold(0, 8, 1).unfold(1, 8, 1).flatten(0, 1)  # [25, 8, 8]
    assert cropped.shape == images.shape
    assert all((parts == image[0]).flatten(1).all(1).any() for image in cropped)
    assert len({tuple(image.flatten().tolist()) for image in cropped}) > 4
    images = torch.rand(64, 1, 8, 8)
    flipped = augmentation(flip=True).reshape(images)
    mirrored = (flipped == images.flip(3)).flatten(1).all(1)
    assert (mirrored | (flipped == images).flatten(1).all(1)).all()
    assert 16 < int(mirrored.sum()) < 48
    ones, y = torch.ones(8, 1, 8, 8), torch.zeros(8).long()
    erased, _ = augmentation(erase=1.0).blend(ones, y, 3)
    assert (erased == 0).flatten(1).any(1).all() and set(erased.unique().tolist()) == {0.0, 1.0}


def test_the_target_of_a_blend_is_what_the_image_is_made_of() -> None:
    y = torch.arange(3).repeat(8)
    images = torch.nn.functional.one_hot(y, 3).float()[:, :, None, None].expand(-1, -1, 8, 8)
    for options in ({"mixup": 1.0}, {"cutmix": 1.0}):
        blended, target = augmentation(**options).blend(images, y, 3)
        assert torch.allclose(blended.mean((2, 3)), target, atol=1e-5), options
        assert 0.01 < target.max(1).values.min() < 0.99  # some image is made of two classes
