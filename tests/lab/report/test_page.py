"""The page of attention: what is kept is what was given, and bad input is named."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch

from graphtheory import Neighborhood, bipartite, cliques
from graphtheory.lab.report import attention_explorer
from graphtheory.lab.report.page import MOST_NODES, TEMPLATES, _repulsion, force_layout
from graphtheory.nn import GATConv, attention_maps
from tests.lab.report.conftest import printed_by_node

EDGES = torch.tensor([[0, 2, 1, 3, 3, 0], [1, 1, 0, 0, 3, 2]])
GRAPH = Neighborhood.from_edge_index(EDGES, 4)
WEIGHTS = torch.tensor([0.25, 0.75, 1, 0.5, 1, 0.125])[:, None].repeat(1, 2)
WEIGHTS[:, 1] = 0.5


def data_of(document: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', document, re.S)
    assert found is not None
    return json.loads(found[1])


def computed(document: str, code: str) -> Any:
    """What the page's own functions make of its data."""
    reading = TEMPLATES.get_template("explorer.js").render().partition("// Text ---")[0]
    given = json.dumps(json.dumps(data_of(document)))
    made = f"globalThis.document = {{ getElementById: () => ({{ textContent: {given} }}) }};"
    return printed_by_node(f"{made}\n{reading}\nconsole.log(JSON.stringify({code}))")


def test_the_page_finds_whom_a_node_attends_to() -> None:
    page = attention_explorer([(EDGES, WEIGHTS)]).document
    found = computed(page, '[0, 1, 2, 3].map((n) => attention(n, layers[0], 0, "out"))')
    near = [[(row["node"], round(row["weight"], 4)) for row in rows] for rows in found]
    assert near == [[(1, 1.0), (3, 0.5)], [(2, 0.75), (0, 0.25)], [(0, 0.125)], [(3, 1.0)]]
    assert found[0][0]["hops"] is None
    back = computed(page, '[0, 1, 2, 3].map((n) => attention(n, layers[0], 1, "in"))')
    assert [[row["node"] for row in rows] for rows in back] == [[1, 2], [0], [1], [0, 3]]
    mean = computed(page, 'attention(1, layers[0], -1, "out")')
    assert [row["weight"] for row in mean] == pytest.approx([0.625, 0.375], abs=1e-5)


def test_the_page_reads_what_a_model_attends_to() -> None:
    torch.manual_seed(0)
    conv = GATConv(3, 4, heads=3)
    maps = attention_maps(conv, torch.randn(4, 3), EDGES)
    (nb, weights) = maps[0]
    every = '[0, 1, 2, 3].map((n) => [0, 1, 2].map((h) => attention(n, layers[0], h, "out")))'
    for node, found in enumerate(computed(attention_explorer(maps).document, every)):
        row = slice(int(nb.indptr[node]), int(nb.indptr[node + 1]))
        for head in range(3):
            shown = sorted((r["node"], r["weight"]) for r in found[head])
            attended = zip(nb.indices[row].tolist(), weights[row, head].tolist(), strict=True)
            assert np.allclose(shown, sorted(attended), atol=1e-5)


def test_layers_share_a_graph_and_may_differ_in_heads_and_edges() -> None:
    with_hops = GRAPH.replace(distance=torch.arange(6, dtype=torch.uint8))
    maps = [(GRAPH, WEIGHTS), (GRAPH, WEIGHTS[:, 0]), (with_hops, WEIGHTS)]
    page = attention_explorer(maps, GRAPH).document
    data = data_of(page)
    assert len(data["graphs"]) == 2 and [layer["graph"] for layer in data["layers"]] == [0, 0, 1]
    assert [layer["heads"] for layer in data["layers"]] == [2, 1, 2]
    first = int(GRAPH.indptr[2])
    assert computed(page, 'attention(2, layers[2], 0, "out")')[0]["hops"] == first


def test_labels_are_groups() -> None:
    words = ("b", "a", "b", "</script>")
    page = attention_explorer([(GRAPH, WEIGHTS)], labels=words, title="a <b>").document
    assert data_of(page)["groups"] == ["</script>", "a", "b"]
    assert computed(page, "Array.from(group)") == [2, 1, 2, 0]
    assert "a &lt;b&gt;" in page and page.count("</script>") == 2


def test_a_page_shows_the_given_graph_and_needs_nothing_from_elsewhere() -> None:
    edges = torch.tensor([[0, 1, 2, 2], [1, 0, 2, 3]])
    page = attention_explorer([(GRAPH, WEIGHTS)], edges).document
    assert computed(page, "Array.from(lines)") == [0, 1, 2, 3]
    assert "drawn: 2 of 2 edges" in page
    page = attention_explorer([(GRAPH, WEIGHTS)])
    assert not re.search(r"https?://|src=|@import", page.document)
    assert page._repr_html_().count("<iframe") == 1 and "srcdoc" in page._repr_html_()


def test_thousands_of_nodes_make_a_file_of_some_megabytes(generator: torch.Generator) -> None:
    edges = torch.randint(5000, (2, 15000), generator=generator)
    maps = [(edges, torch.rand(15000, 4, generator=generator)) for _ in range(4)]
    size = len(attention_explorer(maps).document)
    assert size < 15000 * 4 * 4 * 2 * 4 / 3 + 1.5e6  # 16 bits a weight, in base64


LAYER = (GRAPH, WEIGHTS)


@pytest.mark.parametrize(("maps", "options", "message"), [
    ([], {}, "maps: no layer, expected at least one"),
    ([LAYER, (GRAPH, WEIGHTS[:5])], {},
     r"layer 2 have shape \[5, 2\], expected \[6, heads\] for 6 ed"),
    ([(GRAPH, -WEIGHTS)], {}, "maps: weights of layer 1 lie within -1 to -0.125, expected 0 to 1"),
    ([(GRAPH, WEIGHTS * torch.nan)], {}, "nan to nan, expected 0 to 1"),
    ([(bipartite([2], [3]), torch.ones(6))], {},
     "maps: layers attend from .* nodes, expected one set"),
    ([LAYER, (cliques([3]), torch.ones(9))], {}, "maps: layers attend from 3 to 3, 4 to 4 nodes"),
    ([(torch.tensor([[0], [MOST_NODES]]), torch.ones(1))], {},
     "maps: 20,001 nodes, expected 20,000 or"),
    ([(cliques([1500]), torch.zeros(1500**2, 9))], {},
     "maps: 20,250,000 weights in all, expected 20,"),
    ([LAYER], {"graph": torch.tensor([[0], [4]])}, "graph: nodes 0 to 4, expected 0 to 3"),
    ([LAYER], {"graph": torch.zeros(3)}, r"graph: shape \[3\]"),
    ([LAYER], {"labels": [1]}, "labels: 1, expected one for"),
])  # fmt: skip
def test_bad_input_is_named(maps: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention_explorer(maps, **options)


# Places of nodes: short edges, nothing on one spot, the same for one seed


def ring(nodes: int) -> np.ndarray:
    return np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])


def test_places_lie_within_one_and_depend_on_no_direction() -> None:
    first, again, other = (force_layout(ring(40), 40, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (40, 2) and np.abs(first).max() == pytest.approx(1)
    assert np.array_equal(first, again) and not np.allclose(first, other)
    edges = ring(12)
    other = np.concatenate([edges, edges[::-1], edges[:, :3], np.full((2, 1), 5)], 1)
    assert np.allclose(force_layout(edges, 12), force_layout(other, 12))
    grid = np.arange(100).reshape(10, 10)
    edges = np.concatenate(
        [np.stack([grid[:-1].ravel(), grid[1:].ravel()]),
         np.stack([grid[:, :-1].ravel(), grid[:, 1:].ravel()])], 1,
    )  # fmt: skip
    place = force_layout(edges, 100)
    apart = np.linalg.norm(place[:, None] - place, axis=2)
    others = apart[np.triu_indices(100, 1)]
    assert apart[edges[0], edges[1]].mean() < 0.4 * others.mean()
    assert others.min() > 0.005
    for nodes in (1, 2):
        assert np.isfinite(force_layout(np.zeros((2, 0), dtype=int), nodes)).all()


def test_repulsion_is_the_sum_over_the_other_nodes() -> None:
    draw = np.random.default_rng(0)
    place, mass = draw.uniform(-50, 50, (60, 2)), draw.uniform(1, 5, 60)
    away = place[:, None] - place
    square = (away**2).sum(2)
    np.fill_diagonal(square, np.inf)
    exact = (mass[None, :, None] * away / square[..., None]).sum(1)
    assert np.allclose(_repulsion(place, mass, np.arange(60)), exact)
    some = [_repulsion(place, mass, draw.permutation(60)[:20]) for _ in range(20_000)]
    assert np.allclose(np.mean(some, 0), exact, atol=0.15)
