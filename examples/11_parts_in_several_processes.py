"""Train part by part in several processes: each reads its own parts of a graph on the disk.

torchrun --nproc-per-node 2 examples/11_parts_in_several_processes.py
python examples/11_parts_in_several_processes.py 2    # one process, two batches a step: the same
"""

import os
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from graphtheory.data.loaders import GraphFolder, PartitionLoader, metis
from graphtheory.lab.datasets import graphs
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, SymmetricNormalize

rank, local = (int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK"))
processes = int(os.environ.get("WORLD_SIZE", 1))
together, folder = int([*sys.argv, 1][1]), Path("digits-in-parts")
if processes > 1:
    torch.distributed.init_process_group("gloo")
if local == 0 and not folder.exists():  # once a machine
    data = graphs.load("digits")
    try:
        part = metis(data, 16)
    except ImportError as missing:
        print(f"{missing}. Parts by number instead.", file=sys.stderr)
        part = torch.arange(data.num_nodes) * 16 // data.num_nodes
    GraphFolder.write(data, folder, part, attributes=["x", "y", "train_mask"])
if processes > 1:
    torch.distributed.barrier()
kept, pattern = GraphFolder(folder), Compose(AddSelf(), SymmetricNormalize())
loaders = [  # one process may stand for several
    PartitionLoader(kept, kept.part, pattern, batch_size=2, input_nodes=kept.node["train_mask"],
                    shuffle=True, rank=rank * together + k, world_size=processes * together)
    for k in range(together)
]  # fmt: skip
torch.manual_seed(0)  # the same parameters in every process
module = SampledGCN(64, 64, 10)
model = DistributedDataParallel(module) if processes > 1 else module
optimizer, losses = torch.optim.Adam(module.parameters(), lr=0.01), list[torch.Tensor]()
steps = (batch for _ in range(5) for batches in zip(*loaders, strict=True) for batch in batches)
for step, batch in enumerate(steps):
    logits = model(batch.x, batch.neighborhood)[: batch.batch_size]  # seeds come first
    loss = batch.loss_weight * cross_entropy(logits, batch.y[: batch.batch_size])  # seeds differ
    (loss / together).backward()  # processes average their gradients
    losses.append(loss.detach() / (processes * together))
    if (step + 1) % together == 0:
        optimizer.step()
        optimizer.zero_grad()
mean = torch.stack(losses).view(-1, together).sum(1)
if processes > 1:
    torch.distributed.all_reduce(mean)
    del model  # it holds the group, whose threads must not outlive the interpreter
    torch.distributed.destroy_process_group()
if rank == 0:
    print(f"loss {mean[0]:.6f} ... {mean[-1]:.6f} in {len(mean)} steps")
