"""One training for torchrun, Lightning and Ray Train; stopped, it goes on within the epoch.

torchrun --nproc-per-node 2 examples/13_launchers.py
python examples/13_launchers.py lightning    # or ray (pip install ray[train]); two processes"""

import sys
from pathlib import Path

import torch
from torch import distributed, nn

from graphtheory.data.loaders import NodeSetLoader
from graphtheory.lab.datasets import graphs
from graphtheory.models import SampledGCN
from graphtheory.patterns import LADIES, AddSelf, Compose, SymmetricNormalize


def train(keep: Path, epochs: int) -> None:
    data, alone = graphs.load("digits"), not distributed.is_initialized()
    draw = Compose(AddSelf(), SymmetricNormalize(), LADIES(256))
    loader = NodeSetLoader(data, draw, 3, input_nodes=data.train_mask, batch_size=32, shuffle=True)
    torch.manual_seed(0)  # the same parameters in every process
    net, losses = SampledGCN(64, 64, 10), list[float]()
    model = net if alone else nn.parallel.DistributedDataParallel(net)
    parts = {"net": net, "optimizer": torch.optim.Adam(net.parameters(), 0.01), "loader": loader}
    if keep.exists():
        losses = (state := torch.load(keep)).pop("losses")
        _ = [part.load_state_dict(state[name]) for name, part in parts.items()]
    while loader.state_dict()["epoch"] < epochs:
        for batch in loader:
            out = model(batch.x, batch.neighborhoods)
            loss = nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            net.zero_grad()
            (batch.loss_weight * loss).backward()  # the mean over all processes
            parts["optimizer"].step()
            losses.append(loss.item())
            if loader.state_dict()["step"] in (0, 3) and (alone or distributed.get_rank() == 0):
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"losses": losses}, draft := keep.with_suffix(".draft"))
                draft.replace(keep)  # whole or absent
                print(f"loss {losses[-1]!r} after {len(losses)} steps", flush=True)


arguments = Path("launchers.pt").absolute(), int([*sys.argv, 5, 5][2])
if "ray" in sys.argv:
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    options = {"torch_config": TorchConfig("gloo"), "scaling_config": ScalingConfig(num_workers=2)}
    TorchTrainer(lambda: train(*arguments), **options).fit()
else:
    if "lightning" in sys.argv:
        from lightning import Fabric

        Fabric(accelerator="cpu", devices=2, strategy="ddp").launch()
    elif distributed.is_torchelastic_launched():  # by torchrun
        distributed.init_process_group("gloo")
    train(*arguments)
    if distributed.is_initialized():  # its threads must not outlive the interpreter
        distributed.destroy_process_group()
