"""`accelerate(report=)`: what each layer costs before and after, on the user's own inputs."""

import copy
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import models

from graphtheory.integrations import layer_costs
from graphtheory.integrations.pyg import accelerate

NODES, EDGES = 300, 3_000
KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_costs, "_SECONDS", 0.0)
    monkeypatch.setattr(layer_costs, "_RUNS", 1)


def graph():
    return torch.randn(NODES, 16), torch.randint(NODES, (2, EDGES))


def hetero():
    edges = {kind: torch.randint(NODES, (2, EDGES)) for kind in KINDS}
    return {name: torch.randn(NODES, 16) for name in "ab"}, edges


class Net(nn.Module):
    """Two layers that share a graph, the second of a kind without a drop-in."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, pyg.ARMAConv(8, 8)
        self.unused = pyg.GCNConv(8, 8)

    def forward(self, x, edge_index, *more):
        return self.second(self.first(x, edge_index, *more).relu(), edge_index)


def with_features():
    return (*graph(), torch.randn(EDGES, 4))


CASES = {
    "TransformerConv": (lambda: Net(pyg.TransformerConv(16, 8, edge_dim=4)), with_features),
    "GATConv": (lambda: Net(pyg.GATConv(16, 4, heads=2)), graph),
    "GCNConv": (lambda: Net(pyg.GCNConv(16, 8)), graph),
    "SAGEConv": (lambda: Net(pyg.SAGEConv(16, 8)), graph),
    "GINConv": (lambda: Net(pyg.GINConv(nn.Linear(16, 8))), graph),
    "GINEConv": (lambda: Net(pyg.GINEConv(nn.Linear(16, 8), edge_dim=4)), with_features),
    "HGTConv": (lambda: pyg.HGTConv(16, 8, (["a", "b"], KINDS), heads=2), hetero),
    "HeteroConv": (
        lambda: pyg.HeteroConv({kind: pyg.SAGEConv(16, 8) for kind in KINDS}),
        hetero,
    ),
    "to_hetero": (lambda: pyg.to_hetero(models.GraphSAGE(16, 8, 2), (["a", "b"], KINDS)), hetero),
    "GAT": (lambda: models.GAT(16, 8, 3, 4, heads=2), graph),
    "one layer": (lambda: pyg.GATv2Conv(16, 8), graph),
}


@pytest.mark.parametrize("name", CASES)
def test_every_layer_has_a_row_and_the_model_is_what_it_was(name, capsys) -> None:
    make, inputs = CASES[name]
    model, given = make(), inputs()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = accelerate(model, report=given)
    printed = capsys.readouterr().out
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(mine, before[key]) for key, mine in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    rows = {row.name: row for row in found.costs}
    assert rows.keys() == {"", *(s.name for s in found.swapped), *(k.name for k in found.kept)}
    for row in found.costs:
        assert re.search(rf"^{re.escape(row.name or '(model)')} .*{row.kind}", printed, re.M)
    swapped = [rows[swap.name] for swap in found.swapped if swap.name != "unused"]
    for row in [*swapped, rows[""]]:
        assert len(row.seconds) == len(row.peak_bytes) == 2
        assert min(row.seconds) > 1e-6 and min(row.peak_bytes) > NODES * 8
    if "unused" in rows:
        assert rows["unused"][2:] == ((), (), "not reached by these inputs")
        assert len(rows["second"].seconds) == 1
        assert rows["second"].reason == "no drop-in for this class"
        assert printed.count("not reached by") == printed.count("no drop-in for") == 1


def test_memory_and_time_are_those_of_a_step() -> None:
    nodes, width, edges = 20_000, 32, torch.randint(20_000, (2, 40_000))
    model, x = nn.Sequential(nn.Linear(width, width)), torch.randn(nodes, width)
    one = nodes * width * 4  # bytes of the output
    with torch.no_grad():
        _, peak = layer_costs.costs_of(model, [], x)[""]
    assert one <= peak < 1.1 * one
    _, peak = layer_costs.costs_of(model, [], {"input": x})[""]
    assert 2 * one <= peak < 2.2 * one  # and the gradient of the output
    assert x.grad is None and model[0].weight.grad is None
    layer = pyg.GATConv(width, width, add_self_loops=False)
    (row,) = accelerate(layer, report=(x, edges)).costs
    before, after = row.peak_bytes
    assert before > 40_000 * width * 4  # PyG's messages
    assert 3 * one < after < before  # outputs of the kernels count


def test_outputs_of_kernels_are_not_seen_where_they_come_from_the_pool(monkeypatch) -> None:
    x, edges = torch.randn(20_000, 32), torch.randint(20_000, (2, 40_000))

    def peak() -> int:
        return accelerate(pyg.GATConv(32, 32), report=(x, edges)).costs[0].peak_bytes[1]

    whole = peak()
    monkeypatch.setattr(layer_costs, "outputs_by_torch", torch.enable_grad)
    assert peak() < 0.9 * whole


def test_inputs_that_do_not_fit_leave_the_model_as_it_was() -> None:
    model = models.GAT(16, 8, 2)
    told = r"report: GAT on these inputs raises TypeError: .* missing"
    with pytest.raises(ValueError, match=told):
        accelerate(model, report=torch.randn(3, 16))
    with pytest.raises(TypeError, match="sparse_features: got 3, expected True or False"):
        accelerate(model, sparse_features=3)
    assert type(model.convs[0]) is pyg.GATConv
