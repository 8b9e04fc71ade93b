from pathlib import Path

import networkx as nx
import pytest
from torch_geometric.utils import to_networkx

from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load_graphs
from graphtheory.papers.core_neighborhood.expressiveness import expressiveness_pairs


def colors(graph) -> str:
    """What color refinement sees; alike for graphs that it cannot tell apart."""
    plain = to_networkx(graph, node_attrs=["x"], to_undirected=True)
    return nx.weisfeiler_lehman_graph_hash(plain, node_attr="x", iterations=20)


@pytest.mark.parametrize(
    ("name", "pairs"), [("brec", 260), ("sr25", 105), ("csl", 45), ("exp", 600)]
)
def test_pairs_differ_but_color_refinement_sees_no_difference(
    name: str, pairs: int, data_root: Path
) -> None:
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
