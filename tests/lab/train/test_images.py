import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphtheory.lab.train import (
    Augmentation,
    CheckpointError,
    FitResult,
    ImageData,
    ImageTask,
    Recipe,
    fit,
    read_checkpoint,
)


def some_data(**options: int) -> ImageData:
    pixels = torch.randint(256, (20, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    y, order = torch.arange(20) % 4, torch.arange(20)
    return ImageData(pixels.to(torch.uint8), y, order[:13], order[13:], batch_size=4, **options)


def test_an_epoch_is_a_shuffle_by_seed_and_epoch() -> None:
    data = some_data()
    first = torch.cat(data.order(0))
    assert [len(part) for part in data.order(0)] == [4, 4, 4]
    assert len(first.unique()) == 12 and int(first.max()) < 13
    assert torch.cat(some_data().order(0)).equal(first)
    assert not torch.cat(data.order(1)).equal(first)
    assert not torch.cat(some_data(seed=1).order(0)).equal(first)


def test_batches_hold_the_images_of_their_positions() -> None:
    data = some_data()
    loader = data.train_dataloader()
    assert len(loader) == 3
    for positions, batch in zip(data.order(0), loader, strict=True):
        assert batch.pixels.equal(data.pixels[positions]) and batch.y.equal(data.y[positions])
        assert batch.count == 4
    assert data.evaluation_batch().y.equal(data.y[13:])


def test_fewer_images_than_a_batch_are_one_batch() -> None:
    data = ImageData(
        torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]),
        torch.tensor([0, 1, 2]), torch.tensor([3]),
    )  # fmt: skip
    assert [len(part) for part in data.order(0)] == [3] and len(data.train_dataloader()) == 1


def test_statistics_are_those_of_the_training_images() -> None:
    data = some_data()
    values = data.pixels[:13].double() / 255
    mean, std = data.statistics()
    assert torch.allclose(mean.double(), values.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(std.double(), values.std((0, 2, 3), correction=0), atol=1e-6)


def test_the_record_tells_data_apart() -> None:
    described = some_data().describe()
    assert described == some_data().describe()
    assert described != some_data(seed=1).describe()
    other = some_data()
    other.pixels[0, 0, 0, 0] += 1
    assert described["sha256"] != other.describe()["sha256"]


def test_wrong_images_are_refused() -> None:
    pixels, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    few, rest = torch.tensor([0, 1]), torch.tensor([2, 3])
    with pytest.raises(
        TypeError, match=r"pixels: got torch.float32, expected a tensor of torch.uint8; .*as_pixels"
    ):
        ImageData(pixels.float(), y, few, rest)
    with pytest.raises(ValueError, match="pixels, y: shapes"):
        ImageData(pixels, y[:3], few, rest)
    with pytest.raises(ValueError, match="expected some of either"):
        ImageData(pixels, y, few, rest[:0])
    with pytest.raises(ValueError, match=r"positions outside 0\.\.3"):
        ImageData(pixels, y, few, rest + 1)
    with pytest.raises(ValueError, match="in them twice"):
        ImageData(pixels, y, few, few)
    with pytest.raises(ValueError, match="batch_size: got 0"):
        ImageData(pixels, y, few, rest, batch_size=0)
    with pytest.raises(ValueError, match="2 labels out of range, the first is image 1 with 1"):
        ImageData(pixels, y, few, rest).check_classes(1)


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


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(256, 2),
        )  # fmt: skip


def make(data: ImageData, **options: object) -> ImageTask:
    torch.manual_seed(0)
    recipe = Recipe(**{"epochs": 4, "lr": 0.01, **options})  # type: ignore[arg-type]
    return ImageTask(Network(), num_classes=2, statistics=data.statistics(), recipe=recipe)


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


class Stopped(Exception):
    pass


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("kornia")
    data = images()
    trained(make(data, augment=CHANGES), data, out_dir=tmp_path / "whole")

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise Stopped

    with pytest.raises(Stopped):
        fit(
            make(data, augment=CHANGES), images(), epochs=4, patience=4, progress=stop,
            out_dir=tmp_path / "parts",
        )  # fmt: skip
    torch.rand(3)  # the caller's random state plays no part
    trained(make(data, augment=CHANGES), images(), out_dir=tmp_path / "parts", resume=True)
    one, other = (read_checkpoint(tmp_path / f"{name}/last.ckpt") for name in ("whole", "parts"))
    assert all(torch.equal(other["state_dict"][k], v) for k, v in one["state_dict"].items())
    assert one["lr_schedulers"] == other["lr_schedulers"]
    assert {"model.0.weight", "average.module.0.weight"} <= one["state_dict"].keys()


def test_another_recipe_does_not_go_on(tmp_path: Path) -> None:
    data = images()
    trained(make(data), data, out_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"another run: optimizer is Recipe.*epochs=4"):
        trained(make(data, epochs=5), data, out_dir=tmp_path, resume=True)


def test_the_step_size_goes_up_and_down_to_nothing() -> None:
    steps = [Recipe(warmup=0.2).factor(step, 100) for step in range(101)]
    assert steps[0] == pytest.approx(1 / 20) and steps[19] == steps[20] == 1
    assert all(a >= b for a, b in pairwise(steps[20:]))
    assert steps[60] == pytest.approx(0.5) and steps[100] == 0
    assert steps[40] == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))


def test_the_last_step_of_a_run_is_small(tmp_path: Path) -> None:
    data = images()
    trained(make(data), data, out_dir=tmp_path)
    (schedule,) = read_checkpoint(tmp_path / "last.ckpt")["lr_schedulers"]
    assert schedule["last_epoch"] == 4 * 5 and schedule["_last_lr"] == [0.0, 0.0]


def test_only_weights_of_maps_decay() -> None:
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
    data = images()
    norms: list[float] = []

    def note(optimizer: torch.optim.Optimizer, *rest: object) -> None:
        groups = optimizer.param_groups
        grads = [p.grad.flatten() for g in groups for p in g["params"] if p.grad is not None]
        norms.append(float(torch.cat(grads).norm()))

    task = make(data, clip=0.01, epochs=1)
    monkeypatch.setattr(
        task, "on_before_zero_grad", lambda optimizer: note(optimizer) if task.global_step else None
    )
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 0}, "epochs: got 0"),
        ({"lr": 0.0}, "lr: got 0.0"),
        ({"ema": 1.0}, "ema: got 1.0"),
        ({"clip": -1.0}, "clip: got -1.0"),
    ],
)
def test_numbers_of_a_recipe_out_of_range(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recipe(**options)  # type: ignore[arg-type]
