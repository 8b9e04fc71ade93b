"""A run that was stopped within an epoch goes on with the batches that it would have had."""

import os
import signal
from itertools import islice

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

from battery.forked import start
from graphtheory.data.loaders import LayerWiseLoader, NodeSetLoader
from graphtheory.lab.train.fit import quiet_lightning
from graphtheory.patterns import LADIES, AddSelf, Compose, GraphSAGE
from tests.data.loaders.conftest import forking, random_data
from tests.data.loaders.test_ranks import LOADERS, matrix_of


def sampled(data, **options):
    return NodeSetLoader(data, Compose(AddSelf(), LADIES(5)), 1, **{"batch_size": 7} | options)


def layer_wise(data, **options):
    return LayerWiseLoader(data, GraphSAGE(1), 1, **{"batch_size": 7} | options)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_new_loader_goes_on_where_the_state_stands(data, same, name, rank):
    options = {"shuffle": True, "batch_size": 1 if name == "PartitionLoader" else 3}
    options |= {"rank": rank, "world_size": 2}
    first = LOADERS[name](data, **options)
    steps = len(first)
    epochs = [list(first) for _ in range(3)]
    for stopped in (0, 1, steps - 1):
        first.set_epoch(1)
        assert same(list(islice(first, stopped)), epochs[1][:stopped])
        state = first.state_dict()
        assert (state["epoch"], state["step"]) == (1, stopped)
        second = LOADERS[name](data, **options)
        second.load_state_dict(state)
        assert same(list(second), epochs[1][stopped:]) and same(list(second), epochs[2])


def test_a_layer_wise_loader_of_one_process_takes_the_seed_of_the_state(data, same):
    first, second = layer_wise(data, shuffle=True), layer_wise(data, shuffle=True)
    whole = [list(first), list(first)]
    assert not same(list(second), whole[0])
    first.set_epoch(0)
    begun = list(islice(first, 2))
    second.load_state_dict(first.state_dict())
    assert same(begun + list(second), whole[0]) and same(list(second), whole[1])


@forking
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 2, "persistent": True}]
)
def test_batches_that_workers_have_prepared_are_not_counted(data, same, options):
    options = {n.replace("persistent", "persistent_workers"): v for n, v in options.items()}
    loader = sampled(data, shuffle=True, seed=3, **options)
    whole = list(sampled(data, shuffle=True, seed=3))
    assert same(list(islice(loader, 2)), whole[:2])
    state = loader.state_dict()
    assert state["step"] == 2
    loader.load_state_dict(state)
    assert same(list(loader), whole[2:])


def test_what_came_before_is_not_made_again(data):
    made = []
    loader = sampled(data, transform=lambda batch: made.append(batch.input_id.tolist()))
    loader.load_state_dict(loader.state_dict() | {"step": 4})
    assert len(list(loader)) == len(made) == 2 and len(loader) == 6 and made[0][0] == 28


def test_a_state_tells_the_epoch_that_comes_next(data):
    loader = sampled(data)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (0, 0)
    list(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 0)
    next(batches := iter(loader))
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (1, 1)
    loader.set_epoch(7)
    assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (7, 0)
    del batches


@pytest.mark.parametrize(("change", "match"), [
    ({"batch_size": 4}, "got batch_size=4 in a loader with batch_size=7, expected the same"),
    ({"seed": 2}, "seed=2 in a loader with seed=0"),
    ({"world_size": 2}, "world_size=2 in a loader with world_size=1"),
    ({"seeds": 39}, "seeds=39 in a loader with seeds=40"),
    ({"step": 6}, "step 6, expected below the 6 of an epoch"),
    ({"step": -1}, "step: got -1, expected a whole number from 0 on"),
    ({"epoch": "1"}, "epoch: got '1', expected a whole number"),
])  # fmt: skip
def test_the_state_of_another_loader_is_refused(data, change, match):
    loader = sampled(data)
    with pytest.raises(ValueError, match=match):
        loader.load_state_dict(loader.state_dict() | change)
    with pytest.raises(ValueError, match="has no step, expected what state_dict returned"):
        loader.load_state_dict({"epoch": 0})


def test_an_order_that_the_loader_does_not_know_is_refused_within_an_epoch(data):
    own = torch.utils.data.RandomSampler(range(40))
    for loader, name in (
        (layer_wise(data, sampler=own), "a sampler of your own"),
        (layer_wise(data, num_workers=1, persistent_workers=True), "persistent_workers"),
    ):
        state = loader.state_dict()
        loader.load_state_dict(state)
        with pytest.raises(ValueError, match=f"step 2 of an epoch whose draws follow {name}"):
            loader.load_state_dict(state | {"step": 2})
    loader = layer_wise(data, sampler=own)
    assert len(list(islice(loader, 3))) == 3 == loader.state_dict()["step"]


def train(loader, steps, keep=None, at=None):
    """Losses of a linear layer by Adam; the state of all before each step goes to a file."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(3, 4, dtype=torch.float64)
    optimizer, losses = torch.optim.Adam(linear.parameters(), 0.1), []
    parts = {"linear": linear, "optimizer": optimizer, "loader": loader}
    if at is not None:
        state = torch.load(at)
        losses = state.pop("losses")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    while len(losses) < steps:
        for batch in islice(loader, steps - len(losses)):
            logits = (matrix_of(batch) @ linear(batch.x))[: batch.batch_size]
            loss = cross_entropy(logits, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if keep is not None:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save(state | {"losses": losses}, keep)
                if len(losses) == steps - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    return losses


def make_for_training():
    return sampled(random_data(), shuffle=True, seed=5)


def train_and_die(keep):
    train(make_for_training(), 10, keep)


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a POSIX signal")
def test_killed_within_an_epoch_it_goes_on_to_the_same_losses(tmp_path):
    keep = tmp_path / "state.pt"
    process = start(train_and_die, keep)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    found = train(make_for_training(), 16, at=keep)
    assert len(torch.load(keep)["losses"]) == 9  # 6 are an epoch
    assert found == train(make_for_training(), 16)


class Linear(LightningModule):
    """Notes the seeds and the loss of each step."""

    def __init__(self, loader):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 4, dtype=torch.float64)
        self.loader, self.seen = loader, []

    def train_dataloader(self):
        return self.loader

    def training_step(self, batch):
        logits = (matrix_of(batch) @ self.linear(batch.x))[: batch.batch_size]
        loss = cross_entropy(logits, batch.y[: batch.batch_size])
        self.seen.append((batch.n_id.tolist(), float(loss.detach())))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


def fitted(loader, folder=None, every=None, **options):
    callbacks = [ModelCheckpoint(folder, save_top_k=-1, every_n_train_steps=every)] if every else []
    module = Linear(loader)
    with quiet_lightning():
        trainer = Trainer(
            accelerator="cpu", max_epochs=3, logger=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=callbacks, enable_checkpointing=bool(every),
            log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(module, **options)
    return module.seen


@pytest.mark.filterwarnings(
    "ignore:The 'train_dataloader' does not have many workers",
    "ignore:Be aware that when using `ckpt_path`",
)
@pytest.mark.parametrize("make", [sampled, layer_wise])
def test_lightning_goes_on_within_an_epoch(data, tmp_path, make):
    whole = fitted(make(data, shuffle=True, seed=5), tmp_path, every=1)
    assert len(whole) == 18
    for step in (1, 4, 6, 10, 12):  # 6 and 12 are ends of epochs
        (file,) = tmp_path.glob(f"*step={step}.ckpt")
        assert fitted(make(data, shuffle=True, seed=5), ckpt_path=file) == whole[step:], step
