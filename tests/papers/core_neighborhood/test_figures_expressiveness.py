from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Generator
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx

from graphtheory.papers.core_neighborhood import figures_expressiveness as figures
from graphtheory.papers.core_neighborhood.figures_expressiveness import (
    FIGURES,
    LOGITS,
    NETWORKS,
    PROFILES,
    Pairs,
    RandomNetwork,
    compare,
    gap,
    prepared,
    profile,
    relabeled,
)

FIGURE = FIGURES[0]
VALUES, BOTH = list(NETWORKS)[2:]


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
    rows = Pairs(seeds=1).measure(compare)
    figures._pairs.cache_clear()
    assert all(row["control"] < 1e-12 for row in rows)
    return {row["network"]: row["told"] for row in rows}


def test_what_each_network_tells_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, (STAR, PATH), (HEXAGON, TRIANGLES), (SHRIKHANDE, ROOK))
    assert told == {PROFILES: [0, 1], "GIN (1-WL)": [0], LOGITS: [], VALUES: [0, 1], BOTH: [0, 1]}


def test_equal_logits_distinct_values_and_two_kinds_of_nodes() -> None:
    a, b = prepared(HEXAGON), prepared(TRIANGLES)
    for name in (LOGITS, VALUES):
        model = RandomNetwork(name, 1, Generator().manual_seed(3))
        assert all(bool(p.any()) for p in model.parameters()), "a table is still zero"
        size = gap(model(a), model(b))
        assert size < 1e-14 if name == LOGITS else size > 1e-3
    kinds = torch.tensor([[0], [0], [0], [1], [1], [1]])
    apart = Data(x=kinds, edge_index=HEXAGON.edge_index)
    mixed = Data(x=kinds[[0, 3, 1, 4, 2, 5]], edge_index=HEXAGON.edge_index)
    model = RandomNetwork(LOGITS, 2, Generator().manual_seed(0))
    assert gap(model(prepared(apart)), model(prepared(mixed))) > 1e-4


def test_profiles_and_features_follow_relabeled_nodes() -> None:
    copy = relabeled(STAR, Generator().manual_seed(5))
    assert not torch.equal(copy.edge_index, STAR.edge_index)
    assert torch.equal(profile(prepared(copy)), profile(prepared(STAR)))
    assert profile(prepared(STAR)).sum(1).tolist() == [5] * 5
    star = Data(x=torch.arange(5.0)[:, None], edge_index=STAR.edge_index)
    copy = relabeled(star, Generator().manual_seed(1))
    degree = torch.bincount(copy.edge_index[1], minlength=5)
    assert float(copy.x[degree.argmax()]) == 0  # the middle keeps its feature


def row(network: str, seed: int, told: list[int], control: float = 1e-16) -> dict[str, Any]:
    about = {"network": network, "seed": seed, "pairs": 4, "told": told, "control": control}
    return about | {"largest_alike": 1e-16, "least_told": 0.1 if told else None}


def test_a_pair_counts_if_one_seed_tells_it_apart() -> None:
    rows = [row(VALUES, 0, [0, 1]), row(VALUES, 1, [1, 2]), row(LOGITS, 0, []), row(LOGITS, 1, [])]
    made = FIGURE.report(replace(Pairs(), seeds=2), rows)
    assert [line[:3] for line in made.table.rows] == [
        [VALUES, "3 of 4", "2 to 2"],
        [LOGITS, "0 of 4", "0 to 0"],
    ]
    assert "within the tolerance" in made.verdict and "apart: holds" in made.verdict
    worse = FIGURE.report(replace(Pairs(), seeds=2), [row(LOGITS, 0, [1], control=1e-3)])
    assert f"not within, of {LOGITS}," in worse.verdict and "not found: 1 pairs" in worse.verdict


def test_quick_on_the_classes_of_csl_and_missing_files_are_named(tmp_path: Path) -> None:
    grid = replace(FIGURE.settings("csl", quick=True), networks=(PROFILES, VALUES), every=5)
    profiles, values = grid.measure(compare)
    assert profiles["told"] == values["told"] and len(values["told"]) >= 8
    with pytest.raises(FileNotFoundError, match="brec"):
        compare(Pairs("brec", tmp_path), VALUES, 0)
