from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose

from graphtheory.data.transforms import AddDistances, AddPaths, AddResistance
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo.graph_models import GraphConfig

SMALL = GraphConfig(hidden=8, layers=2, heads=2, dropout=0.0)
ATOMS, BONDS = (5, 3), (4,)


def molecule(nodes: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    tree = torch.stack([torch.arange(1, nodes), torch.arange(1, nodes) // 2])
    edge_index = torch.cat([tree, tree.flip(0)], 1)
    kinds = torch.randint(4, (nodes - 1, 1), generator=generator)
    graph = Data(
        x=torch.stack([torch.randint(k, (nodes,), generator=generator) for k in ATOMS], 1),
        edge_index=edge_index, edge_attr=torch.cat([kinds, kinds]), y=torch.ones(1, 2),
    )  # fmt: skip
    graph.random_walk_pe = torch.rand(nodes, 3, generator=generator)
    graph.laplacian_eigenvector_pe = torch.rand(nodes, 2, generator=generator)
    return graph


def build(name: str, config: GraphConfig = SMALL, **changed: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    options = {"node_in": ATOMS, "edge_in": BONDS, "num_outputs": 2} | changed
    return graph_zoo.build(name, config, **options).eval()


PLAIN = [molecule(5, 0), molecule(9, 1), molecule(2, 2)]


@cache
def molecules() -> list[Data]:
    """With all of their pairs, for which loops are compiled: not while tests are collected."""
    transforms = (AddDistances(), AddPaths(3), AddResistance())
    return [Compose(transforms)(graph.clone()) for graph in PLAIN]


def assert_same_alone(model: torch.nn.Module) -> Tensor:
    together = model(Batch.from_data_list(molecules()))
    alone = torch.cat([model(Batch.from_data_list([graph])) for graph in molecules()])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    return together


@pytest.mark.parametrize("name", graph_zoo.COMPARED)
@pytest.mark.parametrize("readout", ["mean", "sum", "max"])
def test_a_graph_has_the_same_outputs_alone_and_in_a_batch(name: str, readout: str) -> None:
    config = replace(SMALL, readout=readout, walk=3, laplacian=2, degree=True, virtual_node=True)
    assert assert_same_alone(build(name, config)).shape == (3, 2)


@pytest.mark.parametrize("neighbors", ["all", "2"])
def test_graph_tokens_paths_and_resistance_alone_and_in_a_batch(neighbors: str) -> None:
    config = replace(
        SMALL, readout="token", paths=3, resistance=True, value_encoding=True, neighbors=neighbors
    )
    model = build("gt", config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    together = assert_same_alone(model)
    graph = molecules()[1]
    for read, value in (
        ("paths", torch.full_like(graph.paths, -1)),
        ("resistance", graph.resistance.flip(0)),
    ):
        other = graph.clone()
        other[read] = value
        changed = model(Batch.from_data_list([other])) - together[1]
        assert changed.abs().max() > 1e-5, read
    of_nodes = build("gt", config, level="node")
    assert of_nodes(Batch.from_data_list(molecules())).shape == (16, 2)


@pytest.mark.parametrize("name", graph_zoo.COMPARED)
def test_the_order_of_the_nodes_makes_no_difference(name: str) -> None:
    model, graph = build(name), molecules()[1]
    order = torch.tensor([3, 1, 4, 0, 5, 8, 2, 6, 7])  # new node i is the old order[i]
    place = order.argsort()
    distance = graph.distance.view(9, 9)[order][:, order].flatten()
    turned = Data(
        x=graph.x[order], edge_index=place[graph.edge_index], edge_attr=graph.edge_attr,
        y=graph.y, distance=distance,
    )  # fmt: skip
    outputs = [model(Batch.from_data_list([g])) for g in (graph, turned)]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", graph_zoo.COMPARED)
def test_who_reads_edges_and_distances(name: str) -> None:
    graph, model = molecules()[1], build(name)
    for module in model.modules():
        if getattr(module, "is_bucket_bias", False):
            torch.nn.init.normal_(module.table)

    def outputs(**changed: Tensor) -> Tensor:
        return model(Batch.from_data_list([graph.clone().update(changed)]))

    for readers, other in (
        (set(graph_zoo.COMPARED) - {"mlp"}, outputs(edge_attr=(graph.edge_attr + 1) % 4)),
        ({"gt"}, outputs(distance=graph.distance.flip(0))),
    ):
        assert ((other - outputs()).abs().max() > 1e-4) == (name in readers)


def test_a_ball_is_what_lies_within_its_hops() -> None:
    batch = Batch.from_data_list(molecules())
    model = build("gt", replace(SMALL, neighbors="2"))
    attended = model.view(batch).attended
    assert attended is not None and attended.distance is not None
    assert int(attended.distance.max()) == 2
    assert attended.num_edges == int((batch.distance <= 2).sum())
    assert model(batch).shape == (3, 2)


@pytest.mark.parametrize("name", graph_zoo.COMPARED)
def test_float_features_and_no_edge_features(name: str) -> None:
    graphs = [Data(x=torch.randn(g.num_nodes, 4), edge_index=g.edge_index) for g in molecules()]
    for graph, known in zip(graphs, molecules(), strict=True):
        graph.distance = known.distance
    model = build(name, node_in=4, edge_in=None)
    batch = Batch.from_data_list(graphs)
    assert model(batch).shape == (3, 2)
    nodes = build(name, node_in=4, edge_in=None, level="node")
    assert nodes(batch).shape == (16, 2)
    model.train()(batch).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_what_has_to_be_computed_before_and_what_is_missing() -> None:
    config = replace(SMALL, walk=4)
    assert graph_zoo.precomputed("gcn", config) == {"walk": 4}
    assert graph_zoo.precomputed("gt", config) == {"walk": 4, "distance": 1}
    config = replace(SMALL, paths=3, resistance=True)
    assert graph_zoo.precomputed("gt-plain", config) == {"distance": 1}
    found = graph_zoo.precomputed("gt", config)
    assert found == {"distance": 1, "paths": 3, "resistance": 1}
    batch = Batch.from_data_list(molecules())
    batch.distance = batch.distance[1:]
    with pytest.raises(ValueError, match="got 109 rows, expected 110, one for each pair"):
        build("gt")(batch)
    del batch.distance
    with pytest.raises(ValueError, match="got none, expected 110, one"):
        build("gt")(batch)


@pytest.mark.parametrize(("name", "changed", "message"), [
    ("gtt", {}, "model: got 'gtt', expected one of gt, gt-plain, gine"),
    ("gt", {"norm": "none"}, "norm: got 'none', expected one of batch, layer"),
    ("gcn", {"readout": "token"}, "readout: got 'token', expected one of mean"),
    ("gt", {"local": "gcn"}, "local: got 'gcn', expected one of gine, None"),
    ("gt", {"neighbors": "2:60"}, "neighbors: got '2:60', expected 'all' or hops"),
    ("gt", {"neighbors": "20"}, "neighbors: got '20', expected 'all' or hops up to 19"),
    ("gatv2", {"heads": 3}, "heads: got 3, expected a divisor of hidden=8"),
])  # fmt: skip
def test_options_that_do_not_exist(name: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(name, replace(SMALL, **changed))


def test_a_virtual_node_adds_up_features_of_16_bits_in_float32() -> None:
    virtual = graph_zoo.VirtualNodes(1, dropout=0.0).bfloat16()
    virtual.update = torch.nn.Identity()  # of the sum and the state, which is 0
    view: Any = SimpleNamespace(num_graphs=1, graph_of=torch.zeros(3000, dtype=torch.int64))
    _, state = virtual(torch.full((3000, 1), 0.5, dtype=torch.bfloat16), None, view)
    assert state.dtype is torch.bfloat16
    assert state.item() == pytest.approx(1500, rel=0.01)
