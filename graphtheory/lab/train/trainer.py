"""What `fit` hands to Lightning's `Trainer`: devices, precision, callbacks and loggers."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.accelerators import AcceleratorRegistry as Accelerators
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from graphtheory.lab.train.checkpoint import SafeCheckpointIO
from graphtheory.lab.train.contract import check_at_least

_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
_LOG_EVERY = 50  # steps, Lightning's own number


@dataclass(frozen=True)
class TrainerOptions:
    """Where and how precisely `fit` trains, and what looks on, by Lightning's `Trainer`.

    Several devices take different batches of an epoch, each as large as on one; every device
    evaluates all of validation, or they share it by `evaluation_rows` of the data. One batch with
    the whole graph is the same on all, which saves nothing. Each process runs the whole script;
    only the first one writes and shows progress.

    Args:
        device: "cpu", "cuda", "cuda:1" or "mps"; None is a GPU where there is one, else the CPU.
        devices: How many on each machine, their numbers, or "auto".
        num_nodes: Machines, at least 1.
        strategy: Lightning's name or object of one, such as "ddp".
        precision: "32-true", "bf16-mixed" or "16-mixed"; evaluation has it too.
        accumulate: Batches whose gradients make one step, at least 1.
        callbacks: Callbacks of `lightning.pytorch`, which find train_loss, val_loss and val.
        loggers: Loggers of `lightning.pytorch`, which get them after every epoch.

    Raises:
        ValueError: A number or a precision that is not listed above, or a device that is not here.
        TypeError: A callback or logger that is none of `lightning.pytorch`.

    Example:
        >>> TrainerOptions(precision="bf16-mixed", accumulate=2).describe()
        {'precision': 'bf16-mixed', 'accumulate': '2'}
    """

    device: str | None = None
    devices: int | str | Sequence[int] = 1
    num_nodes: int = 1
    strategy: Any = "auto"
    precision: str = "32-true"
    accumulate: int = 1
    callbacks: Sequence[Callback] = ()
    loggers: Sequence[Logger] = ()

    def __post_init__(self) -> None:
        check_at_least(1, num_nodes=self.num_nodes, accumulate=self.accumulate)
        if self.precision not in _PRECISIONS:
            expected = f"expected one of {', '.join(_PRECISIONS)}"
            raise ValueError(f"precision: got {self.precision!r}, {expected}")
        here = [n for n in Accelerators if Accelerators[n]["accelerator"].is_available()]
        if self.device is not None and self.device.partition(":")[0] not in here:
            raise ValueError(f"device: got {self.device!r}, expected one of {', '.join(here)}")
        for name, given, kind in (
            ("callbacks", self.callbacks, Callback), ("loggers", self.loggers, Logger)
        ):  # fmt: skip
            if wrong := [one for one in given if not isinstance(one, kind)]:
                found = f"{type(wrong[0]).__module__}.{type(wrong[0]).__name__}"
                raise TypeError(f"{name}: got a {found}, expected those of lightning.pytorch")

    def describe(self) -> dict[str, str]:
        """List the options that change what is learned, other than the default."""
        names = ("precision", "accumulate", "devices", "num_nodes")
        given = {name: getattr(self, name) for name in names}
        return {n: str(value) for n, value in given.items() if value != getattr(TrainerOptions, n)}

    def build(self, epochs: int, batches: int) -> Trainer:
        """Make the trainer, without files of its own, for epochs of that many batches."""
        kind, _, number = (self.device or "").partition(":")
        trainer = Trainer(
            accelerator=kind or ("gpu" if torch.cuda.is_available() else "cpu"),
            devices=[int(number)] if number else self.devices,  # type: ignore[arg-type]
            num_nodes=self.num_nodes,
            strategy=self.strategy,
            precision=self.precision,  # type: ignore[arg-type]
            accumulate_grad_batches=self.accumulate,
            max_epochs=epochs,
            callbacks=list(self.callbacks),
            # a cluster's environment changes nothing unless several devices are asked for
            plugins=[SafeCheckpointIO(), *([LightningEnvironment()] if self._alone else [])],
            logger=list(self.loggers) or False,
            log_every_n_steps=min(_LOG_EVERY, batches),
            enable_checkpointing=any(isinstance(one, Checkpoint) for one in self.callbacks),
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
        )
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            said = "expected one that starts scripts, such as 'ddp'; a notebook has devices=1"
            raise ValueError(f"strategy: {self.strategy!r} forks or spawns processes, {said}")
        return trainer

    @property
    def _alone(self) -> bool:
        one = self.devices in (1, "1") if isinstance(self.devices, int | str) else self.devices[1:]
        return self.num_nodes == 1 and one in (True, [], ())


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Keep Lightning's notes on devices, and one warning that it provokes itself, from the user."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(max(level, logging.WARNING))
    with warnings.catch_warnings():
        # Lightning 2.6 builds a LeafSpec, which torch 2.13 deprecates.
        warnings.filterwarnings("ignore", message=r".*LeafSpec.*", category=FutureWarning)
        try:
            yield
        finally:
            logger.setLevel(level)
