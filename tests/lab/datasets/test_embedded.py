import networkx as nx
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Generator, Tensor
from torch_geometric import utils
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected, to_undirected

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.lab.datasets import embedded, graphs
from graphtheory.lab.datasets.embedded import (
    CoreNeighborhoodGraph,
    MajorityAtDistance,
    PowerLawGraph,
)
from graphtheory.lab.datasets.graphs import load_graphs
from graphtheory.structure import shortest_path_distance


def test_digits_are_linked_to_their_nearest() -> None:
    data = embedded.digits()
    images = torch.from_numpy(load_digits().data)
    assert torch.equal(data.x, (images / 16).float()) and float(data.x.max()) == 1.0
    assert is_undirected(data.edge_index) and not utils.contains_self_loops(data.edge_index)
    distance = torch.cdist(images, images).fill_diagonal_(torch.inf)
    linked = torch.zeros_like(distance, dtype=torch.bool)
    linked[tuple(data.edge_index)] = True
    assert int(linked.sum(1).min()) >= 8
    reach = distance.kthvalue(8, dim=1).values
    assert bool(linked[distance < reach[:, None]].all())
    assert not bool((linked & (distance > torch.maximum(reach[:, None], reach))).any())
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert float(same.float().mean()) > 0.9


def test_karate_is_zacharys() -> None:
    data = embedded.karate()
    assert data.y.bincount().tolist() == [17, 17]
    assert data.num_edges == 2 * 78 and data.is_undirected()
    assert torch.equal(utils.remove_self_loops(data.edge_index)[0], data.edge_index)
    assert (int(data.y[0]), int(data.y[33])) == (0, 1)  # the two who quarrelled
    assert torch.equal(data.x, torch.eye(34))


def test_infection_is_the_distance_to_the_infected() -> None:
    made = load_graphs("infection", seed=1)
    assert (made.level, made.num_outputs, len(made)) == ("node", 5, 100)
    graph = made[7]
    hops = shortest_path_distance(neighborhood_from(graph), cutoff=20)[:, graph.x[:, 1] == 1]
    assert torch.equal(hops.amin(1).clamp(max=4).long(), graph.y)
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(load_graphs("infection").y, made.y) and torch.equal(torch.rand(1), before)


def test_only_the_target_of_a_ring_has_a_class() -> None:
    made = load_graphs("ring-transfer")
    hops = shortest_path_distance(neighborhood_from(made[0]))
    for graph in (made[0], made[1999]):
        (target,) = (graph.y >= 0).nonzero().view(-1).tolist()
        assert int(graph.x[0].argmax()) == int(graph.y[target]) and int(hops[target, 0]) == 5
        assert int(graph.x[target].sum()) == 0 and int(graph.x[0].sum()) == 1
    assert len(made.y[made.y >= 0].unique()) == 5


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_root_asks_for_the_leaf_of_its_key(depth: int) -> None:
    made = load_graphs(f"neighbors_match_{depth}")
    leaves = 2**depth
    assert made.x_categories == (leaves + 1, leaves + 1) and made.num_outputs == leaves
    for graph in (made[3], made[100]):
        (leaf,) = (graph.x[1:, 0] == graph.x[0, 0]).nonzero().view(-1) + 1
        assert int(graph.x[leaf, 1]) == int(graph.y[0]) + 1 and bool((graph.y[1:] == -1).all())
        hops = shortest_path_distance(neighborhood_from(graph))
        assert int(hops[0, leaf]) == depth and (hops[0] == depth).sum() == leaves


def test_csl_has_ten_classes_of_copies() -> None:
    made = load_graphs("csl", split="folds-5", seed=2)
    assert made.y.bincount().tolist() == [15] * 10
    assert made.y[made.test_index].bincount().tolist() == [3] * 10
    first, copy, other = (utils.to_networkx(made[i], to_undirected=True) for i in (0, 14, 15))
    assert set(dict(first.degree).values()) == {4}
    assert nx.is_isomorphic(first, copy) and not nx.is_isomorphic(first, other)
    assert not torch.equal(made[0].edge_index, made[14].edge_index)


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


def test_labels_patterns_and_noise_of_the_core_neighborhood(generator: Generator) -> None:
    data = CoreNeighborhoodGraph().sample(generator)
    assert data.pattern.bincount().tolist() == [200, 200] + [75] * 8
    assert bool((data.y[data.pattern == 0] == 1).all()) and not data.y[data.pattern == 1].any()
    assert abs(float(data.y[400:].float().mean()) - 0.5) < 0.1  # five standard errors
    assert not data.flipped.any()
    data = CoreNeighborhoodGraph(c_0=0.1).sample(generator)
    torch.testing.assert_close(data.mu @ data.mu.t(), torch.eye(10))
    noise = data.x - data.mu[data.pattern]
    assert abs(float(noise.std()) - 0.1) < 0.004 and abs(float(noise.mean())) < 0.004
    clean, noisy = (
        CoreNeighborhoodGraph(eps_0=eps_0).sample(Generator().manual_seed(1)) for eps_0 in (0, 0.1)
    )
    assert int(noisy.flipped.sum()) == 100
    assert torch.equal(clean.edge_index, noisy.edge_index)
    assert torch.equal(noisy.y != clean.y, noisy.flipped)
    model = CoreNeighborhoodGraph(num_nodes=100, degree=10)
    first, again, other = (model.sample(Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)


def test_degrees_that_cannot_be_reached(generator: Generator) -> None:
    with pytest.raises(ValueError, match=r"degree: got 120, expected 0 to 105, for 100 nodes of"):
        CoreNeighborhoodGraph(gamma_d=0.2)
    assert CoreNeighborhoodGraph(gamma_d=0.2, degree=105).max_degree == 105
    regular = CoreNeighborhoodGraph(gamma_d=0.2, degree=99, variant="regular")
    assert regular.max_degree == 99
    assert regular.sample(Generator()).num_nodes == 1000
    model = CoreNeighborhoodGraph(num_nodes=35, gamma_d=0.4, eps_s=0, degree=3, variant="regular")
    inner = _adjacency(model.sample(generator))[:7, :7].sum(1)
    assert inner.sort().values.tolist() == [3] * 6 + [4]  # 7 x 3 is odd
    model = CoreNeighborhoodGraph(num_nodes=20, gamma_d=1.0, eps_s=0.5, degree=12)
    with pytest.raises(ValueError, match=r"degree: got 12.*lacks 12 links and has 9 others"):
        model.sample(Generator())


PATH = to_undirected(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))


def seed(number: int) -> Generator:
    return Generator().manual_seed(number)


@pytest.mark.parametrize("z", [1, 2, 3])
def test_labels_are_the_majority_in_the_table_of_distances(z: int) -> None:
    torch.manual_seed(z)
    edges = to_undirected(torch.randint(60, (2, 90)))
    data = MajorityAtDistance(z, num_patterns=3).sample(edges, 62, seed(z))  # two nodes apart
    table = shortest_path_distance(Neighborhood.from_edge_index(edges, 62))
    seen = set()
    for n in range(62):
        votes = data.pattern[table[n] == z].bincount(minlength=3)
        first, second = votes.topk(2).values.tolist()
        kind = "empty" if first == 0 else "tie" if first == second else "label"
        seen.add(kind)
        assert int(data.y[n]) == (int(votes.argmax()) if kind == "label" else -1)
        assert (bool(data.empty[n]), bool(data.tie[n])) == (kind == "empty", kind == "tie")
    assert seen == {"empty", "tie", "label"}


def test_features_are_noisy_patterns_that_tell_no_label() -> None:
    edges = embedded.digits().edge_index
    exact = MajorityAtDistance(noise=0.0).sample(edges, 1797, seed(1))
    assert torch.equal(exact.x, torch.eye(6)[exact.pattern])
    noisy = MajorityAtDistance(noise=0.3).sample(edges, 1797, seed(1))
    assert torch.equal(noisy.pattern, exact.pattern) and torch.equal(noisy.y, exact.y)
    assert float((noisy.x - exact.x).std()) == pytest.approx(0.3, rel=0.05)
    assert float(exact.pattern.bincount().min()) > 1797 / 6 * 0.8
    data = MajorityAtDistance(2).sample(embedded.digits().edge_index, 1797, seed(2))
    kept = data.y >= 0
    assert float((data.y == data.pattern)[kept].float().mean()) == pytest.approx(1 / 6, abs=0.05)
    data = MajorityAtDistance(1).sample(torch.tensor([[0], [1]]), 2, seed(0))
    assert data.y.tolist() == [-1, int(data.pattern[0])] and data.empty.tolist() == [True, False]
    one, again, other = (MajorityAtDistance().sample(PATH, 5, seed(s)) for s in (0, 0, 1))
    assert torch.equal(one.x, again.x) and not torch.equal(one.x, other.x)


def test_the_embedded_set_has_no_node_without_a_majority_in_a_mask() -> None:
    data = graphs.load("core-distance")
    masked = data.train_mask | data.val_mask | data.test_mask
    assert torch.equal(masked, data.y >= 0) and bool(data.tie.any())
    assert not torch.equal(data.y, graphs.load("core-distance", seed=1).y)


SMALL = {"num_nodes": 20_000, "num_links": 100_000, "max_degree": 2000}


def drawn(seed=0, **changes):
    return PowerLawGraph(**SMALL | changes).sample(Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def data():
    return drawn()


def test_links_are_distinct_and_degrees_follow_the_power_law(data):
    sources, targets = data.edge_index
    code = targets * 20_000 + sources
    assert data.edge_index.shape == (2, 200_000) and bool((code[1:] > code[:-1]).all())
    assert bool((sources != targets).all()) and is_undirected(data.edge_index, num_nodes=20_000)
    degree = torch.bincount(drawn(homophily=0.0, num_classes=2).edge_index[1], minlength=20_000)
    tail = degree[degree >= 20].double()
    # Hill's estimate; the cut and lost duplicates thin out the tail a little
    assert 1 + 1 / (tail / 19.5).log().mean() == pytest.approx(2.4, abs=0.15)
    assert 500 < int(degree.max()) < 2200
    cut = torch.bincount(drawn(max_degree=60).edge_index[1])
    assert int(cut.max()) < 60 + 6 * 60**0.5
    sizes = {"num_nodes": 500, "num_links": 2000, "max_degree": 100}
    first, again, other = (drawn(seed, **sizes) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)


def test_who_links_how_and_features_are_noise_about_a_point_of_the_class(data):
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
    mu = torch.stack([data.x[data.y == k].mean(0) for k in range(40)])
    noise = data.x - mu[data.y]
    assert float(noise.std()) == pytest.approx(0.5, abs=0.01)
    assert float(mu[0].norm()) == pytest.approx(1, abs=0.05)
    prior = torch.bincount(data.y).double().log().float()
    guess = (prior - 2 * torch.cdist(data.x, mu).square()).argmax(1)
    assert 0.45 < float((guess == data.y).double().mean()) < 0.6


@pytest.mark.parametrize(("kind", "arguments", "message"), [
    *((CoreNeighborhoodGraph, {name: value}, f"{name}: got {value!r}, expected")
      for name, value in (("gamma_d", 0.0), ("gamma_d", 1.1), ("eps_s", -0.1), ("eps_s", 0.6),
                          ("eps_0", 1.5), ("num_patterns", 2), ("dim", 9), ("c_0", -1.0),
                          ("degree", -1), ("variant", "other"))),
    (MajorityAtDistance, {"z": 0}, "z: got 0, expected a whole number, at least 1"),
    (MajorityAtDistance, {"z": 254}, "z: got 254, expected 1..253 hops"),
    (MajorityAtDistance, {"z": 1.5}, "z: got 1.5"),
    (MajorityAtDistance, {"num_patterns": 1}, "num_patterns: got 1, expected a whole number"),
    (MajorityAtDistance, {"noise": -0.1}, "noise: got -0.1, expected 0 or more"),
    (MajorityAtDistance, {"noise": float("nan")}, "noise: got nan"),
    (PowerLawGraph, {"num_nodes": 1}, "num_nodes: got 1, expected at least 2"),
    (PowerLawGraph, {"num_nodes": 10, "num_links": 12}, "num_links: got 12, expected 1 to 11"),
    (PowerLawGraph, {"exponent": 2.0}, "exponent: got 2.0, expected above 2"),
    (PowerLawGraph, SMALL | {"max_degree": 10}, "max_degree: got 10, expected above the mean"),
    (PowerLawGraph, {"homophily": 1.5}, "homophily: got 1.5, expected between 0 and 1"),
    (PowerLawGraph, {"noise": -1}, "noise: got -1, expected at least 0"),
])  # fmt: skip
def test_wrong_parameters_are_named(kind: type, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)
