from collections.abc import Callable

import pytest
import torch
from lightning import Trainer
from sklearn.metrics import roc_auc_score
from torch import nn
from torch_geometric.data import Data

from graphtheory.lab.train import AdamOptions, FullGraph, NodeTask
from graphtheory.lab.train.fit import quiet_lightning

NewTask = Callable[..., NodeTask]


def test_loss_is_that_of_the_masked_nodes(data: Data, new_task: NewTask) -> None:
    task, batch = new_task(dropout=0.0), FullGraph(data).train_batch(0)
    chosen = task(batch).log_softmax(1)[data.train_mask]
    expected = -chosen.gather(1, data.y[data.train_mask, None]).mean()
    torch.testing.assert_close(task.training_step(batch, 0), expected)


def test_evaluation_scores_both_masks_without_dropout(data: Data, new_task: NewTask) -> None:
    task, batch = new_task(dropout=0.9), FullGraph(data).evaluation_batch()
    task.train()
    found = task.evaluate(batch)
    assert task.training and task.model.drop.training
    right = task.eval()(batch).argmax(1) == data.y
    assert found.val == pytest.approx(float(right[data.val_mask].float().mean()))
    assert found.test == pytest.approx(float(right[data.test_mask].float().mean()))
    assert found == task.evaluate(batch)


def test_evaluation_is_with_the_running_average(data: Data, one_layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model = one_layer()
    task = NodeTask(model, num_classes=3, optimizer=AdamOptions(average=0.75))
    passed = []
    for step in range(3):
        nn.init.constant_(model.linear.weight, step)
        task.on_train_batch_end(None, None, 0)
        passed.append(task.evaluated.linear.weight[0, 0].item())
    assert passed == [0.0, 0.25, 0.25 * 0.75 + 2 * 0.25]
    batch = FullGraph(data).evaluation_batch()
    score = task.evaluate(batch)
    nn.init.constant_(model.linear.weight, 100.0)
    assert score == task.evaluate(batch) and task.evaluated is not model
    assert len(list(task.configure_optimizers().param_groups[0]["params"])) == 2


def test_bucket_biases_have_their_own_step_and_no_decay(table: type[nn.Module]) -> None:
    module = nn.ModuleDict({"linear": nn.Linear(2, 2), "bucket_bias": table()})
    optimizer = AdamOptions(lr=0.1, weight_decay=0.2, bias_lr=0.3).build(module)
    rest, biases = optimizer.param_groups
    assert (rest["lr"], rest["weight_decay"], len(rest["params"])) == (0.1, 0.2, 2)
    assert (biases["lr"], biases["weight_decay"]) == (0.3, 0.0)
    assert biases["params"][0] is module["bucket_bias"].table


def test_frozen_parameters_are_left_out(table: type[nn.Module]) -> None:
    module = nn.ModuleDict({"linear": nn.Linear(2, 2), "bucket_bias": table()})
    module["bucket_bias"].requires_grad_(False)
    module["linear"].bias.requires_grad_(False)
    groups = AdamOptions().build(module).param_groups
    assert [len(group["params"]) for group in groups] == [1]


@pytest.mark.parametrize(("decoupled", "kind"), [(False, "Adam"), (True, "AdamW")])
def test_kinds_of_decay(decoupled: bool, kind: str) -> None:
    built = AdamOptions(decoupled=decoupled).build(nn.Linear(1, 1))
    assert type(built).__name__ == kind


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr: got 0.0"),
        ({"lr": float("nan")}, "lr: got nan"),
        ({"bias_lr": -1.0}, "bias_lr: got -1.0"),
        ({"weight_decay": -0.1}, "weight_decay: got -0.1"),
        ({"average": 1.0}, "average: got 1.0"),
    ],
)
def test_options_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdamOptions(**options)


@pytest.mark.parametrize(
    ("classes", "metric", "message"),
    [
        (3, "f1", r"metric: got 'f1', expected one of accuracy, rocauc for multiclass"),
        (1, "accuracy", "num_classes: got 1, expected 2 or more"),
        (3, "rocauc", "num_classes: got 3, expected 2 for 'rocauc'"),
    ],
)
def test_task_refuses(classes: int, metric: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NodeTask(nn.Linear(1, 1), num_classes=classes, metric=metric)


def several(data: Data) -> Data:
    """The same graph with four labels a node, some of them missing."""
    draw = torch.Generator().manual_seed(0)
    data.y = torch.randint(2, (len(data.x), 4), generator=draw).float()
    data.y[torch.rand(data.y.shape, generator=draw) < 0.2] = torch.nan
    return data


def test_several_labels_of_a_node(data: Data, one_layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    data = several(data)
    model = one_layer(classes=4).eval()
    task = NodeTask(model, num_classes=4, metric="rocauc", kind="multilabel").eval()
    whole = FullGraph(data)
    whole.check_classes(4)
    batch = whole.train_batch(0)
    out, y = task(batch)[data.train_mask], data.y[data.train_mask]
    known = ~y.isnan()
    expected = -torch.where(y == 1, out.sigmoid(), 1 - out.sigmoid()).log()[known].mean()
    torch.testing.assert_close(task.training_step(batch, 0), expected)
    found = task.evaluate(whole.evaluation_batch())
    val, labels = task(batch)[data.val_mask].detach(), data.y[data.val_mask]
    by_label = []
    for k in range(4):
        there = ~labels[:, k].isnan()
        by_label.append(roc_auc_score(labels[there, k], val[there, k]))
    assert found.val == pytest.approx(sum(by_label) / 4)
    nn.init.constant_(model.linear.weight, torch.inf)
    assert task.evaluate(whole.evaluation_batch()).val == 0.0


@pytest.mark.parametrize(
    ("value", "labels", "message"),
    [
        (2.0, 4, r"data.y: 1 labels are neither 0, 1 nor NaN, the first at \[3, 1\] with 2"),
        (1.0, 5, "data.y: 4 labels of each node, expected 5"),
    ],
)
def test_labels_that_are_none(data: Data, value: float, labels: int, message: str) -> None:
    data = several(data)
    data.y[3, 1] = value
    with pytest.raises(ValueError, match=message):
        FullGraph(data).check_classes(labels)


@pytest.mark.parametrize(
    ("name", "kind", "classes"),
    [("ogbn-arxiv", "multiclass", 4), ("ogbn-proteins", "multilabel", 112)],
)
def test_scores_of_nodes_are_those_of_ogb(name: str, kind: str, classes: int) -> None:
    metric = {"multiclass": "accuracy", "multilabel": "rocauc"}[kind]
    task = NodeTask(nn.Identity(), num_classes=classes, metric=metric, kind=kind, evaluator=name)
    draw = torch.Generator().manual_seed(0)
    out = torch.randn(50, classes, generator=draw)
    y = torch.randint(4, (50,), generator=draw)
    if kind == "multilabel":
        y = torch.randint(2, (50, classes), generator=draw).float()
    ours = NodeTask(nn.Identity(), num_classes=classes, metric=metric, kind=kind)
    assert task.score(out, y) == pytest.approx(ours.score(out, y)) and task.score is not ours.score
    with pytest.raises(ValueError, match="evaluator: got 'ogbn-nothing', expected a set"):
        NodeTask(nn.Identity(), num_classes=3, evaluator="ogbn-nothing")
    with pytest.raises(ValueError, match="kind: got 'regression', expected one of"):
        NodeTask(nn.Identity(), num_classes=3, kind="regression")


def test_logits_of_another_shape_are_refused(data: Data, one_layer: type[nn.Module]) -> None:
    task = NodeTask(one_layer(classes=4), num_classes=3)
    with pytest.raises(ValueError, match=r"model: outputs of shape \(60, 4\), expected \(60, 3\)"):
        task(FullGraph(data).evaluation_batch())


def test_works_under_a_plain_trainer(data: Data, new_task: NewTask) -> None:
    with quiet_lightning():
        trainer = Trainer(
            accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        task, module = new_task(), FullGraph(data)
        trainer.fit(task, datamodule=module)
        expected = task.evaluate(module.evaluation_batch())
        assert float(trainer.callback_metrics["val"]) == pytest.approx(expected.val)
        tested = trainer.test(task, datamodule=module, verbose=False)
    assert tested[0]["test"] == pytest.approx(expected.test)
