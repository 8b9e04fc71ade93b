from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    Effective,
    FastGCN,
    Sample,
    SymmetricNormalize,
    UniformNodes,
    effective_adjacency,
)
from tests.patterns.laws import GRAPHS, random_directed, source, weighted

NB = weighted(random_directed(7, 0.4, seed=2))


def test_closed_form_needs_no_draw() -> None:
    state = torch.get_rng_state()
    found = effective_adjacency(DegreeGroups((3,), p_star=(0.7, 0.3)), NB)
    assert found.draws == 0 and found.error is None
    groups = (NB.degree() >= 3).long()
    scale = torch.tensor([0.7, 0.3], dtype=torch.float64)[groups]
    torch.testing.assert_close(found.neighborhood.to_dense(), NB.to_dense() * scale)
    assert torch.equal(found.mean.weight, found.neighborhood.weight)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "pattern",
    [FastGCN(count=3), DegreeGroups(share=0.5, symmetric=True), UniformNodes(share=0.3)],
    ids=repr,
)
def test_estimate_agrees_with_the_closed_form(pattern: FastGCN) -> None:
    found = effective_adjacency(pattern, NB, draws=1500, generator=source())
    known = pattern.expected(NB)
    assert torch.equal(
        found.neighborhood.edge_index().unique(dim=1), known.edge_index().unique(dim=1)
    )
    mean = found.neighborhood
    true = known.to_dense()[mean.targets(), mean.indices]
    assert ((mean.weight - true).abs() <= 4 * found.error + 1e-12).all()


def test_moments_by_hand() -> None:
    pair = GRAPHS["two components"]
    draws = 50
    drawn = source()
    seen = [UniformNodes(share=0.5)(pair, generator=drawn).to_dense() for _ in range(draws)]
    found = effective_adjacency(UniformNodes(share=0.5), pair, draws=draws, generator=source())
    mean, nb = torch.stack(seen).mean(0), found.neighborhood
    error = torch.stack(seen).std(0) / draws**0.5
    torch.testing.assert_close(nb.to_dense(), mean)
    torch.testing.assert_close(found.error.float(), error[nb.targets(), nb.indices])


def test_pairs_that_are_no_edges_are_estimated_by_the_seed() -> None:
    graph = GRAPHS["path"]
    found = effective_adjacency(Sample(2, whole_graph=True), graph, draws=200, generator=source())
    torch.testing.assert_close(found.neighborhood.to_dense().sum(1), torch.full((6,), 2.0))
    assert (found.neighborhood.to_dense() > 0).all()
    one, same, other = (
        effective_adjacency(LADIES(normalize=True), NB, draws=20, generator=source(s)).error
        for s in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_graphs_without_edges_or_nodes_and_graphs_of_pyg() -> None:
    for name in ("no edges", "no nodes"):
        for draws in (None, 5):
            found = effective_adjacency(FastGCN(), GRAPHS[name], draws=draws)
            assert found.neighborhood.num_edges == 0
            assert found.neighborhood.num_dst == GRAPHS[name].num_dst
    data = Data(edge_index=NB.edge_index(), edge_weight=NB.weight, num_nodes=NB.num_dst)
    found = effective_adjacency(DegreeGroups(p_star=0.3), data)
    torch.testing.assert_close(found.neighborhood.to_dense(), 0.3 * NB.to_dense())
    gcn = Compose(AddSelf(), SymmetricNormalize(), DegreeGroups(p_star=0.3))
    expected = 0.3 * Compose(AddSelf(), SymmetricNormalize())(NB).to_dense()
    torch.testing.assert_close(effective_adjacency(gcn, data).neighborhood.to_dense(), expected)
    sampler = Compose(AddSelf(), SymmetricNormalize(), DegreeGroups(p_star=0.3))
    star = Effective(sampler)(GRAPHS["clique"])
    torch.testing.assert_close(star.to_dense(), torch.full((7, 7), 0.3 / 7))
    assert not Effective(sampler).is_random
    with pytest.raises(ValueError, match=r"pattern: LADIES.* has no closed form"):
        Effective(LADIES(normalize=True))(NB)


@pytest.mark.parametrize("draws", [0, 1, 2.5])
def test_too_few_draws(draws: int) -> None:
    with pytest.raises(ValueError, match=f"draws: got {draws}, expected at least 2"):
        effective_adjacency(FastGCN(), NB, draws=draws)


@pytest.mark.parametrize(("pattern", "graph", "message"), [
    (FastGCN(), HeteroData(), "obj: got HeteroData, expected a Neighborhood or one of"),
    (FastGCN(), 3, "obj: got int"),
    ("fastgcn", NB, "pattern: got str, expected a Pattern"),
])  # fmt: skip
def test_neither_a_graph_nor_a_pattern(pattern: Any, graph: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        effective_adjacency(pattern, graph)
