"""The user's own networks in rows beside ours: what they may look like, and what is refused."""

import json
import math
import re
from collections.abc import Callable
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, Sequential, global_add_pool

import graphtheory
from graphtheory.lab.bench.benchmark import bench_task
from graphtheory.lab.bench.search import read_log
from graphtheory.lab.cli import main
from graphtheory.lab.train import FullGraph, NodeTask, fit
from tests.lab.bench.test_comparison import ring

SHORT: dict[str, Any] = {"seeds": 1, "epochs": 3, "progress": False}


class Net(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = GCNConv(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class OnData(Net):
    def forward(self, data: Data) -> Tensor:
        return super().forward(data.x, data.edge_index)


class Pooled(Net):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(super().forward(x, edge_index), batch)


class PooledData(Net):
    def forward(self, data: Data) -> Tensor:
        return global_add_pool(super().forward(data.x, data.edge_index), data.batch)


def bench_task_of(file: str, model: str) -> Any:
    """The network and its data as `bench` and `train` make them, of seed 0."""
    task = bench_task(file)
    (name,) = task.take_models([model])
    return task.prepare(task.config(name)[0], 0)


def graphs(count: int = 30) -> list[Data]:
    rings = [ring(4 + i % 3) for i in range(count)]
    own = ((torch.rand(len(one.y), 3), one.edge_index) for one in rings)
    return [Data(x=x, edge_index=e, y=torch.tensor([i % 2])) for i, (x, e) in enumerate(own)]


class Still(Net):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.requires_grad_(False)


class Undefined(Net):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) * math.nan


class Weighted(nn.Module):
    """Keeps what it is called with; its outputs do not depend on the weights."""

    seen: Data

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.map = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        Weighted.seen = Data(x=x, edge_index=edge_index, edge_weight=edge_weight)
        return self.map(x)


class OnNodesAlone(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


class OnWeightedData(Weighted):
    def forward(self, data: Data) -> Tensor:
        return super().forward(data.x, data.edge_index, data.edge_weight)


def in_a_row(channels: int, classes: int) -> nn.Module:
    return Sequential("x, edge_index", [(GCNConv(channels, classes), "x, edge_index -> x")])


def test_a_network_of_every_form_is_trained_as_fit_trains_it() -> None:
    forms: dict[str, Any] = {
        "mine": lambda i, o: Net(i, o), "on data": OnData, "in a row": in_a_row, "gcn": "gcn",
        "of PyG": lambda i, o: GCN(i, 8, 2, o),
    }  # fmt: skip
    found = graphtheory.bench(ring(), forms, **SHORT)
    assert [run.model for run in found.runs] == list(forms)
    mine, on_data, in_row, ours, _ = (run.history for run in found.runs)
    losses = [[epoch["val_loss"] for epoch in run] for run in (mine, on_data, in_row)]
    assert losses[0] == losses[1] == losses[2] != [epoch["val_loss"] for epoch in ours]
    own = "mine, on data, in a row and of PyG are your own networks, trained by the same loop but"
    assert f"{own} not tuned." in str(found)
    task = bench_task(ring())
    config, epochs, patience = found.benchmark.config("mine")
    assert (epochs, patience) == found.benchmark.config("gcn")[1:]
    data = task.data(0, row_scale=False)
    torch.manual_seed(0)
    network = Net(30, 2)

    class Given(nn.Module):  # the same loop by hand
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor, neighborhood: Any) -> Tensor:
            return self.network(x, neighborhood.edge_index())

    given = NodeTask(Given(), num_classes=2, optimizer=config.optimizer)
    by_hand = fit(given, FullGraph(data), epochs=3, progress=False)
    assert [epoch["val_loss"] for epoch in by_hand.history] == losses[0]


@pytest.mark.filterwarnings("ignore:data.edge_weight")
def test_edges_come_as_they_are_stored_with_their_weights() -> None:
    data = ring()
    shuffled = torch.randperm(data.num_edges)
    data.edge_index = data.edge_index[:, shuffled]
    data.edge_weight = torch.rand(data.num_edges)
    for kind in (Weighted, OnWeightedData):
        found = graphtheory.bench(data, {"weighted": kind, "x": OnNodesAlone}, **SHORT)
        assert torch.equal(Weighted.seen.edge_index, data.edge_index)
        assert torch.equal(Weighted.seen.edge_weight, data.edge_weight)
        assert found.runs[0].history[-1]["val_loss"] == found.runs[1].history[-1]["val_loss"]
    del data.edge_weight
    with pytest.raises(ValueError, match=r"model Weighted: got .* the data has no edge_weight"):
        graphtheory.bench(data, [Weighted], **SHORT)


class Placed(Net):
    """Reads every tensor of the graph, and is told of no label and no mask."""

    seen: Data

    def forward(self, batch: Data) -> Tensor:
        Placed.seen = batch
        return super().forward(batch.x + batch.pos.sum(), batch.edge_index)


def test_tensors_come_as_they_are_stored_but_for_labels_and_masks() -> None:
    data = ring()
    data.x, data.pos = 7 * torch.rand(30, 30), torch.rand(30, 3)  # rows that a search would scale
    data.train_mask, data.val_mask = torch.arange(30) % 3 == 0, torch.arange(30) % 3 == 1
    data.test_mask = ~(data.train_mask | data.val_mask)
    found = graphtheory.bench(data, {"gcn": "gcn", "placed": Placed}, **SHORT)
    assert sorted(Placed.seen.keys()) == ["edge_index", "pos", "x"]
    assert torch.equal(Placed.seen.x, data.x) and torch.equal(Placed.seen.pos, data.pos)
    assert len(found.runs) == 2


def test_options_by_hand_reach_its_optimizer_and_leave_the_rest() -> None:
    options = {"lr": 0.02, "undirected": True}
    found = graphtheory.bench(ring(), {"mine": Net, "gcn": "gcn"}, options=options, **SHORT)
    assert found.benchmark.config("mine")[0].optimizer.lr == 0.02
    assert "Set by hand: lr=0.02, undirected=true (mine ignores undirected)." in str(found)


def test_sets_of_graphs_take_them_too() -> None:
    found = graphtheory.bench(graphs(), ["gine", Pooled, PooledData], **SHORT)
    ours, mine, on_data = found.runs
    assert (ours.model, mine.model) == ("gine", "Pooled") and mine.parameters == 3 * 2 + 2
    assert [e["val_loss"] for e in mine.history] == [e["val_loss"] for e in on_data.history]
    values = [one.clone() for one in graphs()]
    for one in values:
        one.y = one.x.sum(0)[None, :1]
    assert graphtheory.bench(values, [Pooled], **SHORT).runs[0].test > 0


def test_a_network_that_is_not_made_anew_is_refused() -> None:
    network = Net(30, 2)
    with pytest.raises(ValueError, match="model m: got a network with weights that it gave before"):
        graphtheory.bench(ring(), {"m": lambda i, o: network}, seeds=2, epochs=1)


@pytest.mark.usefixtures("small_space")
def test_a_search_has_the_same_budget_and_its_log_tells_networks_apart(tmp_path: Path) -> None:
    def search(build: Callable[[int, int], nn.Module]) -> Any:
        models, out = {"mine": build, "gcn": "gcn"}, tmp_path / "o"
        return graphtheory.bench(ring(), models, budget=2, out=out, **SHORT)

    found = search(Net)
    log = read_log(tmp_path / "o/search.log")
    assert [one.config.model for one in log] == ["mine"] * 2 + ["gcn"] * 2
    assert {one.config.optimizer.lr for one in log[:2]} == {0.01, 0.1}
    assert "loop and tuned in step size and weight decay alone." in str(found)
    search(Net)
    assert read_log(tmp_path / "o/search.log") == log
    with pytest.raises(ValueError, match="under other settings: source"):
        search(OnData)


@pytest.mark.parametrize(("models", "expected"), [
    ({"m": lambda i, o: Still(i, o)}, "model m: got no trainable weights, expected one or more"),
    ({"m": lambda i, o: Undefined(i, o)}, "model m: its loss is nan before it is trained"),
    ({"m": lambda: Net(3, 2)}, "model m: TypeError: "),
    ({"m": Weighted}, "got forward(x, edge_index, edge_weight), and the data has no edge_weight"),
    (["gtt"], "models: got 'gtt', expected one of gt, gt-plain"),
    ([lambda i, o: 3], "model <lambda>: got int, expected a torch.nn.Module"),
    ({"m": lambda i, o: Net(i, o + 1)}, "model m: outputs of shape (30, 3), expected (30, 2)"),
    ({"m": lambda i, o: Net(i + 1, o)}, "model m: RuntimeError: mat1 and mat2 shapes"),
    ({"m": lambda i, o: nn.Bilinear(i, i, o)}, "model m: got forward(input1, input2), and"),
    ({"m": Net(3, 2)}, "models: got Net, expected a name, FILE.py:NAME or a function"),
    ({"gt": Net}, "models: 'gt' is one of ours, give your own another name"),
    ({"mine": "gt"}, "models: got 'mine' for gt, expected names that differ"),
    ([lambda i, o: Net(i, o), lambda i, o: Net(i, o)], "got '<lambda>' for <lambda>, expected"),
    (["gt", "gt"], "models: got 'gt' for gt, expected names that differ"),
    (["mine.py:MyNet"], "models: there is no file mine.py, expected FILE.py:NAME"),
    ([3], "models: got int, expected a name"),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_anything_is(models: Any, expected: str) -> None:
    with pytest.raises((ValueError, TypeError, OSError), match=re.escape(expected)):
        graphtheory.bench(ring(), models, seeds=1, epochs=1)


def test_a_file_of_data_and_one_of_a_network_in_python_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(ring(), "mine.pt")
    head = "from __future__ import annotations\nfrom torch import nn\n"
    head += "from torch_geometric.nn import GCNConv\n"
    Path("mine.py").write_text(head + getsource(Net).replace("Net", "MyNet", 1))
    found = graphtheory.bench("mine.pt", ["gcn", "mine.py:MyNet"], **SHORT)
    assert (found.name, [run.model for run in found.runs]) == ("mine", ["gcn", "MyNet"])
    words = ["bench", "--data", "mine.pt", "--seeds", "1", "--epochs", "3", "--out", "o"]
    assert main([*words, "--models", "gcn,mine.py:MyNet"]) == 0
    assert "MyNet is your own network, trained by the same loop but not" in capsys.readouterr().out
    page = Path("o/report.html").read_text(encoding="utf-8")
    assert "MyNet" in page and "lr=" in page
    own = ["train", "--data", "mine.pt", "--model", "mine.py:MyNet", "--out", "t", "--epochs"]
    assert main([*own, "2", "--predict", "p.csv"]) == 0
    assert "MyNet is your own network, which is not tuned." in capsys.readouterr().out
    assert len(Path("p.csv").read_text().splitlines()) == 31
    assert main([*own, "3", "--resume"]) == 0
    alone = fit(*bench_task_of("mine.pt", "mine.py:MyNet"), epochs=3, progress=False)
    kept = json.loads(Path("t/result.json").read_text())["result"]
    assert [row["val_loss"] for row in kept["history"]] == [e["val_loss"] for e in alone.history]
    assert main([*words, "--models", "mine.py:YourNet"]) == 2
    told = "--models: mine.py has no YourNet; expected one of MyNet"
    assert told in capsys.readouterr().err
    Path("project").mkdir()
    Path("project/layers.py").write_text(Path("mine.py").read_text())
    Path("project/net.py").write_text(
        "from layers import MyNet\ndef build(i, o): return MyNet(i, o)"
    )
    found = graphtheory.bench("mine.pt", ["project/net.py:build"], **SHORT)
    assert [run.model for run in found.runs] == ["build"]
    Path("project/broken.py").write_text("import a_package_that_is_not_there")
    with pytest.raises(ValueError, match=r"models: project/broken\.py raises ModuleNotFoundError"):
        graphtheory.bench("mine.pt", ["project/broken.py:build"])
    with pytest.raises(FileNotFoundError, match=r"data: there is no file other\.pt"):
        graphtheory.bench("other.pt")
