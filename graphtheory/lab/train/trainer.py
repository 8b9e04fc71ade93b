"""A Lightning Trainer that says nothing and does nothing it is not asked to."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment


def lean_trainer(epochs: int, callbacks: list[Callback], plugins: list[Any]) -> Trainer:
    """One device, no logger, no files; validation is left to the callbacks."""
    return Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1,
        max_epochs=epochs,
        callbacks=callbacks,
        plugins=[LightningEnvironment(), *plugins],  # a cluster's environment changes nothing
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
    )


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
