from dataclasses import replace

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.topology.sampling import NAMES, SAMPLERS, candidates, fitted, neighbor_use
from graphtheory.patterns import AddSelf, Compose, GraphSAGE, SymmetricNormalize
from graphtheory.patterns.importance import column_norms
from tests.patterns.laws import random_directed

GRAPH = Compose(AddSelf(), SymmetricNormalize())(random_directed(150, 0.15, seed=1))
LABELED = torch.arange(0, 150, 3)


def test_neighbors_are_counted_in_the_rows_of_the_batch_alone() -> None:
    edges = torch.tensor([[1, 2, 3, 0, 3], [0, 0, 1, 2, 2]])  # 0 from 1, 2; 1 from 3; 2 from 0, 3
    whole = Neighborhood.from_edge_index(edges, 4)
    every = neighbor_use(Compose(), whole, torch.tensor([1]), 2, draws=2)
    assert every.neighbors == 1 and every.edges == (1 + 1) / 10  # 1 from 3, which has none
    one = neighbor_use(GraphSAGE(1), whole, torch.tensor([2]), 1, draws=2)
    assert one.neighbors == 1 / 2 and one.edges == 1 / 5


@pytest.mark.parametrize(
    ("name", "variant"), [(name, variant) for name, of in SAMPLERS.items() for variant in of]
)
def test_a_sampler_uses_the_share_that_it_was_fitted_to(name: str, variant: str) -> None:
    sampler = fitted(name, variant, GRAPH, LABELED, 2, 0.2)
    found = neighbor_use(sampler, GRAPH, LABELED, 2, draws=40)
    assert found.neighbors == pytest.approx(0.2, abs=0.03)
    star = sampler.effective(GRAPH)
    if star is not None:  # as much weight as A on its edges, up to how weights and p* go together
        assert float(star.weight.sum() / GRAPH.weight.sum()) == pytest.approx(1, abs=0.2)


def test_shares_of_least_variance_have_less_of_it_than_even_ones() -> None:
    degree, norm = GRAPH.degree().double(), column_norms(GRAPH)

    def variance(variant: str) -> float:
        sampler = fitted("degree groups", variant, GRAPH, LABELED, 2, 0.2)
        group, size, drawn, _ = sampler.groups_of(GRAPH)
        share = drawn / size
        assert float((share[group] * degree).sum() / degree.sum()) == pytest.approx(0.2, abs=0.03)
        return float((norm * (1 / share[group] - 1)).sum())

    assert variance("shares of least variance") < 0.97 * variance("even shares")


def test_options_are_those_of_the_gcn_and_every_variant_is_a_candidate() -> None:
    tried: tuple[dict[str, float], ...] = ({}, {"dropout": 0.5, "weight_decay": 5e-4})
    first, second = (one.trial for one in candidates("Cora", tried, 0.1, ("FastGCN",)))
    assert second.network == replace(first.network, dropout=0.5)
    assert second.optimizer == replace(first.optimizer, weight_decay=5e-4)
    found = candidates("Cora", ({},), 0.1)
    variants = [(name, variant) for name in NAMES for variant in SAMPLERS.get(name, ("",))]
    assert [(one.sampler, one.variant) for one in found] == variants
    for one in found:
        assert one.budget == (0.1 if one.sampler in SAMPLERS else 1.0)
        zoo.build(one.trial.model, zoo.NetworkConfig(), num_features=3, num_classes=2)
