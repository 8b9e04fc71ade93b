import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import nn

from graphtheory.lab.datasets.graph_readers import import_ogb
from graphtheory.lab.train import GraphTask
from graphtheory.lab.train.score import SCORES, UndefinedScoreError

rocauc = SCORES["rocauc"]


def test_accuracy_f1_and_rocauc_are_those_of_scikit_learn(generator: torch.Generator) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]])
    assert SCORES["accuracy"](logits, torch.tensor([0, 1, 1, 0])) == 0.75
    logits = torch.randn(200, 2, generator=generator).round(decimals=1)  # ties
    y = torch.randint(2, (200,), generator=generator)
    expected = roc_auc_score(y.numpy(), (logits[:, 1] - logits[:, 0]).numpy())
    assert rocauc(logits, y) == pytest.approx(expected, abs=1e-6)
    logits = torch.tensor([[0.0, 50.0], [0.0, 70.0], [0.0, 45.0]])  # of which sigmoids are 1
    y = torch.tensor([0, 1, 0])
    assert rocauc(logits, y) == 1.0
    for name in ("rocauc", "ap"):
        assert SCORES[name](logits[:, 1:], y[:, None].float()) == 1.0
    logits = torch.randn(100, 5, generator=generator)
    y = torch.randint(4, (100,), generator=generator)
    logits[:, 4] = -9.0  # a class that occurs nowhere
    expected = f1_score(y.numpy(), logits.argmax(1).numpy(), average="macro")
    assert SCORES["f1"](logits, y) == pytest.approx(expected, abs=1e-6)
    for classes, label in ((3, 0), (2, 0), (2, 1)):
        with pytest.raises(UndefinedScoreError, match="expected 2 classes, and both there"):
            rocauc(torch.zeros(4, classes), torch.full((4,), label))


def test_scores_of_several_labels_are_those_of_scikit_learn(generator: torch.Generator) -> None:
    logits = torch.randn(200, 3, generator=generator).round(decimals=1)
    y = torch.randint(2, (200, 3), generator=generator).float()
    y[torch.rand(200, 3, generator=generator) < 0.3] = float("nan")
    y[:, 2] = 1.0  # a label of one class has no part
    for score, theirs in ((rocauc, roc_auc_score), (SCORES["ap"], average_precision_score)):
        known = [~column.isnan() for column in y.unbind(1)]
        each = [theirs(y[k, i].numpy(), logits[k, i].numpy()) for i, k in enumerate(known[:2])]
        assert score(logits, y) == pytest.approx(sum(each) / 2, abs=1e-6)
    with pytest.raises(UndefinedScoreError, match="none of 1 labels has both classes"):
        rocauc(logits[:, 2:], y[:, 2:])


@pytest.mark.parametrize(
    ("name", "metric", "outputs"),
    [("ogbn-arxiv", "accuracy", 4), ("ogbn-proteins", "rocauc", 112), ("ogbg-molesol", "rmse", 1),
     ("ogbg-molbace", "rocauc", 1), ("ogbg-moltox21", "rocauc", 12), ("ogbg-molpcba", "ap", 128)],
)  # fmt: skip
def test_the_metric_scores_as_ogb_does_and_leaves_out_labels_of_one_class(
    name: str, metric: str, outputs: int, generator: torch.Generator
) -> None:
    kind = {"accuracy": "multiclass", "rmse": "regression"}.get(metric, "multilabel")
    part = "nodeproppred" if name.startswith("ogbn-") else "graphproppred"
    evaluator = import_ogb(f"ogb.{part}").Evaluator(name)
    logits = torch.randn(20, outputs, generator=generator)
    y = torch.randint(2, (20, outputs), generator=generator).float()
    y[3, :5] = torch.nan
    y[:, 1:2] = 0.0  # no positive label
    given = {"y_true": y.double(), "y_pred": logits.double()}
    if kind == "multiclass":
        y = torch.randint(4, (20,), generator=generator)
        given = {"y_true": y[:, None], "y_pred": logits.argmax(1, keepdim=True)}
    (expected,) = evaluator.eval(given).values()
    task = GraphTask(nn.Identity(), kind=kind, num_outputs=outputs, metric=metric)
    assert task.score(logits, y) == pytest.approx(expected, abs=1e-6)
    if kind == "multilabel":
        y[:] = 0.0
        with pytest.raises(UndefinedScoreError, match=f"none of {outputs} labels has both"):
            task.score(logits, y)
