"""Classes, labels or values of graphs, or of the nodes of many graphs, as a Lightning module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from graphtheory.lab.train.contract import Evaluation
from graphtheory.lab.train.graph_sets import Parts
from graphtheory.lab.train.losses import LOSSES, Kind, Loss, known_metric
from graphtheory.lab.train.score import SCORES, Score, ogb_score
from graphtheory.lab.train.task import AdamOptions, AdamTask


class GraphTask(AdamTask):
    r"""What `fit` trains on a `GraphSets`: a model of batches of graphs.

    ==============  ==========================  ===============================================
    kind            y of a graph                loss, the mean over all labels that are there
    ==============  ==========================  ===============================================
    multiclass      int64 [1], -1 for none      cross-entropy
    multilabel      float [1, T], 0, 1 or NaN   binary cross-entropy of each label
    regression      float [1, T], NaN allowed   squared error, absolute error with ``metric="mae"``
    ==============  ==========================  ===============================================

    Values are learned in units of their standard deviation over the training graphs and predicted
    in their own. A label that is NaN, or a class of -1 (where some nodes of a task on nodes have
    none), counts neither in the loss nor in the score.

    Args:
        model: ``model(batch) -> [num_graphs, num_outputs]`` of a PyG `Batch`; of a task on nodes
            ``[num_nodes, num_outputs]``.
        kind: Which of the three.
        num_outputs: Classes, labels or values; at least 2 classes, at least 1 of the others.
        metric: Name of the score; None is the first that the kind has: accuracy, rocauc, rmse.
        evaluator: Name of the set whose `Evaluator` of ogb computes the score in its place.
        statistics: Mean and standard deviation of the targets, as `GraphSets.statistics` gives
            them; of a regression only. None is 0 and 1.
        loss: (outputs, y) -> mean loss, in the place of the table's.
        optimizer: Step sizes and decay.

    Raises:
        ValueError: If kind, number of outputs and metric do not go together, or ogb does not know
            the evaluator.

    Example:
        >>> from torch_geometric.nn import global_mean_pool
        >>> class Mean(nn.Linear):
        ...     def forward(self, batch):
        ...         return super().forward(global_mean_pool(batch.x, batch.batch))
        >>> GraphTask(Mean(8, 3), kind="multiclass", num_outputs=3).metric
        'accuracy'
    """

    num_classes: int
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        kind: Kind,
        num_outputs: int,
        metric: str | None = None,
        evaluator: str | None = None,
        statistics: tuple[Tensor, Tensor] | None = None,
        loss: Loss | None = None,
        optimizer: AdamOptions = AdamOptions(),
    ) -> None:
        super().__init__(model, optimizer)
        self.kind, self.num_classes, self.metric = kind, num_outputs, known_metric(kind, metric)
        if num_outputs < (2 if kind == "multiclass" else 1):
            raise ValueError(f"num_outputs: got {num_outputs}, too few for {kind}")
        if statistics is not None and kind != "regression":
            raise ValueError(f"statistics: got some, expected None of {kind} labels")
        shift, scale = statistics or (torch.zeros(num_outputs), torch.ones(num_outputs))
        self.register_buffer("shift", shift)
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0))
        self.score: Score = SCORES[self.metric] if evaluator is None else ogb_score(evaluator)
        self.higher_is_better = self.score.higher_is_better
        self.loss: Loss = loss or LOSSES.get(self.metric, LOSSES[kind])

    def forward(self, batch: Batch) -> Tensor:
        """Outputs: logits, or values in units of their standard deviation."""
        out = (self.model if self.training else self.evaluated)(batch)
        expected = (len(batch.y), self.num_classes)
        if out.shape != expected:
            raise ValueError(
                f"model: outputs of shape {tuple(out.shape)}, expected {expected}: labels and "
                "outputs"
            )
        return out

    def predict(self, batch: Batch) -> Tensor:
        """Logits, or values in their own unit."""
        return self._in_their_unit(self(batch))

    def _in_their_unit(self, out: Tensor) -> Tensor:
        return out * self.scale + self.shift if self.kind == "regression" else out

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of a batch."""
        return self.loss(self(batch), self._target(batch.y))

    def _target(self, y: Tensor) -> Tensor:
        return (y - self.shift) / self.scale if self.kind == "regression" else y

    @torch.no_grad()
    def evaluate(self, batch: Parts) -> Evaluation:
        """Loss and scores over all graphs of both parts, in evaluation mode."""
        was_training = self.training
        self.eval()
        val, y = self._outputs(batch.val)
        loss = float(self.loss(val, self._target(y)))
        score = self._score(val, y)
        test = self._score(*self._outputs(batch.test)) if batch.test else None
        self.train(was_training)
        return Evaluation(loss, score, test)

    def _outputs(self, batches: list[Batch]) -> tuple[Tensor, Tensor]:
        found = [b.to(self.device) for b in batches]
        return torch.cat([self(b) for b in found]), torch.cat([b.y for b in found])

    def _score(self, out: Tensor, y: Tensor) -> float:
        if not bool(torch.isfinite(out).all()):
            return self.score.worst  # the loss is not finite either, which `fit` reports
        if self.kind == "multiclass":
            out, y = out[y >= 0], y[y >= 0]
        return self.score(self._in_their_unit(out), y)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Log the loss of a batch, for a Trainer of your own."""
        self.log("val_loss", self.loss(self(batch), self._target(batch.y)), batch_size=batch.count)
