import pytest
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data

from graphtheory.lab.datasets.pattern_graph import CoreNeighborhoodGraph


def _adjacency(data: Data) -> Tensor:
    out = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.long)
    out.index_put_(
        tuple(data.edge_index), torch.ones(data.num_edges, dtype=torch.long), accumulate=True
    )
    return out


@pytest.mark.parametrize("variant", ["printed", "regular"])
@pytest.mark.parametrize(("gamma_d", "eps_s"), [(0.4, 0.05), (0.6, 0.2), (0.3, 0.0)])
def test_links_follow_section_3_5_1(
    variant: str, gamma_d: float, eps_s: float, generator: Generator
) -> None:
    model = CoreNeighborhoodGraph(gamma_d=gamma_d, eps_s=eps_s, variant=variant)
    data = model.sample(generator)
    links, carriers = _adjacency(data), model.carriers
    one, two, rest = slice(carriers), slice(carriers, 2 * carriers), slice(2 * carriers, None)
    assert carriers == round(500 * gamma_d)
    assert int(links.max()) == 1 and torch.equal(links, links.t()) and int(links.trace()) == 0
    assert int(links[one, two].sum()) == 0 and int(links[rest, rest].sum()) == 0
    confusion = round(120 * eps_s)
    positive = data.y[rest] == 1
    to_one, to_two = links[rest, one].sum(1), links[rest, two].sum(1)
    assert torch.equal(to_one, torch.where(positive, 120 - confusion, confusion))
    assert torch.equal(to_two, torch.where(positive, confusion, 120 - confusion))
    assert int(links.sum(1).min()) >= 120
    for block in (one, two):
        inner = links[block, block].sum(1)
        if variant == "regular":
            assert inner.tolist() == [120] * carriers
        else:
            enough = links[block, rest].sum(1) >= 120
            assert bool(enough.all()) <= (int(inner.sum()) == 0)


def test_labels_and_patterns(generator: Generator) -> None:
    data = CoreNeighborhoodGraph().sample(generator)
    assert data.pattern.bincount().tolist() == [200, 200] + [75] * 8
    assert bool((data.y[data.pattern == 0] == 1).all()) and not data.y[data.pattern == 1].any()
    assert abs(float(data.y[400:].float().mean()) - 0.5) < 0.1  # five standard errors
    assert not data.flipped.any()


def test_features_are_noisy_orthonormal_patterns(generator: Generator) -> None:
    data = CoreNeighborhoodGraph(c_0=0.1).sample(generator)
    torch.testing.assert_close(data.mu @ data.mu.t(), torch.eye(10))
    noise = data.x - data.mu[data.pattern]
    assert abs(float(noise.std()) - 0.1) < 0.004 and abs(float(noise.mean())) < 0.004


def test_flipped_labels_contradict_the_graph() -> None:
    clean, noisy = (
        CoreNeighborhoodGraph(eps_0=eps_0).sample(Generator().manual_seed(1)) for eps_0 in (0, 0.1)
    )
    assert int(noisy.flipped.sum()) == 100
    assert torch.equal(clean.edge_index, noisy.edge_index)
    assert torch.equal(noisy.y != clean.y, noisy.flipped)


def test_same_generator_same_graph() -> None:
    model = CoreNeighborhoodGraph(num_nodes=100, degree=10)
    first, again, other = (model.sample(Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)


def test_the_printed_degree_does_not_fit_gamma_02() -> None:
    with pytest.raises(ValueError, match=r"degree: got 120, expected 0 to 105, for 100 nodes of"):
        CoreNeighborhoodGraph(gamma_d=0.2)
    assert CoreNeighborhoodGraph(gamma_d=0.2, degree=105).max_degree == 105
    regular = CoreNeighborhoodGraph(gamma_d=0.2, degree=99, variant="regular")
    assert regular.max_degree == 99
    assert regular.sample(Generator()).num_nodes == 1000


def test_odd_regular_graphs_miss_by_one_link(generator: Generator) -> None:
    model = CoreNeighborhoodGraph(num_nodes=35, gamma_d=0.4, eps_s=0, degree=3, variant="regular")
    inner = _adjacency(model.sample(generator))[:7, :7].sum(1)
    assert inner.sort().values.tolist() == [3] * 6 + [4]  # 7 x 3 is odd


def test_a_graph_without_votes_cannot_reach_the_degree() -> None:
    model = CoreNeighborhoodGraph(num_nodes=20, gamma_d=1.0, eps_s=0.5, degree=12)
    with pytest.raises(ValueError, match=r"degree: got 12.*lacks 12 links and has 9 others"):
        model.sample(Generator())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma_d", 0.0),
        ("gamma_d", 1.1),
        ("eps_s", -0.1),
        ("eps_s", 0.6),
        ("eps_0", 1.5),
        ("num_patterns", 2),
        ("dim", 9),
        ("c_0", -1.0),
        ("degree", -1),
        ("variant", "other"),
    ],
)
def test_parameters_out_of_range_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}: got {value!r}, expected"):
        CoreNeighborhoodGraph(**{name: value})
