import pytest
import torch
from torch import Generator
from torch_geometric.utils import to_undirected

from graphtheory.graph import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.embedded import digits
from graphtheory.lab.datasets.pattern_graph import MajorityAtDistance
from graphtheory.structure import shortest_path_distance

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
