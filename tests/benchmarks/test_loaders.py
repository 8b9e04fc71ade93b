"""The benchmark of loaders: every way is measured, and said to be missing where it cannot be."""

from types import ModuleType

import pytest
import torch
from torch_geometric import typing as pyg_typing

needs_sampler = pytest.mark.skipif(
    not (pyg_typing.WITH_TORCH_SPARSE or pyg_typing.WITH_PYG_LIB),
    reason="PyG samples neighbors with torch-sparse or pyg-lib",
)


@pytest.fixture
def loaders(module: ModuleType, in_this_process: None) -> ModuleType:
    """The script, measuring in this process."""
    return module


def test_a_quick_run_measures_every_way(
    loaders: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pyg_typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(pyg_typing, "WITH_TORCH_SPARSE", False)
    loaders.main(threads=torch.get_num_threads(), quick=True)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == loaders.MISSING
    for name in loaders.ours(10):
        for what in (
            "time of an epoch",
            "extra peak memory of an epoch",
            "edges drawn for a batch",
        ):
            assert any(line.startswith(what) and f", {name} " in line for line in lines)


def test_what_a_way_sums_over_is_counted(loaders: ModuleType) -> None:
    batches, model = loaders.way("NodeSetLoader, GraphSAGE", loaders.data_of("small"), 100, 40)
    for batch in batches():
        drawn, summed = model.work(batch)
        assert drawn == summed == sum(len(layer.indices) for layer in batch.neighborhoods)
        assert model(batch).shape == (batch.batch_size, loaders.CLASSES)
    assert batch.batch_size == 20


@needs_sampler
def test_theirs_is_timed_where_it_can_draw(loaders: ModuleType) -> None:
    data = loaders.data_of("small")
    names = (loaders.SAGE, loaders.GT, *loaders.THEIRS)
    batches, model = loaders.way("NeighborLoader, SAGEConv, trimmed", data, 40, 10)
    for batch in batches():  # the same logits of the seeds from fewer edges
        trimmed, edges = model(batch), model.work(batch)[1]
        model.trim = False
        assert edges < model.work(batch)[1] and (batch.edge_index[1].diff() >= 0).all()
        torch.testing.assert_close(trimmed, model(batch))
        model.trim = True
    ways = {name: loaders.way(name, data, 100, 50) for name in names}
    rows = {row.name: row for row in loaders.time_rows(ways, repeats=1, threads=1)}
    for name, (_, _, mine) in loaders.THEIRS.items():
        assert rows[f"time of an epoch, {name}"].median > 0
        assert f"times faster than {name}: an epoch, {mine}" in rows


@needs_sampler
def test_both_forms_of_the_attention_of_seeds_are_equal_and_compared(loaders: ModuleType) -> None:
    data = loaders.data_of("small")
    ways = {name: loaders.way(name, data, 100, 50) for name in (loaders.FUSED, loaders.DENSE)}
    loaders.assert_equal(ways)
    rows = {row.name for row in loaders.time_rows(ways, repeats=1, threads=1)}
    assert f"times faster than {loaders.DENSE}: a step, {loaders.FUSED}" in rows
    (batch,), model = ways[loaders.FUSED][0](), ways[loaders.FUSED][1]
    near, ends = model.near(batch), set(zip(*batch.edge_index.tolist(), strict=True))
    for source, target, bucket in zip(
        near.indices.tolist(), near.targets().tolist(), near.distance.tolist(), strict=True
    ):
        hop, rest = divmod(bucket, loaders.RELATIONS * loaders.TIMES)
        assert hop == 0 if source == target else hop == 1 if (source, target) in ends else hop == 2
        assert rest == batch.relation[source] * loaders.TIMES + batch.time[source]
    with torch.no_grad():
        model.layer.bucket_bias.table[loaders.TIMES] += 1  # of one relation, hop and time
    with pytest.raises(AssertionError, match="not close"):
        loaders.assert_equal(ways)


def test_attention_sets_of_both_ways_have_the_same_sizes(loaders: ModuleType) -> None:
    data = loaders.data_of("small")
    drawn, whole = (loaders.way(name, data, 60, 30) for name in (loaders.DRAWN, loaders.WHOLE))
    for one, other in zip(drawn[0](), whole[0](), strict=True):
        assert torch.equal(one.input_id, other.input_id)
        assert torch.equal(one.neighborhood.degree(), other.neighborhood.degree())


def test_growth_pairs_both_graphs(loaders: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"1e5": [1.0, 2.0], "1e6": [1.5, 2.0]}
    times = lambda works, *_, **__: {k: spent[k[-3:]] for k in works}  # noqa: E731
    monkeypatch.setattr(loaders, "seconds", times)
    ways = {loaders.SAGE: loaders.way(loaders.SAGE, loaders.data_of("small"), 20, 10)}
    rows = loaders.growth_rows({"1e5": ways, "1e6": ways}, 2, threads=1)
    found = {row.name.removeprefix("10^6 over 10^5 nodes: "): row.median for row in rows}
    share = found[f"nodes of its batches, {loaders.SAGE}"]  # of two epochs of one graph here
    assert 0.9 < share < 1.1
    times = f"an epoch, {loaders.SAGE}", f"loading an epoch, {loaders.SAGE}"
    assert [found[name] for name in times] == [1.25, 1.25]
    assert [found[f"{name}, a node of its batches"] for name in times] == [1.25 / share] * 2
    assert len(found) == 5
