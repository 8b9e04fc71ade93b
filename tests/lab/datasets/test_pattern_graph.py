import pytest
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphtheory.graph import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.embedded import digits
from graphtheory.lab.datasets.pattern_graph import CoreNeighborhoodGraph, MajorityAtDistance
from graphtheory.structure import shortest_path_distance


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


def test_paths_follow_the_direction_of_edges() -> None:
    data = MajorityAtDistance(1).sample(torch.tensor([[0], [1]]), 2, seed(0))
    assert data.y.tolist() == [-1, int(data.pattern[0])] and data.empty.tolist() == [True, False]


def test_features_are_noisy_patterns() -> None:
    edges = digits().edge_index
    exact = MajorityAtDistance(noise=0.0).sample(edges, 1797, seed(1))
    assert torch.equal(exact.x, torch.eye(6)[exact.pattern])
    noisy = MajorityAtDistance(noise=0.3).sample(edges, 1797, seed(1))
    assert torch.equal(noisy.pattern, exact.pattern) and torch.equal(noisy.y, exact.y)
    assert float((noisy.x - exact.x).std()) == pytest.approx(0.3, rel=0.05)
    assert float(exact.pattern.bincount().min()) > 1797 / 6 * 0.8


def test_a_nodes_own_pattern_tells_nothing() -> None:
    data = MajorityAtDistance(2).sample(digits().edge_index, 1797, seed(2))
    kept = data.y >= 0
    assert float((data.y == data.pattern)[kept].float().mean()) == pytest.approx(1 / 6, abs=0.05)


def test_seeds_repeat() -> None:
    one, again, other = (MajorityAtDistance().sample(PATH, 5, seed(s)) for s in (0, 0, 1))
    assert torch.equal(one.x, again.x) and not torch.equal(one.x, other.x)


def test_the_embedded_set_has_no_node_without_a_majority_in_a_mask() -> None:
    data = graphs.load("core-distance")
    masked = data.train_mask | data.val_mask | data.test_mask
    assert torch.equal(masked, data.y >= 0) and bool(data.tie.any())
    assert not torch.equal(data.y, graphs.load("core-distance", seed=1).y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z": 0}, "z: got 0, expected a whole number, at least 1"),
        ({"z": 254}, "z: got 254, expected 1..253 hops"),
        ({"z": 1.5}, "z: got 1.5"),
        ({"num_patterns": 1}, "num_patterns: got 1, expected a whole number, at least 2"),
        ({"noise": -0.1}, "noise: got -0.1, expected 0 or more"),
        ({"noise": float("nan")}, "noise: got nan"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MajorityAtDistance(**arguments)  # type: ignore[arg-type]
