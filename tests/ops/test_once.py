"""Facts of a tensor: asked once, again after a change in place, and gone with the tensor."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from graphtheory.ops import call
from graphtheory.ops.once import Once


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def largest(asked: list[int]) -> Once[int]:
    def compute(tensor: Tensor) -> int:
        asked.append(len(tensor))
        return int(tensor.max())

    return Once(compute)


def test_each_tensor_is_read_once(largest: Once[int], asked: list[int]) -> None:
    one, same_values = torch.tensor([3, 4]), torch.tensor([3, 4])
    assert [largest(one), largest(one), largest(same_values), largest(one)] == [4, 4, 4, 4]
    assert asked == [2, 2]


def test_a_change_in_place_is_seen(largest: Once[int], asked: list[int]) -> None:
    tensor = torch.tensor([3, 4])
    assert largest(tensor) == 4
    tensor[0] = 9
    assert largest(tensor) == 9
    assert len(asked) == 2


def test_a_tensor_of_inference_mode_is_read_once(largest: Once[int], asked: list[int]) -> None:
    with torch.inference_mode():
        tensor = torch.tensor([3, 4])
        assert [largest(tensor), largest(tensor)] == [4, 4]
    assert len(asked) == 1


def test_nothing_outlives_its_tensor(largest: Once[int]) -> None:
    tensor = torch.tensor([3, 4])
    largest(tensor)
    assert len(largest._known) == 1
    del tensor
    gc.collect()
    assert len(largest._known) == 0


def test_a_bucket_off_the_cpu_is_read_once_and_never_let_through(
    monkeypatch: pytest.MonkeyPatch, largest: Once[int], asked: list[int]
) -> None:
    class Elsewhere(Tensor):
        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return torch.device("cuda")

    monkeypatch.setattr(call, "_largest", largest)
    bucket = torch.tensor([0, 4]).as_subclass(Elsewhere)
    for _ in range(2):
        call.check_buckets(bucket, torch.zeros(5, 1))
    assert len(asked) == 1
    with pytest.raises(IndexError, match="largest entry 4"):
        call.check_buckets(bucket, torch.zeros(4, 1))
    bucket[0] = 7
    with pytest.raises(IndexError, match="largest entry 7"):
        call.check_buckets(bucket, torch.zeros(5, 1))
