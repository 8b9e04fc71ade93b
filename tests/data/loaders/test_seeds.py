"""Order, epochs and workers: a batch is a function of (seed, epoch, place)."""

import pickle

import pytest
import torch
from torch.utils.data import DistributedSampler
from torch_geometric.testing import MyGraphStore

from graphtheory import Neighborhood, ops
from graphtheory.data.loaders import (
    AttentionSetLoader,
    GraphFolder,
    LayerWiseLoader,
    NodeSetLoader,
    PartitionLoader,
    SharedAnchors,
)
from graphtheory.graph import neighborhood as neighborhood_module
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    FastGCN,
    KHop,
    Sample,
    SymmetricNormalize,
)
from tests.data.loaders.conftest import forking, random_data

MAKERS = [
    lambda data, **options: NodeSetLoader(data, FastGCN(count=9), 2, **options),
    lambda data, **options: NodeSetLoader(data, Compose(AddSelf(), LADIES(9)), 2, **options),
    lambda data, **options: AttentionSetLoader(
        data, Compose(KHop(2), Sample(3), AddSelf()), **options
    ),
    lambda data, **options: AttentionSetLoader(data, SharedAnchors(5), **options),
]
OPTIONS = {"batch_size": 6, "shuffle": True, "seed": 3}


@forking
@pytest.mark.parametrize("make", [MAKERS[0], MAKERS[3]])
def test_any_number_of_workers_gives_the_same_bits(data, make, same):
    alone = make(data, **OPTIONS)
    first, second = list(alone), list(alone)
    assert not same(first, second)
    for workers, keep in ((1, False), (2, True)):
        loader = make(
            data, num_workers=workers, persistent_workers=keep, prefetch_factor=3, **OPTIONS
        )
        assert same(list(loader), first)
        assert same(list(loader), second)  # epochs go on alike, with workers that stay or not


@pytest.mark.parametrize("make", MAKERS)
def test_epochs_differ_and_can_be_chosen(data, make, same):
    loader = make(data, **OPTIONS)
    epochs = [list(loader) for _ in range(3)]
    assert not same(epochs[0], epochs[1]) and not same(epochs[1], epochs[2])
    late = make(data, **OPTIONS)
    late.set_epoch(2)
    assert same(list(late), epochs[2])
    late.set_epoch(0)
    assert same(list(late), epochs[0]) and same(list(late), epochs[1])
    assert not same(list(make(data, **OPTIONS | {"seed": 4})), epochs[0])


@pytest.mark.parametrize("make", MAKERS)
def test_processes_share_what_one_draws_in_as_many_batches(data, make, same):
    # 40 seeds: batches of 8 and 8 for two processes twice, then of 4 and 4.
    ranks = [make(data, batch_size=8, seed=3, rank=r, world_size=2) for r in (0, 1)]
    alone = list(make(data, batch_size=8, seed=3))
    (first, third, last), (second, fourth, other) = (list(loader) for loader in ranks)
    assert same([first, second, third, fourth], alone[:4])
    assert last.input_id.tolist() + other.input_id.tolist() == alone[4].input_id.tolist()
    assert (last.batch_size, other.batch_size) == (4, 4)


@pytest.mark.parametrize("make", [
    *MAKERS,
    lambda data, **options: LayerWiseLoader(data, FastGCN(count=9), 2, **options),
    lambda data, **options: PartitionLoader(data, torch.arange(40) % 6, **options),
])  # fmt: skip
def test_a_process_of_a_group_takes_its_share_without_being_told(data, make, monkeypatch):
    group = torch.distributed
    monkeypatch.setattr(group, "is_initialized", lambda: True)
    monkeypatch.setattr(group, "get_world_size", lambda: 2)
    shares = []
    for rank in (0, 1):
        monkeypatch.setattr(group, "get_rank", lambda rank=rank: rank)
        loader = make(data, batch_size=2, shuffle=True)
        shares.append([s for b in loader for s in b.n_id[: b.batch_size].tolist()])
        assert isinstance(loader.sampler, DistributedSampler)  # which frameworks leave as it is
        loader.sampler.set_epoch(7)
    assert sorted(shares[0] + shares[1]) == list(range(40))
    with pytest.warns(UserWarning, match="world_size: got 1 in a process group of 2"):
        everyone = make(data, batch_size=2, rank=0, world_size=1)
    assert sum(b.batch_size for b in everyone) == 40


@pytest.mark.parametrize(("seeds", "drop"), [(40, False), (39, False), (41, True), (5, False)])
def test_processes_have_as_many_batches_and_no_seed_twice(data, seeds, drop):
    options = OPTIONS | {"input_nodes": range(seeds) if seeds <= 40 else None, "drop_last": drop}
    ranks = [MAKERS[0](data, rank=r, world_size=3, **options) for r in range(3)]
    assert len({len(loader) for loader in ranks}) == 1
    for _ in range(2):  # epochs
        parts = [[batch.input_id.tolist() for batch in loader] for loader in ranks]
        assert len({len(part) for part in parts}) == 1
        seen = [node for part in parts for batch in part for node in batch]
        whole = min(seeds, 40) if not drop else 40 - 40 % 18
        assert len(seen) == len(set(seen)) == whole
        for batches in zip(*parts, strict=True):
            assert max(map(len, batches)) - min(map(len, batches)) <= 1


@pytest.mark.parametrize(("options", "message"), [
    ({"rank": 2, "world_size": 2}, "rank: got 2, expected below world_size=2"),
    ({"rank": 0, "world_size": 0}, "world_size: got 0, expected a whole number from 1 on"),
    ({"world_size": 2}, "rank: got None with world_size=2, expected both or none"),
    ({"rank": 0}, "rank: got 0 with world_size=None, expected both or none"),
    ({"batch_size": 13, "rank": 0, "world_size": 3}, "3 processes for a last batch of 1 seeds"),
])  # fmt: skip
def test_a_share_that_does_not_exist_is_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        MAKERS[0](data, **{"batch_size": 6} | options)


def test_draws_and_with_shuffling_the_order_differ_by_epoch(data):
    loader = MAKERS[3](data, batch_size=40)
    (first,), (second,) = loader, loader
    assert torch.equal(first.input_id, second.input_id)
    assert first.neighborhood.indices.tolist() != second.neighborhood.indices.tolist()
    loader = MAKERS[0](data, **OPTIONS)
    orders = [torch.cat([batch.input_id for batch in loader]).tolist() for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(40)) != order for order in orders)


def test_global_random_state_is_neither_read_nor_changed(data, same):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = list(MAKERS[0](data, **OPTIONS))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(list(MAKERS[0](data, **OPTIONS)), first)


@pytest.mark.parametrize(("seeds", "drop", "sizes"), [
    (12, True, [6, 6]), (12, False, [6, 6]), (13, True, [6, 6]), (13, False, [6, 6, 1]),
    (3, True, []), (3, False, [3]),
])  # fmt: skip
def test_length_and_last_batch(data, seeds, drop, sizes):
    loader = MAKERS[0](data, input_nodes=torch.arange(seeds), drop_last=drop, **OPTIONS)
    assert len(loader) == len(sizes) and [batch.batch_size for batch in loader] == sizes


def test_input_id_is_the_place_in_what_was_given(data):
    ids = torch.tensor([7, 30, 2, 11])
    for batch in MAKERS[0](data, input_nodes=ids, batch_size=3, shuffle=True):
        assert torch.equal(ids[batch.input_id], batch.n_id[: batch.batch_size])
    mask = torch.zeros(40, dtype=torch.bool)
    mask[ids] = True
    (batch,) = MAKERS[0](data, input_nodes=mask, batch_size=4)
    assert batch.input_id.tolist() == batch.n_id[:4].tolist() == [2, 7, 11, 30]


@pytest.mark.parametrize(("options", "error", "match"), [
    ({"input_nodes": "train"}, TypeError, "input_nodes: got 'train'"),
    ({"input_nodes": torch.rand(3)}, TypeError, "input_nodes: dtype torch.float32"),
    ({"input_nodes": torch.tensor([[1]])}, TypeError, r"input_nodes: got \(1, 1\)"),
    ({"input_nodes": torch.tensor([1, 40])}, IndexError, "input_nodes: entry 1 is 40"),
    ({"input_nodes": torch.tensor([-1])}, IndexError, "input_nodes: entry 0 is -1"),
    ({"input_nodes": torch.tensor([4, 5, 4])}, ValueError, "input_nodes: node 4 comes twice"),
    ({"input_nodes": torch.ones(7, dtype=torch.bool)}, ValueError, "input_nodes: mask of 7"),
    ({"input_nodes": torch.zeros(40, dtype=torch.bool)}, ValueError, "input_nodes: empty"),
    ({"input_nodes": [True, False] * 7}, ValueError, "mask of 14, expected 40 nodes"),
    ({"input_nodes": [-1]}, IndexError, "input_nodes: entry 0 is -1"),
    ({"input_nodes": []}, TypeError, r"input_nodes: got '?\[\]'?, expected ids"),
    ({"input_nodes": 3}, TypeError, "input_nodes: got '?3'?, expected ids"),
    ({"input_nodes": ["a"]}, TypeError, "expected ids"),
    ({"batch_size": 0}, ValueError, "batch_size: got 0"),
    ({"seed": -1}, ValueError, "seed: got -1"),
    ({"sampler": None}, TypeError, "sampler: the loader decides"),
    ({"workers": 2}, TypeError, "workers"),
])  # fmt: skip
def test_refusals_name_what_was_wrong(data, options, error, match):
    with pytest.raises(error, match=match):
        MAKERS[0](data, **options)


def test_a_bad_epoch_or_pattern_is_refused_before_the_first_batch(data):
    with pytest.raises(ValueError, match="epoch: got -1"):
        MAKERS[0](data).set_epoch(-1)
    with pytest.raises(ValueError, match="count: got 41"):
        NodeSetLoader(data, LADIES(41, replace=False), 2)


def test_batches_can_be_sent_to_a_process_that_was_not_forked(data, same):
    loader = MAKERS[2](data, **OPTIONS)
    sent = pickle.loads(pickle.dumps(loader.dataset))
    key = (torch.tensor([3, 1]), 4, 2, 1.0)
    assert same([sent[key]], [loader.dataset[key]])


def noisy(batch):
    """A transform that draws, as PyG's do, from global state."""
    batch.noise = torch.rand(2)
    batch.twice = 2 * batch.x
    return batch


@forking
@pytest.mark.parametrize("make", [MAKERS[1], MAKERS[2]])
def test_a_transform_sees_each_finished_batch_wherever_it_is_made(data, make, same):
    state = torch.get_rng_state()
    plain, found = list(make(data, **OPTIONS)), list(make(data, transform=noisy, **OPTIONS))
    assert all(torch.equal(batch.twice, 2 * batch.x) for batch in found)
    assert len({tuple(batch.noise.tolist()) for batch in found}) == len(found) == 7
    assert torch.equal(torch.get_rng_state(), state)
    for workers in (1, 2):
        assert same(list(make(data, transform=noisy, num_workers=workers, **OPTIONS)), found)
    for batch in found:
        del batch.noise, batch.twice
    assert same(found, plain)


def test_what_a_transform_returns_is_the_batch(data):
    loader = MAKERS[0](data, transform=lambda batch: (batch.x, batch.batch_size), **OPTIONS)
    assert [size for _, size in loader] == [6, 6, 6, 6, 6, 6, 4]
    with pytest.raises(TypeError, match="transform: got str, expected a function of a batch"):
        MAKERS[0](data, transform="noisy")


SOURCES = {
    "data": lambda data, folder: data,
    "folder": lambda data, folder: GraphFolder.write(data, folder / "graph"),
    "store": lambda data, folder: (data, by_column(data)),
}
WHOLE = [Compose(), AddSelf(), Compose(AddSelf(), SymmetricNormalize())]


def by_column(data):
    """A store that gives the edges in CSC, in tensors of its own."""
    edges = Neighborhood.from_edge_index(data.edge_index, data.num_nodes)
    store = MyGraphStore()
    size = (data.num_nodes, data.num_nodes)
    store.put_edge_index((edges.indices, edges.indptr), edge_type=None, layout="csc", size=size)
    return store


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sent", [False, True], ids=["here", "sent"])
def test_a_batch_does_not_look_at_all_edges(tmp_path, monkeypatch, source, sent):
    seen = []
    whole = neighborhood_module.state_of
    monkeypatch.setattr(
        neighborhood_module, "state_of", lambda *ids: seen.append(len(ids[0])) or whole(*ids)
    )
    data = random_data(weighted=False)
    given = SOURCES[source](data, tmp_path)
    for loader in (
        AttentionSetLoader(given, Compose(KHop(2), Sample(3), AddSelf()), batch_size=4),
        NodeSetLoader(given, Compose(AddSelf(), FastGCN(9)), 2, batch_size=4),
    ):
        batches = pickle.loads(pickle.dumps(loader.dataset)) if sent else loader.dataset
        seen.clear()
        for place in range(3):
            batches[torch.arange(4), 0, place, 1.0]
        assert 41 not in seen
    Neighborhood.from_edge_index(data.edge_index, 40).check_unchanged()
    assert seen[-1] == 41


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("pattern", WHOLE, ids=str)
def test_what_a_batch_hands_out_is_looked_at_and_is_no_part_of_the_graph(tmp_path, source, pattern):
    given = SOURCES[source](random_data(weighted=False), tmp_path)
    loaders = [
        NodeSetLoader(given, pattern, 2, batch_size=40),
        AttentionSetLoader(given, pattern, batch_size=40),
        PartitionLoader(given, torch.zeros(40, dtype=torch.int64), pattern),
        PartitionLoader(given, torch.zeros(40, dtype=torch.int64), pattern, num_layers=2),
    ]
    for loader in loaders:
        inner = loader.dataset.source.own, getattr(loader.dataset, "base", None)
        kept = {t.data_ptr() for nb in inner if nb for t in (nb.indptr, nb.indices)}
        (batch,) = loader
        layers = batch.get("neighborhoods", [batch.get("neighborhood")])
        for nb in {id(nb): nb for nb in layers}.values():  # without draws, one for all layers
            assert not kept & {nb.indptr.data_ptr(), nb.indices.data_ptr()}
            x = torch.ones(40, 1, 1, requires_grad=True)
            ops.aggregate(None, x, nb).sum().backward()
            nb.indices[0] = 39 - nb.indices[0]
            with pytest.raises(ValueError, match="changed in place"):
                ops.aggregate(None, x, nb)
