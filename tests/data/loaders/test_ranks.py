"""Two processes with a loader each train as one does on the batches of both together."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from graphtheory.data.loaders import (
    AttentionSetLoader,
    LayerWiseLoader,
    NodeSetLoader,
    PartitionLoader,
    SharedAnchors,
    seeds,
)
from graphtheory.graph import neighborhood_from
from graphtheory.patterns import AddSelf, Compose, KHop

KEEP = Compose()
PART = torch.arange(6).repeat_interleave(torch.tensor([4, 13, 2, 9, 7, 5]))
LOADERS = {
    "NodeSetLoader": lambda data, **options: NodeSetLoader(data, AddSelf(), 1, **options),
    "AttentionSetLoader": lambda data, **options: AttentionSetLoader(
        data, Compose(KHop(1), AddSelf()), **options
    ),
    "SharedAnchors": lambda data, **options: AttentionSetLoader(data, SharedAnchors(40), **options),
    "LayerWiseLoader": lambda data, **options: LayerWiseLoader(data, KEEP, 1, **options),
    # edges between parts are those of a batch alone: none here
    "PartitionLoader": lambda data, **options: PartitionLoader(
        data, PART, AddSelf(), **{"input_nodes": torch.arange(0, 40, 3)} | options
    ),
}


def matrix_of(batch):
    if "neighborhoods" in batch:
        graph = batch.neighborhoods[0]
    else:
        graph = batch.neighborhood if "neighborhood" in batch else neighborhood_from(batch)
    return graph.to_dense().to(batch.x.dtype)


def loss_of(weight, batch):
    """The mean over the seeds, weighed, of one layer that sums what a seed aggregates from."""
    size = batch.batch_size
    out = (matrix_of(batch) @ (batch.x @ weight))[:size]
    return cross_entropy(out, batch.y[:size]) * batch.loss_weight


def gradient(weight, batch):
    return torch.autograd.grad(loss_of(weight, batch), weight)[0]


def between_parts_none(data):
    inside = PART[data.edge_index[0]] == PART[data.edge_index[1]]
    data.edge_index, data.edge_weight = data.edge_index[:, inside], data.edge_weight[inside]
    return data


def compare(data, make, batch_size=4, **options):
    """Seeds and gradients of each step: the mean of two ranks, and one process over both."""
    data, weight = between_parts_none(data), torch.eye(3, 4, dtype=torch.float64)
    weight.requires_grad_()
    ranks = [make(data, batch_size=batch_size, rank=r, world_size=2, **options) for r in (0, 1)]
    steps = list(zip(*ranks, strict=True))
    alone = list(make(data, batch_size=2 * batch_size, **options))
    assert len(steps) == len(alone)
    for batches, whole in zip(steps, alone, strict=True):
        first, second = (b.input_id.tolist() for b in batches)
        assert not set(first) & set(second)
        assert sorted(first + second) == sorted(whole.input_id.tolist())
        mean = sum(gradient(weight, batch) for batch in batches) / 2
        torch.testing.assert_close(mean, gradient(weight, whole))


@pytest.mark.parametrize("batch_size", [1, 3, 4])
@pytest.mark.parametrize("name", LOADERS)
def test_two_ranks_train_as_one_process_does_on_both_batches(data, name, batch_size):
    compare(data, LOADERS[name], batch_size)


@pytest.mark.parametrize("name", ["PartitionLoader", "LayerWiseLoader", "NodeSetLoader"])
def test_losses_that_are_not_weighed_are_noticed(data, name, monkeypatch):
    rows = seeds.Order.__iter__
    monkeypatch.setattr(  # as it was before
        seeds.Order, "__iter__", lambda order: ((*key[:3], 1.0) for key in rows(order))
    )
    with pytest.raises(AssertionError, match="not close"):
        compare(data, LOADERS[name], 3, input_nodes=torch.arange(0, 27, 3))


@pytest.mark.parametrize("name", LOADERS)
def test_ranks_share_the_shuffled_seeds_of_every_epoch(data, name):
    ranks = [LOADERS[name](data, batch_size=3, shuffle=True, rank=r, world_size=2) for r in (0, 1)]
    orders = []
    for _ in range(2):
        parts = [[batch.input_id.tolist() for batch in loader] for loader in ranks]
        assert [len(part) for part in parts] == [len(loader) for loader in ranks]
        orders.append([node for part in parts for batch in part for node in batch])
        assert len(set(orders[-1])) == len(orders[-1])
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


def test_a_loader_that_is_older_than_the_process_group_is_refused(data, monkeypatch):
    group = torch.distributed
    loaders = [make(data, batch_size=4) for make in LOADERS.values()]
    monkeypatch.setattr(group, "is_initialized", lambda: True)
    monkeypatch.setattr(group, "get_world_size", lambda: 2)
    monkeypatch.setattr(group, "get_rank", lambda: 1)
    for loader in loaders:
        with pytest.raises(RuntimeError, match="made for process 0 of 1 and runs in process 1 of"):
            next(iter(loader))


def in_a_group(rank, data, store):
    """What DDP makes of the gradients in one of two processes, which nobody told its rank."""
    group = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{store}/group", rank=rank, world_size=2)
    found = []
    for name in ("PartitionLoader", "LayerWiseLoader"):
        linear = torch.nn.Linear(3, 4, bias=False, dtype=torch.float64)
        torch.nn.init.ones_(linear.weight)
        model = torch.nn.parallel.DistributedDataParallel(linear)
        for batch in LOADERS[name](data, batch_size=1 if name == "PartitionLoader" else 3):
            model.zero_grad()
            size = batch.batch_size
            out = (matrix_of(batch) @ model(batch.x))[:size]
            loss = cross_entropy(out, batch.y[:size])
            (loss * batch.loss_weight).backward()
            found.append(linear.weight.grad.t().clone())
    torch.save(found, f"{store}/{rank}.pt")
    group.destroy_process_group()


@pytest.mark.slow  # it hung once among other tests; examples 07 and 11 run two processes, too
def test_two_processes_of_gloo_have_the_gradients_of_one(data, tmp_path):
    data, weight = between_parts_none(data), torch.ones(3, 4, dtype=torch.float64)
    weight.requires_grad_()
    torch.multiprocessing.spawn(in_a_group, (data, str(tmp_path)), nprocs=2)
    expected = [
        gradient(weight, batch)
        for name, size in (("PartitionLoader", 2), ("LayerWiseLoader", 6))
        for batch in LOADERS[name](data, batch_size=size)
    ]
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt"), expected)
