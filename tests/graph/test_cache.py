"""Facts of a tensor: asked once, again after any change, and gone with the tensor."""

import gc

import pytest
import torch
from torch import Tensor

from graphtheory.graph.content import PerTensorCache, check_lookup


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def largest(asked: list[int]) -> PerTensorCache[int]:
    def compute(tensor: Tensor) -> int:
        asked.append(len(tensor))
        return int(tensor.max())

    return PerTensorCache(compute)


def test_each_tensor_is_read_once(largest: PerTensorCache[int], asked: list[int]) -> None:
    one, same_values = torch.tensor([3, 4]), torch.tensor([3, 4])
    assert [largest(one), largest(one), largest(same_values), largest(one)] == [4, 4, 4, 4]
    assert asked == [2, 2]


def in_place(tensor: Tensor) -> None:
    tensor[0] = 9


def by_numpy(tensor: Tensor) -> None:
    tensor.numpy()[0] = 9


def by_data(tensor: Tensor) -> None:
    tensor.data[0] = 9


def by_set(tensor: Tensor) -> None:
    tensor.set_(torch.tensor([9, 4]))


def by_shared_storage(tensor: Tensor) -> None:
    tensor.view(2, 1)[0, 0] = 9


CHANGES = [in_place, by_numpy, by_data, by_set, by_shared_storage]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inference", [False, True])
def test_every_change_is_seen(largest, asked, change, inference) -> None:
    with torch.inference_mode(inference):
        tensor = torch.tensor([3, 4])
        assert largest(tensor) == 4
        change(tensor)
        assert largest(tensor) == 9
    assert len(asked) == 2


def test_what_was_read_cannot_be_resized(largest: PerTensorCache[int]) -> None:
    tensor = torch.tensor([3, 4])
    assert largest(tensor) == 4
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(3)


def test_a_tensor_of_inference_mode_is_read_once(largest, asked) -> None:
    with torch.inference_mode():
        tensor = torch.tensor([3, 4])
        assert [largest(tensor), largest(tensor)] == [4, 4]
    assert len(asked) == 1


def test_nothing_outlives_its_tensor(largest: PerTensorCache[int]) -> None:
    tensor = torch.tensor([3, 4])
    largest(tensor)
    assert len(largest._known) == 1
    del tensor
    gc.collect()
    assert len(largest._known) == 0


def test_while_a_step_is_recorded_ids_are_compared_on_the_device(monkeypatch) -> None:
    monkeypatch.setattr(Tensor, "is_cuda", True)
    monkeypatch.setattr(Tensor, "is_cpu", False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    check_lookup("ids", torch.tensor([0, 3]), 4)
    for bad in (-1, 4):
        with pytest.raises(RuntimeError, match=r"ids: out of 0\.\.3"):
            check_lookup("ids", torch.tensor([0, bad]), 4)
