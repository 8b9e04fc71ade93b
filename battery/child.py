"""A training run in a process of its own, which can end itself in the middle of a save."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.lab.train import FullGraph, NodeTask, checkpoint, fit, watch
from graphtheory.patterns import Sample

EPOCHS = 6
REFUSED = 3  # exit code of a run whose checkpoint is damaged
STAGES = ("half written", "before fsync", "before the rename", "after the rename")


@dataclass(frozen=True)
class Orders:
    """What the process does besides training.

    Attributes:
        out: Folder of the run.
        flag: File of one byte, 1 while a save is under way.
        die_at: One of `STAGES`, or "" to live.
        save: In which save it ends, counted from 0.
        unsafe: Write over the old file in place, as a plain `torch.save` onto it does.
        pause: Seconds between epochs.
    """

    out: str
    flag: str
    die_at: str = ""
    save: int = 0
    unsafe: bool = False
    pause: float = 0.0


class Model(torch.nn.Linear):
    """Random numbers in every step: dropout, and the neighborhoods that `Sample` draws."""

    def forward(  # type: ignore[override]
        self, x: torch.Tensor, neighborhood: Neighborhood
    ) -> torch.Tensor:
        """Mean over the drawn neighbors."""
        dropped = torch.nn.functional.dropout(x, training=self.training)
        return neighborhood.to_dense() @ super().forward(dropped)


def graph() -> Data:
    """Sixty nodes of three classes."""
    generator = torch.Generator().manual_seed(0)
    part = torch.arange(60) % 3
    return Data(
        x=torch.randn(60, 8, generator=generator), y=part.roll(7),
        edge_index=torch.randint(60, (2, 200), generator=generator),
        train_mask=part == 0, val_mask=part == 1, test_mask=part == 2,
    )  # fmt: skip


def run(orders: Orders) -> None:
    """Train, or go on where the folder stands."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with Path(orders.flag).open("r+b") as file:
        flag = mmap.mmap(file.fileno(), 1)
    write = _unsafe if orders.unsafe else checkpoint.replace_file
    checkpoint.replace_file = watch.replace_file = _watched(write, flag, orders)
    try:
        fit(
            NodeTask(Model(8, 3), num_classes=3), FullGraph(graph(), Sample(4, whole_graph=True)),
            epochs=EPOCHS, patience=EPOCHS, out_dir=orders.out, resume=True,
            progress=lambda row: time.sleep(orders.pause),
        )  # fmt: skip
    except checkpoint.CheckpointError:
        sys.exit(REFUSED)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _unsafe(path: Path, content: bytes | bytearray) -> None:
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        if _HALFWAY:
            _HALFWAY.pop()()
        file.write(content[len(content) // 2 :])


_HALFWAY: list[Callable[[], None]] = []


def _watched(write: Callable[..., None], flag: Any, orders: Orders) -> Callable[..., None]:
    """`write` with the flag raised around it, and with the process's end in the save ordered."""
    saves = 0

    def save(path: Path, content: bytes | bytearray) -> None:
        nonlocal saves
        flag[0] = 1
        if orders.die_at and saves == orders.save:
            _prepare(orders.die_at, content)
        saves += 1
        write(path, content)
        flag[0] = 0

    return save


def _prepare(stage: str, content: bytes | bytearray) -> None:
    """Make the next save end the process at a stage of it."""
    replace = Path.replace

    def half(descriptor: int) -> None:
        os.ftruncate(descriptor, len(content) // 2)
        _die()

    def renamed(self: Path, target: Any) -> Path:
        if stage == "after the rename":
            replace(self, target)
        _die()
        return self

    _HALFWAY.append(_die)
    if stage == "half written":
        os.fsync = half  # type: ignore[assignment]
    elif stage == "before fsync":
        os.fsync = lambda fd: _die()
    else:
        Path.replace = renamed  # type: ignore[method-assign, assignment]
