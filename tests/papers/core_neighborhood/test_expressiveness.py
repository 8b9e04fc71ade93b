from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Generator
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph, from_networkx, to_networkx

from graphtheory import Neighborhood
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load_graphs
from graphtheory.papers import figure as index
from graphtheory.papers.core_neighborhood import figures_expressiveness as figures
from graphtheory.papers.core_neighborhood.expressiveness import expressiveness_pairs
from graphtheory.papers.core_neighborhood.figures_expressiveness import LOGITS, Pairs, prepared
from graphtheory.structure import shortest_path_distance


def colors(graph) -> str:
    """What color refinement sees; alike for graphs that it cannot tell apart."""
    plain = to_networkx(graph, node_attrs=["x"], to_undirected=True)
    return nx.weisfeiler_lehman_graph_hash(plain, node_attr="x", iterations=20)


@pytest.mark.parametrize(
    ("name", "pairs"), [("brec", 260), ("sr25", 105), ("csl", 45), ("exp", 600)]
)
def test_pairs_differ_but_color_refinement_sees_no_difference(name, pairs, data_root) -> None:
    found = expressiveness_pairs(name.upper(), data_root)
    assert len(found) == pairs
    some = found[:: len(found) // 20]
    assert all(colors(first) == colors(second) for first, second in some)
    first, second = (to_networkx(graph, to_undirected=True) for graph in found[1])
    assert not nx.is_isomorphic(first, second)


def test_half_of_cexp_is_told_apart_by_colors(data_root: Path) -> None:
    pairs = expressiveness_pairs("cexp", data_root)
    told = sum(colors(first) != colors(second) for first, second in pairs[::7])
    assert len(pairs) == 600 and 30 <= told <= 56
    made = load_graphs("cexp", data_root)
    assert made.y.tolist() == [int(g.y) for pair in pairs for g in pair]
    assert made.x_categories == (2,) and made.y.bincount().tolist() == [600, 600]


def test_missing_and_damaged_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="brec: 1 of 1 raw files are missing"):
        expressiveness_pairs("brec", tmp_path)
    with pytest.raises(ValueError, match="name: got 'cora', expected one of brec, sr25"):
        expressiveness_pairs("cora", tmp_path)
    with pytest.raises(ValueError, match="name: sr25 is pairs of graphs; expressiveness_pairs"):
        load_graphs("sr25", tmp_path)
    for folder, file, text in (
        ("BREC", "brec_v3_s4.g6", "A_\n" * 100),
        ("expressiveness", "sr251256.g6", "X}rM\n"),
        ("expressiveness", "EXP_GRAPHSAT.txt", "1\n3 1\n0 1 1\n0 1 0\n"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(text)
    for name in ("brec", "sr25", "exp"):
        with pytest.raises(DamagedFileError, match=f"{name}: .*truncated or altered"):
            expressiveness_pairs(name, tmp_path)
    with pytest.raises(DamagedFileError, match="exp: the raw files"):
        load_graphs("exp", tmp_path)


FIGURE = figures.FIGURES[0]
VALUES, BOTH = list(figures.NETWORKS)[2:]


def graph(made: nx.Graph) -> Data:
    return Data(x=torch.ones(len(made), 1), edge_index=from_networkx(made).edge_index)


HEXAGON = graph(nx.cycle_graph(6))
TRIANGLES = graph(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))
STAR, PATH = graph(nx.star_graph(4)), graph(nx.path_graph(5))
# Every node of these regular graphs sees as many nodes at each distance.
SHRIKHANDE = graph(
    nx.Graph(
        ((i, j), ((i + a) % 4, (j + b) % 4))
        for i in range(4) for j in range(4) for a, b in ((0, 1), (1, 0), (1, 1))
    )
)  # fmt: skip
ROOK = graph(nx.line_graph(nx.complete_bipartite_graph(4, 4)))


def found(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[Data, Data]) -> dict[str, list[int]]:
    monkeypatch.setattr(figures, "expressiveness_pairs", lambda name, root: list(pairs))
    figures._pairs.cache_clear()
    rows = Pairs(seeds=1).measure(figures.compare)
    figures._pairs.cache_clear()
    assert all(row["control"] < 1e-12 for row in rows)
    return {row["network"]: row["told"] for row in rows}


def test_what_each_network_tells_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, (STAR, PATH), (HEXAGON, TRIANGLES), (SHRIKHANDE, ROOK))
    two = {name: [0, 1] for name in (figures.PROFILES, VALUES, BOTH)}
    assert told == two | {"GIN (1-WL)": [0], LOGITS: []}


def test_equal_logits_distinct_values_and_two_kinds_of_nodes() -> None:
    a, b = prepared(HEXAGON), prepared(TRIANGLES)
    for name in (LOGITS, VALUES):
        model = figures.RandomNetwork(name, 1, Generator().manual_seed(3))
        assert all(bool(p.any()) for p in model.parameters()), "a table is still zero"
        size = figures.gap(model(a), model(b))
        assert size < 1e-14 if name == LOGITS else size > 1e-3
    kinds = torch.tensor([[0], [0], [0], [1], [1], [1]])
    apart = Data(x=kinds, edge_index=HEXAGON.edge_index)
    mixed = Data(x=kinds[[0, 3, 1, 4, 2, 5]], edge_index=HEXAGON.edge_index)
    model = figures.RandomNetwork(LOGITS, 2, Generator().manual_seed(0))
    assert figures.gap(model(prepared(apart)), model(prepared(mixed))) > 1e-4


def test_profiles_and_features_follow_relabeled_nodes() -> None:
    copy = figures.relabeled(STAR, Generator().manual_seed(5))
    assert not torch.equal(copy.edge_index, STAR.edge_index)
    assert torch.equal(figures.profile(prepared(copy)), figures.profile(prepared(STAR)))
    assert figures.profile(prepared(STAR)).sum(1).tolist() == [5] * 5
    star = Data(x=torch.arange(5.0)[:, None], edge_index=STAR.edge_index)
    copy = figures.relabeled(star, Generator().manual_seed(1))
    degree = torch.bincount(copy.edge_index[1], minlength=5)
    assert float(copy.x[degree.argmax()]) == 0  # the middle keeps its feature


def row(network: str, seed: int, told: list[int], control: float = 1e-16) -> dict[str, Any]:
    about = {"network": network, "seed": seed, "pairs": 4, "told": told, "control": control}
    return about | {"largest_alike": 1e-16, "least_told": 0.1 if told else None}


def test_a_pair_counts_if_one_seed_tells_it_apart() -> None:
    rows = [row(VALUES, 0, [0, 1]), row(VALUES, 1, [1, 2]), row(LOGITS, 0, []), row(LOGITS, 1, [])]
    made = FIGURE.report(replace(Pairs(), seeds=2), rows)
    lines = [line[:3] for line in made.table.rows]
    assert lines == [[VALUES, "3 of 4", "2 to 2"], [LOGITS, "0 of 4", "0 to 0"]]
    assert "within the tolerance" in made.verdict and "apart: holds" in made.verdict
    worse = FIGURE.report(replace(Pairs(), seeds=2), [row(LOGITS, 0, [1], control=1e-3)])
    assert f"not within, of {LOGITS}," in worse.verdict and "not found: 1 pairs" in worse.verdict


def test_quick_on_the_classes_of_csl_and_missing_files_are_named(tmp_path: Path) -> None:
    grid = replace(FIGURE.settings("csl", quick=True), networks=(figures.PROFILES, VALUES), every=5)
    profiles, values = grid.measure(figures.compare)
    assert profiles["told"] == values["told"] and len(values["told"]) >= 8
    with pytest.raises(FileNotFoundError, match="brec"):
        figures.compare(Pairs("brec", tmp_path), VALUES, 0)


GRAPH = (600, 2.5e-3, 6)
SMALL = figures.Infection(graphs=(GRAPH,), layers=4, steps=60, seeds=1)


def test_graphs_are_those_of_pyg_in_law() -> None:
    """The number of edges has PyG's mean and spread, and both directions are there."""
    counts = []
    for seed in range(60):
        edges = figures.Sparse(60, 0.05, seed)().edge_index
        assert torch.equal(edges.flip(0).unique(dim=1), edges.unique(dim=1))
        torch.manual_seed(seed)
        counts.append((edges.size(1) / 2, erdos_renyi_graph(60, 0.05).size(1) / 2))
    ours, theirs = torch.tensor(counts).T
    assert abs(ours.mean() - theirs.mean()) < 4 * (theirs.std() ** 2 / 30) ** 0.5
    assert 0.6 < ours.std() / theirs.std() < 1.6


def test_balls_are_rows_of_distances() -> None:
    graph = Neighborhood.from_edge_index(figures.Sparse(40, 0.05, 1)().edge_index, 40)
    some = torch.tensor([3, 7, 20])
    found = figures.balls(graph, some, 4)
    hops = shortest_path_distance(graph)
    assert found.degree().nonzero().flatten().tolist() == some.tolist()
    assert torch.equal(found.distance.long(), hops[found.indices, found.targets()].long())
    assert found.num_edges == int((hops[:, some] <= 4).sum())


@pytest.mark.parametrize("network", SMALL.networks)
def test_every_network_is_trained_alike_again(network: str) -> None:
    short = replace(SMALL, steps=5)
    (found,), (again,) = (figures.correlation(short, network, GRAPH, 0) for _ in range(2))
    assert (found["network"], found["nodes"], found["seed"]) == (network, 600, 0)
    assert found == again


def test_distances_are_read_and_the_claim_can_fail() -> None:
    figure = index.figure("infection")
    grid = figure.settings(quick=True)
    measured = grid.measure(figure.run)
    report = figure.report(grid, measured)
    score = {one["network"]: one["mcc"] for one in measured}
    assert score[figures.OURS] > 0.3 and len(score) == 2
    assert "no verdict" in report.verdict and len(report.rows) == 2
    three = replace(grid, seeds=3)
    for mcc, holds in ((0.96, "holds"), (0.94, "not found")):
        row = {"network": figures.OURS, "nodes": 600, "mcc": mcc}
        rows = [row | {"seed": seed} for seed in range(3)]
        assert figures.reads_distances(three, rows).text.endswith(f"expected: {holds}.")
