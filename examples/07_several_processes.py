"""Train on sampled batches in several processes that share the labeled nodes.

    torchrun --nproc-per-node 2 examples/07_several_processes.py
    python examples/07_several_processes.py 2    # one process, two batches a step: the same numbers

Lightning averages the gradients; the loader reads from torch's process group which process this is
and gives it its part of every global batch. Lightning leaves its sampler as it is.
"""

import os
import sys

import torch
from lightning import LightningModule, Trainer
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data

from graphtheory.data.loaders import NodeSetLoader
from graphtheory.lab.datasets import graphs
from graphtheory.models import SampledGCN
from graphtheory.patterns import LADIES, AddSelf, Compose, SymmetricNormalize


class SampledNodes(LightningModule):
    def __init__(self, data: Data) -> None:
        super().__init__()
        torch.manual_seed(0)  # the same parameters in every process
        self.model = SampledGCN(data.x.size(1), 64, data.num_classes)
        self.data, self.losses = data, list[float]()

    def train_dataloader(self) -> NodeSetLoader:
        sampler = Compose(AddSelf(), SymmetricNormalize(), LADIES(256))  # 256 sources a layer
        return NodeSetLoader(
            self.data, sampler, 3, input_nodes=self.data.train_mask, attributes=["x", "y"],
            batch_size=64, shuffle=True, drop_last=True,
        )  # fmt: skip

    def training_step(self, batch: Data) -> torch.Tensor:
        logits = self.model(batch.x, batch.neighborhoods)
        loss = cross_entropy(logits, batch.y[: batch.batch_size])  # seeds come first
        self.losses.append(float(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


processes, together = int(os.environ.get("WORLD_SIZE", 1)), int([*sys.argv, 1][1])
trainer = Trainer(
    accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto",
    accumulate_grad_batches=together, max_epochs=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(task := SampledNodes(graphs.load("digits")))
if trainer.is_global_zero:
    mean = torch.tensor(task.losses).view(-1, together).mean(1)
    print(f"loss {mean[0]:.6f} ... {mean[-1]:.6f} in {len(mean)} steps")
if processes > 1:  # threads of the group must not outlive the interpreter
    torch.distributed.destroy_process_group()
