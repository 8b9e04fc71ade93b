"""One step of SimCLR on this process's part of eight samples, in a process of its own.

The global `options`, set by `runpy.run_path`, has rank, world, port and folder.
"""

import os
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor, nn

from graphtheory.lab.train.contract import Batches
from graphtheory.lab.train.fit import quiet_lightning
from graphtheory.papers.fusion.contrastive import SGDOptions, SimCLR


class Twice(nn.Module):
    """Both views are the batch, the second one turned."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(3, 4, bias=False)

    def forward(self, batch: Tensor) -> Tensor:
        return self.backbone(torch.cat([batch, batch.flip(1)]))


def main(options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = options["rank"], options["world"]
    if world > 1:
        os.environ |= {
            "LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options["port"]),
        }  # fmt: skip
    samples = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    task = SimCLR(Twice(), nn.Identity(), temperature=0.5, optimizer=SGDOptions(1.0, 0.0, 0.0))
    before = {name: tensor.clone() for name, tensor in task.features.state_dict().items()}
    with quiet_lightning(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto",
            use_distributed_sampler=False, max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        part = samples.chunk(world)[rank]
        trainer.fit(task, Batches(1, lambda: iter([part])))
    kept = {"before": before, "after": task.features.state_dict()}
    torch.save(kept, Path(options["folder"]) / f"{world}-{rank}.pt")


if __name__ == "__main__":
    main(globals()["options"])
