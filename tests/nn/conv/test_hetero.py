"""PyG's containers for several kinds of nodes and edges, with layers on the core in them."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import HeteroData

from graphtheory import ops
from graphtheory.integrations.pyg import accelerate
from graphtheory.nn.conv.on_core import OnCore

KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
NODES = {"a": 7, "b": 4}


@pytest.fixture
def data():
    data = HeteroData()
    for t, n in NODES.items():
        data[t].x = torch.randn(n, 6, dtype=torch.float64)
    for kind in KINDS:
        data[kind].edge_index = torch.stack([torch.randint(NODES[t], (15,)) for t in kind[::2]])
    return data


def run(model, data):
    model.zero_grad()
    out = model(data.x_dict, data.edge_index_dict)
    sum(o.sin().sum() for o in out.values()).backward()
    return out, [p.grad for p in model.parameters()]


LAYERS = {
    "GATConv": lambda: pyg.GATConv((6, 6), 6, heads=2, concat=False, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv((6, 6), 6, add_self_loops=False),
    "SAGEConv": lambda: pyg.SAGEConv((6, 6), 6),
    "GraphConv": lambda: pyg.GraphConv((6, 6), 6, aggr="max"),
    "TransformerConv": lambda: pyg.TransformerConv((6, 6), 6),
}


class Two(torch.nn.Module):
    """Two layers for one kind of nodes, which `to_hetero` takes apart."""

    def __init__(self, make) -> None:
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("aggr", ["sum", "max"])
@pytest.mark.parametrize("name", LAYERS)
def test_hetero_conv(name, aggr, data) -> None:
    model = pyg.HeteroConv({kind: LAYERS[name]() for kind in KINDS}, aggr).double()
    wanted = run(model, data)
    report = accelerate(model)
    assert len(report.swapped) == 3 and not report.kept
    torch.testing.assert_close(run(model, data), wanted)


@pytest.mark.parametrize("name", LAYERS)
def test_to_hetero(name, data) -> None:
    model = pyg.to_hetero(Two(LAYERS[name]), data.metadata()).double()
    wanted = run(model, data)
    report = accelerate(model)
    assert len(report.swapped) == 6 and not report.kept
    assert report.swapped[0].name == "first.a__to__a"
    torch.testing.assert_close(run(model, data), wanted)


def test_one_launch_for_each_kind_of_edges(data, monkeypatch) -> None:
    model = pyg.to_hetero(Two(LAYERS["SAGEConv"]), data.metadata()).double()
    accelerate(model)
    launches, aggregate = [], ops.aggregate

    def counted(*args):
        launches.append(args)
        return aggregate(*args)

    monkeypatch.setattr(ops, "aggregate", counted)
    monkeypatch.setattr(OnCore, "_is_first", lambda *_: False)  # as in later calls
    model(data.x_dict, data.edge_index_dict)
    assert len(launches) == 2 * len(KINDS)
