"""What weights, directions, loops and duplicates do to each encoding, beside dense float64 forms.

Each encoding either equals its definition on a graph, or refuses the graph by name.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphtheory import structure
from graphtheory.data import transforms
from graphtheory.graph import neighborhood_from
from graphtheory.lab.datasets import graph_sets
from graphtheory.lab.datasets.own_graphs import graph_set

pytestmark = pytest.mark.filterwarnings("ignore:.*edge_weight is left out:UserWarning")
NODES, FAR = 6, 255
RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]
BOTH = [*RING, *[(b, a) for a, b in RING]]
WEIGHTS = [5.0, 7.0, 9.0, 0.5, 2.0, 3.0] * 2


def graph(pairs: list[tuple[int, int]], weights: list[float] | None = None, nodes: int = 5) -> Data:
    made = Data(x=torch.ones(nodes, 1), edge_index=torch.tensor(pairs).t(), y=torch.tensor([0]))
    if weights is not None:
        made.edge_weight = torch.tensor(weights)
    return made


GRAPHS = {
    "unweighted": graph(BOTH),
    "weight one": graph(BOTH, [1.0] * 12),
    "weighted": graph(BOTH, WEIGHTS),
    "zero weight": graph(BOTH, [0.0, *WEIGHTS[1:6]] * 2),
    "negative": graph(BOTH, [-5.0, *WEIGHTS[1:6]] * 2),
    "two weights": graph(BOTH, [*WEIGHTS[:11], 4.0]),
    "isolated node": graph(BOTH, nodes=6),
    "isolated, weighted": graph(BOTH, WEIGHTS, nodes=6),
    "directed": graph([*RING, (3, 0)]),
    "directed, weighted": graph([*RING, (3, 0)], [*WEIGHTS[:6], 1.5]),
    "self-loops": graph([*BOTH, (2, 2), (4, 4)]),
    "self-loops, weighted": graph([*BOTH, (2, 2), (4, 4)], [*WEIGHTS, 6.0, 8.0]),
    "duplicates": graph([*BOTH, (0, 1), (1, 0)]),
    "duplicates, weighted": graph([*BOTH, (0, 1), (1, 0)], [*WEIGHTS, 4.0, 4.0]),
}


def counted(data: Data) -> np.ndarray:
    """How many edges go from each node, the row, to each other one."""
    found = np.zeros((data.num_nodes,) * 2)
    np.add.at(found, tuple(data.edge_index.numpy()), 1.0)
    return found


def weighted(data: Data) -> np.ndarray:
    found = np.zeros((data.num_nodes,) * 2)
    weight = data.get("edge_weight", torch.ones(data.num_edges)).double().numpy()
    np.add.at(found, tuple(data.edge_index.numpy()), weight)
    return found


def hops(data: Data, both: bool = False) -> np.ndarray:
    """From each node, the column, to each other one, by powers of the adjacency matrix."""
    links = counted(data) + (counted(data).T if both else 0)
    found = np.full(links.shape, float(FAR))
    reach = np.eye(len(links))
    for step in range(len(links)):
        found[(reach > 0) & (found == FAR)] = step
        reach = reach @ links
    return found.T


def centers(data: Data) -> np.ndarray:
    apart = hops(data, both=True)
    total = np.where(apart < FAR, apart, 0).sum(1)
    least = [min(total[apart[node] < FAR]) for node in range(len(apart))]
    return np.flatnonzero(total == least)


def resistance(data: Data) -> np.ndarray:
    links = ((counted(data) + counted(data).T) > 0).astype(float)
    np.fill_diagonal(links, 0)
    pseudo = np.linalg.pinv(np.diag(links.sum(1)) - links)
    ohms = np.diag(pseudo)[:, None] + np.diag(pseudo) - 2 * pseudo
    return np.where(hops(data, both=True) < FAR, ohms, np.inf)


def walks(data: Data, matrix: Callable[[Data], np.ndarray] = weighted) -> np.ndarray:
    """diag((D^-1 W)^k) for k of 1 to 4; a node without edges stays with 0."""
    w = matrix(data)
    total = w.sum(1, keepdims=True)
    step = np.divide(w, total, out=np.zeros_like(w), where=total != 0)
    return np.stack([np.diag(np.linalg.matrix_power(step, k)) for k in range(1, 5)], 1)


def buckets(ohms: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(ohms), FAR, np.round(np.where(np.isinf(ohms), 0, ohms) / 0.5))


def pattern_counts(data: Data) -> np.ndarray:
    apart, group = hops(data), np.arange(data.num_nodes) % 2
    return np.array(
        [[[((row == z) & (group == c)).sum() for c in (0, 1)] for z in range(4)] for row in apart]
    )


def from_graph(measure: Callable[..., object]) -> Callable[[Data], object]:
    return lambda data: measure(neighborhood_from(data))


def in_set(**wanted: int) -> Callable[[Data], Data]:
    """The graph as the only one of a set with these encodings."""

    def encode(data: Data) -> Data:
        one = [graph([(0, 1), (1, 0)]) for _ in range(3)]
        for at, other in enumerate(one):
            other.y = torch.tensor([at % 2])
        made = graph_set([data, *one[1:]], split=([0], [1], [2]))
        weight = data.get("edge_weight")
        if weight is not None:
            ones = iter([weight, torch.ones(2), torch.ones(2)])
            made = graph_sets.with_transforms(
                made, [lambda d: d.update({"edge_weight": next(ones)}) or d]
            )
        return graph_sets.precomputed(made, **wanted)[0]

    return encode


def after(transform: Callable[[Data], Data], name: str) -> Callable[[Data], object]:
    return lambda data: transform(data.clone())[name]


S, T = structure, transforms
UNWEIGHTED: dict[str, tuple[Callable[[Data], object], Callable[[Data], np.ndarray]]] = {
    "degree_encoding": (
        from_graph(lambda g: S.degree_encoding(g)[:, 0]), lambda d: np.log1p(counted(d).sum(0))
    ),
    "shortest_path_distance": (from_graph(S.shortest_path_distance), hops),
    "hop_ball": (
        from_graph(lambda g: S.hop_ball(g, 2)[0].to_dense()), lambda d: hops(d) <= 2
    ),
    "shortest_path_edges": (
        from_graph(lambda g: (S.shortest_path_edges(g, 5) >= 0).sum(2)),
        lambda d: np.where(hops(d) < FAR, hops(d), 0),
    ),
    "centroids": (from_graph(S.centroids), centers),
    "centroid_distance": (
        from_graph(S.centroid_distance), lambda d: hops(d, both=True)[:, centers(d)].min(1)
    ),
    "resistance_distance": (from_graph(S.resistance_distance), resistance),
    "count_by_distance": (
        from_graph(lambda g: S.count_by_distance(
            g, torch.arange(g.num_dst) % 2, 2, max_distance=3).pattern),
        pattern_counts,
    ),
    "AddDistances": (after(T.AddDistances(), "distance"), lambda d: hops(d).ravel()),
    "AddPaths": (
        after(lambda d: d.update({"n": (T.AddPaths(5)(d).paths >= 0).sum(1)}) or d, "n"),
        lambda d: np.where(hops(d) < FAR, hops(d), 0).ravel(),
    ),
    "AddResistance": (
        after(T.AddResistance(), "resistance"), lambda d: buckets(resistance(d)).ravel()
    ),
    "AddDegreeEncoding": (
        after(T.AddDegreeEncoding(), "degree_encoding"),
        lambda d: np.log1p(counted(d).sum(0))[:, None],
    ),
    "AddCentroidDistance": (
        after(T.AddCentroidDistance(), "centroid_distance"),
        lambda d: hops(d, both=True)[:, centers(d)].min(1)[:, None],
    ),
    "distance=": (lambda d: in_set(distance=1)(d).distance, lambda d: hops(d).ravel()),
    "resistance=": (
        lambda d: in_set(resistance=1)(d).resistance, lambda d: buckets(resistance(d)).ravel()
    ),
    "paths=": (
        lambda d: (in_set(paths=5)(d).paths >= 0).sum(1),
        lambda d: np.where(hops(d) < FAR, hops(d), 0).ravel(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("encoding", UNWEIGHTED)
def test_hops_degrees_and_ohms_are_those_of_the_edges_alone(encoding: str) -> None:
    ours, definition = UNWEIGHTED[encoding]
    for name, data in GRAPHS.items():
        found = torch.as_tensor(ours(data)).double().numpy()
        wanted = definition(data).astype(float)
        np.testing.assert_allclose(found, wanted, atol=1e-6, err_msg=name)


WALK_REFUSES = {
    "weighted": "5.0", "zero weight": "0.0", "negative": "-5.0", "two weights": "5.0",
    "isolated, weighted": "5.0", "directed, weighted": "5.0", "self-loops, weighted": "5.0",
    "duplicates": "twice", "duplicates, weighted": "5.0",
}  # fmt: skip
LAPLACIAN_REFUSES = {
    "negative": "negative or NaN", "two weights": "two weights", "directed": "one direction",
    "directed, weighted": "one direction",
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_return_probabilities_are_of_the_walk_or_refused(name: str) -> None:
    if name in WALK_REFUSES:
        with pytest.raises(ValueError, match=f"^walk: .*{WALK_REFUSES[name]}.*expected"):
            in_set(walk=4)(GRAPHS[name])
    else:
        found = in_set(walk=4)(GRAPHS[name]).random_walk_pe.double().numpy()
        np.testing.assert_allclose(found, walks(GRAPHS[name]), atol=1e-6)


@pytest.mark.parametrize("name", GRAPHS)
def test_eigenvectors_are_of_the_weighted_laplacian_or_refused(name: str) -> None:
    if name in LAPLACIAN_REFUSES:
        with pytest.raises(ValueError, match=f"^laplacian: .*{LAPLACIAN_REFUSES[name]}.*expected"):
            in_set(laplacian=3)(GRAPHS[name])
        return
    found = in_set(laplacian=3)(GRAPHS[name]).laplacian_eigenvector_pe.double().numpy()
    w = weighted(GRAPHS[name])
    np.fill_diagonal(w, 0)
    root = np.divide(1, np.sqrt(w.sum(1)), out=np.zeros(len(w)), where=w.sum(1) > 0)
    laplacian = np.eye(len(w)) - root[:, None] * w * root
    values = np.linalg.eigvalsh(laplacian)[1:4]
    np.testing.assert_allclose(laplacian @ found, found * values, atol=1e-5)
    np.testing.assert_allclose((found**2).sum(0), 1, atol=1e-5)


def test_the_tables_see_pygs_walks_and_a_measure_that_reads_weights(monkeypatch) -> None:
    def theirs(data: Data, steps: int) -> Data:
        return graph_sets.AddRandomWalkPE(steps)(data)

    monkeypatch.setattr(graph_sets, "_add_walk", theirs)
    wrong = 0
    for name in WALK_REFUSES:
        found = in_set(walk=4)(GRAPHS[name]).random_walk_pe.double().numpy()
        wrong += not np.allclose(found, walks(GRAPHS[name]), atol=1e-6)
    assert wrong == len(WALK_REFUSES)
    assert not np.allclose(walks(GRAPHS["weighted"]), walks(GRAPHS["weighted"], counted))
