"""Row scaling without a search: what the validation labels say, and what is not asked."""

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.lab.bench import node_task
from graphtheory.lab.bench.node_config import as_csr
from graphtheory.lab.bench.node_task import NodeBenchTask, scales_rows


def graph(x: Tensor, y: Tensor) -> Data:
    """Nodes without edges, two thirds of them for training, the others for validation and test."""
    part = torch.arange(len(y)) % 6
    edge_index = torch.empty(2, 0, dtype=torch.long)
    masks = {"train_mask": part < 4, "val_mask": part == 4, "test_mask": part == 5}
    return Data(x=x, y=y, edge_index=edge_index, num_classes=2, **masks)


def words(label_by: str) -> Data:
    """Counts of ten words, whose mix or whose sum is the class."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.rand(600, 10, generator=generator)
    length = torch.exp(4 * torch.rand(600, 1, generator=generator))
    share = mix[:, 0] / mix.sum(1)
    by = {"mix": share, "length": length[:, 0]}[label_by]
    return graph(1 + mix / mix.sum(1, keepdim=True) * length, (by > by.median()).long())


def test_rows_are_scaled_where_the_mix_decides_and_not_where_the_sum_does() -> None:
    for otherwise in (True, False):
        assert scales_rows(words("mix"), otherwise)
        assert not scales_rows(words("length"), otherwise)


def test_where_neither_is_ahead_the_custom_holds() -> None:
    data = words("mix")
    data.x = torch.full_like(data.x, 2.0)  # says nothing, scaled or not
    for otherwise in (True, False):
        assert scales_rows(data, otherwise) is otherwise


def test_sparse_features_say_the_same() -> None:
    for label_by in ("mix", "length"):
        data = words(label_by)
        found = scales_rows(data, False)
        data.x = as_csr(data.x)
        assert scales_rows(data, False) is found


def test_test_labels_are_not_asked() -> None:
    data = words("mix")
    data.y[data.test_mask] = 1 - data.y[data.test_mask]
    assert scales_rows(data, False)


@pytest.mark.parametrize("kind", ["negative", "small", "several labels", "one class"])
def test_nothing_is_fitted_where_scaling_cannot_help(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(node_task, "LogisticRegression")
    data = words("mix")
    if kind == "negative":
        data.x[0, 0] = -1.0
    elif kind == "small":
        data.x = data.x / data.x.sum(1, keepdim=True) / 2
    elif kind == "several labels":
        data.y = torch.stack([data.y, 1 - data.y], 1)
    else:
        data.y[data.train_mask] = 0
    expected = kind in ("several labels", "one class")  # otherwise nothing would change
    assert scales_rows(data, True) is expected and not scales_rows(data, False)


def test_default_options_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (True, False):
        monkeypatch.setattr(NodeBenchTask, "scales_rows", answer)
        problem = NodeBenchTask("karate")
        problem.kept = False
        assert {problem.config(model)[0].row_scale for model in problem.models} == {answer}
