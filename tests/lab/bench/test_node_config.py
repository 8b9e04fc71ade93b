import json

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.bench.config import RunResult
from graphtheory.lab.bench.node_config import NodeRunConfig, load, prepare, train_nodes
from graphtheory.lab.train import AdamOptions
from graphtheory.lab.zoo.node_models import NetworkConfig

TRIAL = NodeRunConfig(
    "gt",
    NetworkConfig(hidden=8, heads=2, neighbors="2:5", dropout=0.3, ffn=True),
    AdamOptions(lr=0.02, bias_lr=0.1),
    degree=True,
)


def graph(x: torch.Tensor) -> Data:
    return Data(x=x, edge_index=torch.tensor([[0, 1, 2, 3], [1, 1, 1, 0]]))


def trained(trial: NodeRunConfig, seed: int = 0, epochs: int = 4) -> RunResult:
    data = load("karate", None, None, seed, **trial.inputs)
    return train_nodes(trial, data, seed=seed, epochs=epochs, patience=epochs)


@pytest.mark.parametrize(
    "trial", [TRIAL, NodeRunConfig("mlp"), NodeRunConfig.of("gat", lr=0.1, heads=8)]
)
def test_round_trip_through_a_line_of_text(trial: NodeRunConfig) -> None:
    assert NodeRunConfig.from_dict(json.loads(json.dumps(trial.as_dict()))) == trial


def test_rows_of_features_sum_to_one() -> None:
    x = prepare(graph(torch.tensor([[3.0, 1.0], [0.0, 0.0], [0.2, 0.3], [0.0, 4.0]]))).x
    torch.testing.assert_close(x, torch.tensor([[0.75, 0.25], [0, 0], [0.2, 0.3], [0, 1]]))


def test_signed_features_stay() -> None:
    x = torch.tensor([[3.0, -1.0], [5.0, 0.0], [0.2, 0.3], [0.0, 4.0]])
    assert torch.equal(prepare(graph(x)).x, x)


def test_degree_is_a_standardised_column() -> None:
    x = prepare(graph(torch.ones(4, 2)), degree=True).x
    log = torch.tensor([1.0, 3.0, 0.0, 0.0]).log1p()  # edges that arrive
    torch.testing.assert_close(x[:, 2], (log - log.mean()) / log.std())
    assert x[:, :2].unique().tolist() == [0.5]


def test_degree_of_a_regular_graph_is_zero_and_not_nan() -> None:
    ring = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
    assert prepare(ring, degree=True).x[:, 2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("given_sparse", [False, True])
def test_mostly_empty_wide_features_become_sparse(given_sparse: bool) -> None:
    x = torch.zeros(4, 300)
    x[0, :2] = 1.0
    prepared = prepare(graph(x.to_sparse_csr() if given_sparse else x)).x
    assert prepared.layout == torch.sparse_csr
    assert torch.equal(prepared.to_dense(), x / 2)
    assert prepare(graph(torch.ones(4, 300))).x.layout == torch.strided
    assert prepare(graph(x[:, :200])).x.layout == torch.strided


def test_preparing_leaves_the_given_graph_alone() -> None:
    data = graph(torch.full((4, 2), 4.0))
    prepare(data, degree=True)
    assert data.x.unique().tolist() == [4.0] and data.x.size(1) == 2


@pytest.mark.parametrize("model", ["gt", "gat", "gcn", "mlp"])
def test_everything_random_follows_from_the_seed(model: str) -> None:
    trial = NodeRunConfig.of(model, hidden=8, heads=2, neighbors="all:5", attention_dropout=0.2)
    outcomes = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        outcomes.append(trained(trial))
        expected = torch.random.get_rng_state()
        torch.manual_seed(noise)
        assert torch.equal(torch.random.get_rng_state(), expected), "the caller's state is changed"
    first, again = (list(o.model.parameters()) for o in outcomes)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = list(trained(trial, seed=1).model.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_options_reach_the_network_and_the_optimizer() -> None:
    slow = trained(NodeRunConfig.of("mlp", hidden=8, lr=1e-9))
    fast = trained(NodeRunConfig.of("mlp", hidden=8, lr=0.1))
    losses = [[row["val_loss"] for row in o.fit.history] for o in (slow, fast)]
    assert losses[0][0] == pytest.approx(losses[0][-1], abs=1e-6)
    assert abs(losses[1][0] - losses[1][-1]) > 1e-3
    assert trained(TRIAL).batches.train_batch(0).x.size(1) == 35  # one-hot members and the degree


def test_parameters_are_those_that_learn() -> None:
    free = trained(NodeRunConfig.of("gt", hidden=8, heads=2, layers=1), epochs=1)
    frozen = trained(
        NodeRunConfig.of("gt", hidden=8, heads=2, layers=1, frozen_query=True), epochs=1
    )
    query = 34 * 4 + 4  # one output layer: 34 features, 2 heads of 2 classes
    assert free.parameters - frozen.parameters == query
    assert free.parameters == sum(p.numel() for p in free.model.parameters())


def test_rows_stay_as_they_are_without_row_scale() -> None:
    x = torch.tensor([[3.0, 1.0], [0.5, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert prepare(graph(x)).x.tolist() == [[0.75, 0.25], [0.5, 0.0], [0.0, 0.0], [0.5, 0.5]]
    assert torch.equal(prepare(graph(x), row_scale=False).x, x)
    assert (
        NodeRunConfig.from_dict(NodeRunConfig("mlp", row_scale=False).as_dict()).inputs["row_scale"]
        is False
    )
