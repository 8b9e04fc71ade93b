"""What `fit` asks of a task and of its data, and what tasks with labels have in common."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import torch
from lightning import LightningDataModule, LightningModule
from torch import Tensor, nn
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from graphtheory.lab.train.score import LOSSES, METRICS, SCORES, Loss, Metrics
from graphtheory.modes import evaluating
from graphtheory.patterns.draw import generator_of

Pair = tuple[Tensor, Tensor]  # outputs of a model and the labels that they are scored by


def shapes(state: dict[str, Any]) -> dict[str, list[int]]:
    """List the shape of each tensor under its name."""
    return {name: list(tensor.shape) for name, tensor in state.items()}


def lines(module: nn.Module) -> dict[str, str]:
    """Print a module line by line, so that two can be compared."""
    return {f"line {i}": text for i, text in enumerate(str(module).splitlines(), start=1)}


def digest(tensors: Iterable[Tensor]) -> str:
    """Hash dtypes, shapes and values by SHA-256; of a sparse CSR matrix its three parts."""
    found = hashlib.sha256()
    for tensor in tensors:
        parts = [tensor]
        if tensor.layout == torch.sparse_csr:
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        for part in parts:
            found.update(f"{part.dtype}{tuple(part.shape)}".encode())
            if part.dtype is torch.bfloat16:  # which numpy does not know
                part = part.view(torch.int16)
            found.update(part.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def shuffled(positions: Tensor, *seeds: int) -> Tensor:
    """Put positions into an order that follows from the seeds."""
    return positions[torch.randperm(len(positions), generator=generator_of(*seeds))]


def check_each(expected: str, holds: Callable[[float], bool], **values: float | None) -> None:
    """Refuse an argument for which a condition does not hold; None is none."""
    for name, value in values.items():
        if value is not None and not isinstance(value, Real):
            raise TypeError(f"{name}: got {value!r}, expected a number, {expected}")
        if value is not None and not holds(value):
            raise ValueError(f"{name}: got {value}, expected {expected}")


def check_at_least(least: int, **values: int | None) -> None:
    """Refuse an argument below `least`; None is none."""
    check_each(f"{least} or more", lambda value: value >= least, **values)


def refuse_any(bad: Tensor, said: str, values: Tensor | None = None) -> None:
    """Raise ValueError if an entry is bad; `said` may tell {count}, the {first} and its {value}."""
    if bool(bad.any()):
        first = bad.nonzero()[0]
        value = None if values is None else values[tuple(first)].item()
        position = first.tolist() if bad.dim() > 1 else int(first)
        raise ValueError(said.format(count=int(bad.sum()), first=position, value=value))


def check_parts(what: str, count: int, train: Tensor, val: Tensor, test: Tensor) -> None:
    """Refuse parts of `count` samples that are empty (the test may be), overlap or do not exist."""
    if not len(train) or not len(val):
        given = f"{len(train)} and {len(val)} {what}s"
        raise ValueError(f"train, val: {given}, expected some of either")
    chosen, times = torch.cat([train, val, test]).unique(return_counts=True)
    if int(chosen[0]) < 0 or int(chosen[-1]) >= count:
        raise ValueError(f"train, val: positions outside 0..{count - 1}, the {what}s there are")
    said = f"train, val: {what} {{value}} is in them twice, expected each once"
    refuse_any(times > 1, said, chosen)


class Evaluation(NamedTuple):
    """Loss and score on validation, score on the test part (None where it is not looked at)."""

    val_loss: float
    val: float
    test: float | None = None


@dataclass
class Batches:
    """A number of batches, `length`, that are made when they are asked for."""

    length: int
    make: Callable[[], Iterator[Any]]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class Source(LightningDataModule, ABC):
    """Batches to train on, whose `count` says over how many labels the loss is the mean."""

    @abstractmethod
    def check_classes(self, num_classes: int) -> None:
        """Refuse labels that are outside 0..num_classes-1."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Tell what a resumed run must find unchanged."""

    def order(self, epoch: int) -> list[Tensor]:
        """Draw the positions of each batch of an epoch."""
        raise NotImplementedError

    def batch(self, positions: Tensor) -> Any:
        """Make the batch of some positions."""
        raise NotImplementedError

    def train_batches(self, epoch: int) -> Iterator[Any]:
        """Draw the batches of one epoch for this process; the same for the same epoch."""
        return map(self.batch, self.share(self.order(epoch)))

    def share(self, batches: Sequence[Any]) -> Sequence[Any]:
        """Pick every n-th for this one of n processes; the first ones fill up the last round."""
        if self.trainer is None or (processes := self.trainer.world_size) == 1:
            return batches
        mine = range(self.trainer.global_rank, self._rounds(len(batches)) * processes, processes)
        return [batches[i % len(batches)] for i in mine]

    def _rounds(self, batches: int) -> int:
        return -(-batches // (self.trainer.world_size if self.trainer else 1))

    def every_batch(self) -> list[Any]:
        """Make batches of all samples, in their order, with or without a label that counts."""
        raise NotImplementedError

    def parts(self) -> dict[str, Tensor]:
        """List the positions of the samples of each part."""
        found = {name: getattr(self, name, None) for name in ("train", "val", "test")}
        return {name: part for name, part in found.items() if isinstance(part, Tensor)}

    def num_batches(self) -> int:
        """Count the batches of an epoch; some epochs may have fewer."""
        return len(self.order(0))

    @abstractmethod
    def evaluation_batch(self) -> Any:
        """Make what `Task.evaluate` takes after every epoch."""

    def train_dataloader(self) -> Batches:
        def batches() -> Iterator[Any]:  # Lightning asks for an iterator before it knows the epoch
            yield from self.train_batches(self.trainer.current_epoch if self.trainer else 0)

        return Batches(self._rounds(self.num_batches()), batches)

    def val_dataloader(self) -> Batches:
        return Batches(1, lambda: iter([self.evaluation_batch()]))

    test_dataloader = val_dataloader


class Task(LightningModule, ABC):
    """A model, how it learns and how it is scored."""

    model: nn.Module  #: What is trained.
    num_classes: int | None = None  #: C; None of a task that learns without labels.
    metric: str  #: Name of the score.
    higher_is_better: bool = True  #: Whether a higher score is a better one; False of errors.
    options: Any  #: How it learns, in the words that a resumed run has to repeat.

    def source(self, data: Any) -> Source:
        """Make the batches that `fit` trains on from what it was given, or raise TypeError."""
        if not isinstance(data, Source):
            kind = type(data).__name__
            raise TypeError(f"datamodule: got {kind}, expected the batches of this task")
        return data

    @abstractmethod
    def evaluate(self, batch: Any) -> Evaluation | None:
        """Compute loss and scores of a batch in evaluation mode; None where there are no labels."""

    def describe(self, epochs: int) -> dict[str, Any]:
        """Tell what a resumed run must find unchanged; `epochs` where the step size needs it."""
        found = {"model": type(self.model).__name__, "parameters": shapes(self.state_dict())}
        found |= {"layers": lines(self.model), "metric": self.metric}
        found["optimizer"] = re.sub(" at 0x[0-9a-f]+", "", str(self.options))  # of a function
        return found


@dataclass(frozen=True)
class AdamOptions:
    """Adam with decay, a schedule, and a step size of its own for distance biases.

    Args:
        lr: Step size, above 0.
        weight_decay: L2 coefficient, 0 or more, of every parameter but the bucket biases.
        bias_lr: Step size of the bucket biases; None is `lr`. They are never decayed.
        decoupled: Decay as AdamW does instead of adding it to the gradient.
        average: Share of itself that a running average of the parameters keeps at each step, above
            0 and below 1; evaluation is then with the average. None: with the parameters.
        schedule: "cosine" or "linear", down to 0 over the epochs after the warm-up, or a function
            of the optimizer that returns a scheduler of torch, or Lightning's dict around one. It
            moves after every epoch unless the dict says otherwise. None keeps the step size.
        warmup: Epochs in which the step size grows linearly up to `lr`, 0 or more.
        clip: Largest norm of the gradient, above 0; None is none.

    Raises:
        ValueError: A number outside its range.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    bias_lr: float | None = None
    decoupled: bool = False
    average: float | None = None
    schedule: str | Callable[[Any], Any] | None = None
    warmup: int = 0
    clip: float | None = None

    def __post_init__(self) -> None:
        check_each("a step size above 0", lambda v: 0 < v < inf, lr=self.lr, bias_lr=self.bias_lr)
        check_each("0 or more", lambda v: 0 <= v < inf, weight_decay=self.weight_decay)
        check_each("0 or more epochs", lambda v: 0 <= v < inf, warmup=self.warmup)
        check_each("a norm above 0", lambda v: v > 0, clip=self.clip)
        if not (callable(self.schedule) or self.schedule in (None, "cosine", "linear")):
            expected = "'cosine', 'linear', None or a function of the optimizer"
            raise ValueError(f"schedule: got {self.schedule!r}, expected {expected}")
        check_each("a share between 0 and 1", lambda v: 0 < v < 1, average=self.average)

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """Make an optimizer for the parameters of `module` that learn."""
        marked = [m for m in module.modules() if getattr(m, "is_bucket_bias", False)]
        biases, rest = split_parameters(module, (p for m in marked for p in m.parameters()))
        lr = self.lr if self.bias_lr is None else self.bias_lr
        groups: list[Any] = [{"params": rest}, {"params": biases, "lr": lr, "weight_decay": 0.0}]
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind(groups[: 1 + bool(biases)], lr=self.lr, weight_decay=self.weight_decay)

    def scheduled(self, optimizer: torch.optim.Optimizer, epochs: int) -> dict[str, Any]:
        """Put the schedule of a training of that many epochs beside its optimizer."""
        rest, wanted = max(epochs - self.warmup, 1), self.schedule
        if callable(wanted):
            made = wanted(optimizer)
        elif wanted == "cosine":
            made = CosineAnnealingLR(optimizer, rest)
        else:
            made = LinearLR(optimizer, 1.0, 0.0, rest) if wanted else ConstantLR(optimizer, 1.0)
        config = made if isinstance(made, dict) else {"scheduler": made}
        if self.warmup:
            first = LinearLR(optimizer, 1 / self.warmup, total_iters=max(self.warmup - 1, 1))
            both = SequentialLR(optimizer, [first, config["scheduler"]], [self.warmup])
            config = config | {"scheduler": both}
        return {"optimizer": optimizer, "lr_scheduler": {"monitor": "val_loss"} | config}

    def average_of(self, model: nn.Module) -> AveragedModel | None:
        """Make the running average that a model is scored as, or None."""
        if self.average is None:
            return None
        step = get_ema_multi_avg_fn(self.average)
        return AveragedModel(model, multi_avg_fn=step).requires_grad_(False)


def split_parameters(
    module: nn.Module, chosen: Iterable[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Part the parameters of `module` that learn into those that are `chosen` and the others."""
    marked, learning = set(map(id, chosen)), [p for p in module.parameters() if p.requires_grad]
    return [p for p in learning if id(p) in marked], [p for p in learning if id(p) not in marked]


class LabelTask(Task):
    """A task with labels, scored as the running average of its model where `options` make one."""

    metrics: ClassVar[Metrics] = METRICS  #: Scores of each kind of labels; the first is taken.
    outputs_are: ClassVar[str] = "num_classes"  #: What the constructor calls their number.
    num_classes: int
    average: AveragedModel | None

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        metric: str | None = None,
        optimizer: Any = AdamOptions(),
        kind: str = "multiclass",
    ) -> None:
        super().__init__()
        if kind not in self.metrics:
            raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(self.metrics)}")
        self.metric, known = metric or self.metrics[kind][0], ", ".join(self.metrics[kind])
        if self.metric not in self.metrics[kind]:
            raise ValueError(f"metric: got {metric!r}, expected one of {known} for {kind} labels")
        least = 2 if kind == "multiclass" else 1
        two = kind == "multiclass" and metric == "rocauc"
        if num_classes < least or (two and num_classes != 2):
            expected = f"{'2' if two else f'{least} or more'} for {self.metric!r}"
            raise ValueError(f"{self.outputs_are}: got {num_classes}, expected {expected}")
        self.model, self.average, self.options = model, optimizer.average_of(model), optimizer
        self.kind, self.num_classes = kind, num_classes
        self.score = SCORES[self.metric]
        self.higher_is_better = self.score.higher_is_better
        self.loss: Loss = LOSSES.get(self.metric, LOSSES[kind])

    @property
    def evaluated(self) -> nn.Module:
        """The model that evaluation runs: the average where there is one."""
        return self.model if self.average is None else self.average.module

    def describe(self, epochs: int) -> dict[str, Any]:
        fixed = isinstance(getattr(self.options, "schedule", None), str)
        return super().describe(epochs) | ({"epochs": epochs} if fixed else {})

    def configure_optimizers(self) -> Any:
        optimizer, options = self.options.build(self.model), self.options
        if options.schedule is None and not options.warmup:
            return optimizer
        return options.scheduled(optimizer, self.trainer.max_epochs)

    def configure_gradient_clipping(self, *args: Any, **options: Any) -> None:
        if self.options.clip is None:
            super().configure_gradient_clipping(*args, **options)
        else:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        trainer = self._trainer
        if self.average is not None and not (trainer and trainer.fit_loop._should_accumulate()):
            self.average.update_parameters(self.model)

    @torch.no_grad()
    def evaluate(self, batch: Any) -> Evaluation:
        with evaluating(self):
            val, *test = self.pairs(batch)
            loss = self.loss(val[0], self._target(val[1]))
        return Evaluation(float(loss), self._score(*val), *(self._score(*pair) for pair in test))

    @abstractmethod
    def pairs(self, batch: Any) -> list[Pair]:
        """Compute outputs beside labels, and in evaluation those of the test part after them."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        out, y = self.pairs(batch)[0]
        return self.loss(out, self._target(y))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log what `evaluate` finds, for a Trainer of your own."""
        found = self.evaluate(batch)._asdict()
        self.log_dict({k: v for k, v in found.items() if v is not None}, batch_size=1)

    test_step = validation_step

    def outputs(
        self, rows: int, *model_input: Any, run: Callable[..., Tensor] | None = None
    ) -> Tensor:
        """Run the model in training, or the one that evaluation runs, and check the shape."""
        model = self.model if self.training else self.evaluated
        found = run(model, *model_input) if run else model(*model_input)
        if found.shape != (expected := (rows, self.num_classes)):
            given = f"outputs of shape {tuple(found.shape)}, expected {expected}"
            raise ValueError(f"model: {given}: rows of labels, an output for each class or label")
        return found.float() if found.dtype in (torch.bfloat16, torch.float16) else found

    def _target(self, y: Tensor) -> Tensor:
        return y

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Turn outputs into probabilities, or values of a regression into their own unit."""
        return outputs.softmax(1) if self.kind == "multiclass" else outputs.sigmoid()

    def _score(self, outputs: Tensor, y: Tensor) -> float:
        if not bool(torch.isfinite(outputs).all()):
            return self.score.worst  # the loss is not finite either, which `fit` reports
        if self.kind == "multiclass":
            outputs, y = outputs[y >= 0], y[y >= 0]
        return self.score(outputs, y)
