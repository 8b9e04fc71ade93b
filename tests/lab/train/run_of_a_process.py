"""A training run in a process of its own, for tests that end it.

The global `options`, set by `runpy.run_path`, has out_dir, epochs, pause (seconds in each epoch),
and die_at and call: in which call of os.fsync or Path.replace the process kills itself.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.lab.train import FullGraph, NodeTask, fit
from graphtheory.patterns import Sample


class Model(torch.nn.Linear):
    def forward(self, x: torch.Tensor, neighborhood: Neighborhood) -> torch.Tensor:
        dropped = torch.nn.functional.dropout(x, training=self.training)
        return neighborhood.to_dense() @ super().forward(dropped)


def dying(step: Callable[..., Any], last: int) -> Callable[..., Any]:
    """`step`, but its call number `last` kills the process."""
    calls = 0

    def wrapped(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*args)

    return wrapped


def small_graph() -> Data:
    part = torch.arange(60) % 3
    return Data(
        x=torch.randn(60, 8), y=torch.randint(3, (60,)), edge_index=torch.randint(60, (2, 200)),
        train_mask=part == 0, val_mask=part == 1, test_mask=part == 2,
    )  # fmt: skip


def main(options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if step := options["die_at"]:
        owner = Path if step == "replace" else os
        setattr(owner, step, dying(getattr(owner, step), options["call"]))
    try:
        fit(
            NodeTask(Model(8, 3), num_classes=3),
            FullGraph(small_graph(), Sample(4, whole_graph=True)),
            epochs=options["epochs"],
            patience=options["epochs"],
            out_dir=options["out_dir"],
            resume=True,
            progress=lambda row: time.sleep(options["pause"]),
        )
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(globals()["options"])
