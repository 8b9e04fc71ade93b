"""Classes and labels of nodes as a Lightning module, and what it shares with other tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from graphtheory.lab.train.contract import Evaluation, Task
from graphtheory.lab.train.full_graph import NodeBatch
from graphtheory.lab.train.score import LOSSES, SCORES, Loss, Score, known_metric, ogb_score

METRICS: dict[str, tuple[str, ...]] = {
    "multiclass": ("accuracy", "rocauc"),
    "multilabel": ("rocauc", "ap"),
}
"""Scores of the nodes of one graph, by the kind of their labels."""


@dataclass(frozen=True)
class AdamOptions:
    """Adam with decay, and a step size of its own for distance biases.

    Args:
        lr: Step size, above 0.
        weight_decay: L2 coefficient, 0 or more, of every parameter but the bucket biases.
        bias_lr: Step size of the bucket biases; None is `lr`. They are never decayed.
        decoupled: Decay as AdamW does instead of adding it to the gradient.
        average: Share of itself that a running average of the parameters keeps at each step, above
            0 and below 1; evaluation is then with the average. None: with the parameters.

    Raises:
        ValueError: A number outside its range.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    bias_lr: float | None = None
    decoupled: bool = False
    average: float | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "bias_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: got {value}, expected a step size above 0")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay: got {self.weight_decay}, expected 0 or more")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average: got {self.average}, expected a share between 0 and 1")

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """Make an optimizer for the parameters of `module` that learn."""
        marked = (m for m in module.modules() if getattr(m, "is_bucket_bias", False))
        biases = {id(p) for m in marked for p in m.parameters()}
        learning = [p for p in module.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": [p for p in learning if id(p) not in biases]}]
        if own := [p for p in learning if id(p) in biases]:
            lr = self.lr if self.bias_lr is None else self.bias_lr
            groups.append({"params": own, "lr": lr, "weight_decay": 0.0})
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind(groups, lr=self.lr, weight_decay=self.weight_decay)


class ScoredTask(Task):
    """A task with labels, scored as the running average of its model where it has one."""

    def __init__(self, model: nn.Module, average: AveragedModel | None) -> None:
        super().__init__()
        self.model, self.average = model, average

    @property
    def evaluated(self) -> nn.Module:
        """The model that evaluation runs: the average where there is one."""
        return self.model if self.average is None else self.average.module

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.average is not None:
            self.average.update_parameters(self.model)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients; the mode before comes back."""
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.train(was_training)

    @abstractmethod
    def evaluate(self, batch: Any) -> Evaluation: ...

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log what `evaluate` finds, for a Trainer of your own."""
        found = self.evaluate(batch)._asdict()
        self.log_dict({k: v for k, v in found.items() if v is not None}, batch_size=1)

    test_step = validation_step


class LabelTask(ScoredTask):
    """A task whose model learns one of the kinds of labels by Adam.

    `metrics` names the scores of each kind; the other arguments are those of `GraphTask`.
    """

    num_classes: int

    def __init__(
        self,
        model: nn.Module,
        kind: str,
        num_outputs: int,
        metric: str | None,
        metrics: dict[str, tuple[str, ...]],
        evaluator: str | None,
        optimizer: AdamOptions,
    ) -> None:
        share, average = optimizer.average, None
        if share is not None:
            average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(share))
        super().__init__(model, average)
        self.options, self.kind, self.num_classes = optimizer, kind, num_outputs
        self.metric = known_metric(kind, metric, metrics)
        self.score: Score = SCORES[self.metric] if evaluator is None else ogb_score(evaluator)
        self.higher_is_better = self.score.higher_is_better
        self.loss: Loss = LOSSES.get(self.metric, LOSSES[kind])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.options.build(self.model)

    def outputs(self, model_input: tuple[Any, ...], rows: int) -> Tensor:
        """Run the model in training, or the one that evaluation runs, and check the shape."""
        found = (self.model if self.training else self.evaluated)(*model_input)
        if found.shape != (expected := (rows, self.num_classes)):
            raise ValueError(
                f"model: outputs of shape {tuple(found.shape)}, expected {expected}: rows of "
                "labels, and an output for each class, label or value"
            )
        return found

    def _score(self, outputs: Tensor, y: Tensor) -> float:
        if not bool(torch.isfinite(outputs).all()):
            return self.score.worst  # the loss is not finite either, which `fit` reports
        return self.score(*self._to_score(outputs, y))

    def _to_score(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, y


class NodeTask(LabelTask):
    r"""Classes or labels of the nodes of one graph: the mean loss over the masked nodes.

    ==============  =========================  ===============================================
    kind            y of a node                loss
    ==============  =========================  ===============================================
    multiclass      int64                      cross-entropy,
                                               :math:`-\frac1{|M|}\sum_{n \in M} \log p_{y_n}(n)`
    multilabel      float [T], 0, 1 or NaN     binary cross-entropy of each label that is not NaN
    ==============  =========================  ===============================================

    Works under `fit` and under any Lightning Trainer, for which it logs `val_loss`, `val` and
    `test` where it evaluates. Edge of the domain: a batch without masked nodes has no loss and is
    refused by the data modules.

    Args:
        model: `model(x, neighborhood) -> logits [num_dst, num_classes]`; for batches with `layers`
            a model that takes a sequence of them.
        num_classes: C, at least 2; of several labels T, at least 1.
        metric: "accuracy", or "rocauc" for two classes; of several labels "rocauc" or "ap", the
            mean over the labels.
        optimizer: Step sizes and decay.
        kind: "multiclass" or "multilabel".
        evaluator: Name of the set whose `Evaluator` of ogb computes the score in the metric's
            place, such as "ogbn-arxiv".

    Raises:
        ValueError: Unknown kind or metric, too few classes, "rocauc" with more than two, or a set
            that ogb does not know.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        metric: str = "accuracy",
        optimizer: AdamOptions = AdamOptions(),
        kind: str = "multiclass",
        evaluator: str | None = None,
    ) -> None:
        super().__init__(model, kind, num_classes, metric, METRICS, evaluator, optimizer)
        least = 1 if kind == "multilabel" else 2
        two = kind == "multiclass" and metric == "rocauc"
        if num_classes < least or (two and num_classes != 2):
            expected = "2" if two else f"{least} or more"
            raise ValueError(f"num_classes: got {num_classes}, expected {expected} for {metric!r}")

    def forward(self, batch: NodeBatch) -> Tensor:
        """Compute logits of the targets, [num_dst, num_classes]."""
        graph = batch.neighborhood if batch.layers is None else batch.layers
        return self.outputs((batch.x, graph), batch.neighborhood.num_dst)

    def training_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        return self.loss(self(batch)[batch.mask], batch.y[batch.mask])

    def evaluate(self, batch: NodeBatch) -> Evaluation:
        with self.evaluating():
            logits = self(batch)
        val, y, test = logits[batch.mask], batch.y[batch.mask], batch.test_mask
        score = None if test is None else self._score(logits[test], batch.y[test])
        return Evaluation(float(self.loss(val, y)), self._score(val, y), score)
