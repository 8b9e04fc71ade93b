import pytest
import torch
from torch import Generator
from torch_geometric.utils import is_undirected

from graphtheory.lab.datasets.pattern_graph import PowerLawGraph

SMALL = {"num_nodes": 20_000, "num_links": 100_000, "max_degree": 2000}


def drawn(seed=0, **changes):
    return PowerLawGraph(**SMALL | changes).sample(Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def data():
    return drawn()


def test_links_are_distinct_and_lie_by_target(data):
    sources, targets = data.edge_index
    code = targets * 20_000 + sources
    assert data.edge_index.shape == (2, 200_000) and bool((code[1:] > code[:-1]).all())
    assert bool((sources != targets).all()) and is_undirected(data.edge_index, num_nodes=20_000)


def test_degrees_follow_the_power_law():
    degree = torch.bincount(drawn(homophily=0.0, num_classes=2).edge_index[1], minlength=20_000)
    tail = degree[degree >= 20].double()
    # Hill's estimate; the cut and lost duplicates thin out the tail a little
    assert 1 + 1 / (tail / 19.5).log().mean() == pytest.approx(2.4, abs=0.15)
    assert 500 < int(degree.max()) < 2200
    cut = torch.bincount(drawn(max_degree=60).edge_index[1])
    assert int(cut.max()) < 60 + 6 * 60**0.5


def test_who_links_and_who_is_labeled_how(data):
    sources, targets = data.edge_index
    within = data.community[sources] == data.community[targets]
    assert float(within.double().mean()) == pytest.approx(0.8, abs=0.04)
    same = data.y[sources] == data.y[targets]
    assert float(same.double().mean()) == pytest.approx(0.65, abs=0.04)
    share = 0.9 + 0.1 * float((torch.bincount(data.y) / 20_000).square().sum())
    assert float((data.y == data.community).double().mean()) == pytest.approx(share, abs=0.01)
    assert torch.bincount(data.y).argmax() == 0 and int(data.y.max()) == 39
    apart = drawn(homophily=0.0)
    assert not (apart.community[apart.edge_index[0]] == apart.community[apart.edge_index[1]]).any()


def test_features_are_noise_about_a_point_of_the_class(data):
    mu = torch.stack([data.x[data.y == k].mean(0) for k in range(40)])
    noise = data.x - mu[data.y]
    assert float(noise.std()) == pytest.approx(0.5, abs=0.01)
    assert float(mu[0].norm()) == pytest.approx(1, abs=0.05)
    prior = torch.bincount(data.y).double().log().float()
    guess = (prior - 2 * torch.cdist(data.x, mu).square()).argmax(1)
    assert 0.45 < float((guess == data.y).double().mean()) < 0.6


def test_the_seed_decides():
    sizes = {"num_nodes": 500, "num_links": 2000, "max_degree": 100}
    first, again, other = (drawn(seed, **sizes) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 1}, "num_nodes: got 1, expected at least 2"),
        ({"num_nodes": 10, "num_links": 12}, "num_links: got 12, expected 1 to 11"),
        ({"exponent": 2.0}, "exponent: got 2.0, expected above 2"),
        ({"max_degree": 10}, "max_degree: got 10, expected above the mean, 10"),
        ({"homophily": 1.5}, "homophily: got 1.5, expected between 0 and 1"),
        ({"noise": -1}, "noise: got -1, expected at least 0"),
    ],
)
def test_parameters_out_of_range_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        PowerLawGraph(**SMALL | change)
