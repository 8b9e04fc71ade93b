"""A page in one file, without scripts, fonts or pictures from elsewhere; one shows attention."""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment as Templates
from jinja2 import PackageLoader
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from graphtheory.disk import replace_file
from graphtheory.graph import Neighborhood
from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Environment, Table, pairs

_LOADER = PackageLoader("graphtheory.lab.report", "assets")
TEMPLATES = Templates(loader=_LOADER, autoescape=True, keep_trailing_newline=True)
CAPTIONS: dict[str, str] = json.loads(TEMPLATES.get_template("captions.json").render())


@dataclass
class Page:
    """A page that grows from top to bottom; every text is escaped.

    Args:
        title: Heading and title.
        lead: The one sentence below it that says what was found.

    Example:
        >>> page = Page("Karate", "Two clubs.")
        >>> page.section("Result").paragraph("a < b")
        >>> "<p>a &lt; b</p>" in page.html()
        True
    """

    title: str
    lead: str
    # What `assets/page.html` shows: kind, content and caption.
    _parts: list[tuple[str, Any, str]] = field(default_factory=list, init=False, repr=False)

    def section(self, title: str) -> "Page":
        """Begin a section with a heading; returns the page."""
        self._parts.append(("section", title, ""))
        return self

    def paragraph(self, text: str) -> None:
        """Add a paragraph of text."""
        self._parts.append(("paragraph", text, ""))

    def code(self, text: str) -> None:
        """Add a block of code to copy."""
        self._parts.append(("code", text, ""))

    def table(self, table: Table) -> None:
        """Add a table, with its title above and its note below; a click on a heading sorts."""
        self._parts.append(("table", table, ""))

    def folded(self, table: Table) -> None:
        """Add a long table behind its title, which a click opens."""
        self._parts.append(("folded", table, ""))

    def picture(self, figure: Any, caption: str) -> None:
        """Add a figure of `graphtheory.lab.plot`; the caption is also what a screen reader says."""
        image = base64.b64encode(plot.svg(figure).encode()).decode()
        self._parts.append(("picture", image, caption))

    def how_to_reproduce(
        self, command: str, here: Environment, setting: Iterable[tuple[str, object]] = ()
    ) -> None:
        """Add the last section: the command, its settings, the machine and the versions."""
        where = [("device", here.device), ("commit", here.commit or "not from a checkout")]
        self.section("How to reproduce").code(command)
        self.table(pairs("", [*setting, *where, *here.versions.items()]))

    def html(self) -> str:
        """Write the whole document as text."""
        return TEMPLATES.get_template("page.html").render(page=self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document into a file."""
        replace_file(Path(path), self.html().encode())


MOST_NODES = 20_000
MOST_WEIGHTS = 20_000_000  # over edges, layers and heads; a page of about 55 MB
_MOST_LINES = 50_000
_KEPT = {"indptr": "<u4", "indices": "<u4", "distance": "u1"}  # of a neighborhood
_ABOVE_ONE = 1e-3  # what rounding may add to a weight

_STEPS, _OTHERS, _GRAVITY = 300, 32, 0.05  # of the layout

Map = tuple[Neighborhood | Tensor, Tensor]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class AttentionExplorer:
    """A page that `attention_explorer` made; a notebook shows it in place.

    Attributes:
        document: The whole HTML document.
    """

    document: str

    def save(self, path: str | PathLike[str]) -> None:
        """Write the document into a file."""
        replace_file(Path(path), self.document.encode())

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 42rem; border: 0"'
        return f'<iframe {frame} srcdoc="{escape(self.document)}"></iframe>'


def attention_explorer(
    maps: Iterable[Map],
    graph: Neighborhood | Tensor | None = None,
    *,
    labels: Sequence[object] | Tensor | None = None,
    title: str = "Attention",
) -> AttentionExplorer:
    """Draw a graph in one HTML file where a node, once clicked, shows whom it attends to.

    By layer and head, with weights in percent, hops where they are known, and the other way around:
    who attends to it. The file needs no network and works by keyboard, in light and dark. A weight
    is kept in 16 bits, to 0.001 percentage points; at most 50,000 edges of the graph are drawn,
    evenly chosen, while those of a clicked node are drawn all.

    Args:
        maps: Of each layer who attends to whom and the weights, 0 to 1, [E, heads] or [E]: what
            `nn.attention_maps` returns. An edge list [2, E] in place of a neighborhood is PyG's
            (edge_index, weights) of `return_attention_weights=True`: row 1 attends to row 0.
        graph: The edges that are drawn, and that decide where nodes lie; without it those of the
            first layer.
        labels: One for each node, such as its class, shown by color and shape.
        title: Above the drawing.

    Raises:
        ValueError: No layer; weights that do not fit the edges or are not within 0 to 1; layers of
            different numbers of nodes, or between two kinds of nodes; more than 20,000 nodes or 20
            million weights; `labels` or `graph` that do not fit the nodes.

    Example:
        >>> import torch
        >>> from graphtheory.nn import GATConv
        >>> conv = GATConv(3, 4, heads=2)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> _, found = conv(torch.randn(3, 3), edge_index, return_attention_weights=True)
        >>> page = attention_explorer([found])
        >>> page.save("explorer.html")  # doctest: +SKIP
    """
    layers = [_layer(number, *one) for number, one in enumerate(maps, 1)]
    if not layers:
        raise ValueError("maps: no layer, expected at least one pair of a neighborhood and weights")
    num_nodes = _check_sizes(layers)
    edges = _edges(layers[0][0] if graph is None else graph, num_nodes)
    group, groups = _groups(labels, num_nodes)
    kept = edges[:, :: max(1, -(-edges.shape[1] // _MOST_LINES))]
    graphs = list({id(nb): nb for nb, _ in layers}.values())
    at = {id(nb): number for number, nb in enumerate(graphs)}
    data = {
        "nodes": num_nodes,
        "places": _packed(force_layout(edges, num_nodes), "<f4"),
        "group": _packed(group, "<u2"),
        "groups": groups,
        "lines": _packed(kept.T, "<u4"),
        "graphs": [
            {name: _packed(getattr(nb, name), kind) for name, kind in _KEPT.items()}
            for nb in graphs
        ],
        "layers": [
            {
                "graph": at[id(nb)],
                "heads": weights.size(1),
                "weights": _packed((65535 * weights.T.clamp(0, 1)).round(), "<u2"),
            }
            for nb, weights in layers
        ],
    }
    counted = f"{num_nodes:,} nodes, {len(layers)} layers; drawn: {kept.shape[1]:,} of "
    note = f"{counted}{edges.shape[1]:,} edges."
    template = TEMPLATES.get_template("explorer.html")
    return AttentionExplorer(template.render(title=title, data=data, note=note))


def _layer(number: int, graph: Neighborhood | Tensor, weights: Tensor) -> tuple[Neighborhood, Any]:
    """A layer with its weights [E, heads] in the order of the neighborhood's edges."""
    what, weights = f"maps: weights of layer {number}", weights.detach().float().cpu()
    edges = graph.num_edges if isinstance(graph, Neighborhood) else graph.size(1)
    if weights.dim() not in (1, 2) or len(weights) != edges:
        raise ValueError(
            f"{what} have shape {list(weights.shape)}, expected [{edges}, heads] for {edges} edges"
        )
    weights = weights.view(edges, -1)
    if edges and not bool((weights.min() >= 0) & (weights.max() <= 1 + _ABOVE_ONE)):
        low, high = weights.min().item(), weights.max().item()
        raise ValueError(f"{what} lie within {low:g} to {high:g}, expected 0 to 1")
    if isinstance(graph, Neighborhood):
        return graph, weights
    nb = Neighborhood.from_edge_index(graph)
    return nb, weights if nb.perm is None else weights[nb.perm.cpu()]


def _check_sizes(layers: Sequence[tuple[Neighborhood, Tensor]]) -> int:
    sizes = {(nb.num_dst, nb.num_src) for nb, _ in layers}
    num_nodes = max(max(pair) for pair in sizes)
    if len(sizes) > 1 or sizes != {(num_nodes, num_nodes)}:
        listed = ", ".join(f"{dst} to {src}" for dst, src in sorted(sizes))
        raise ValueError(
            f"maps: layers attend from {listed} nodes, expected one set of nodes in every layer"
        )
    if num_nodes > MOST_NODES:
        raise ValueError(
            f"maps: {num_nodes:,} nodes, expected {MOST_NODES:,} or fewer; take a part of the graph"
            ", such as torch_geometric.utils.k_hop_subgraph cuts out"
        )
    if (total := sum(weights.numel() for _, weights in layers)) > MOST_WEIGHTS:
        raise ValueError(f"maps: {total:,} weights in all, expected {MOST_WEIGHTS:,} or fewer")
    return num_nodes


def _edges(graph: Neighborhood | Tensor, num_nodes: int) -> NDArray[np.int64]:
    """What is drawn of a graph, [2, E]: each pair once, without loops."""
    edges = graph.edge_index() if isinstance(graph, Neighborhood) else graph
    if edges.dim() != 2 or edges.size(0) != 2:
        raise ValueError(f"graph: shape {list(edges.shape)}, expected an edge list [2, E]")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
        got = f"nodes {int(edges.min())} to {int(edges.max())}"
        raise ValueError(f"graph: {got}, expected 0 to {num_nodes - 1} as the layers have them")
    pairs = edges.long().sort(0).values
    return pairs[:, pairs[0] != pairs[1]].unique(dim=1).cpu().numpy()


def _groups(
    labels: Sequence[object] | Tensor | None, num_nodes: int
) -> tuple[NDArray[np.int64] | None, list[str]]:
    """Number of each node's label among those that there are, and these."""
    if labels is None:
        return None, [""]
    given = labels.tolist() if isinstance(labels, Tensor) else list(labels)
    if len(given) != num_nodes or any(isinstance(one, list) for one in given):
        raise ValueError(f"labels: {len(given)}, expected one for each of {num_nodes} nodes")
    try:
        found: list[Any] = sorted(set(given))
    except TypeError:  # of several kinds
        found = sorted(set(given), key=str)
    number = {label: i for i, label in enumerate(found)}
    return np.array([number[label] for label in given]), list(map(str, found))


def _packed(values: Tensor | NDArray[Any] | None, kind: str) -> str | None:
    if values is None:
        return None
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    return base64.b64encode(np.ascontiguousarray(array.astype(kind)).tobytes()).decode()


def force_layout(edges: NDArray[np.integer], num_nodes: int, *, seed: int = 0) -> Array:
    r"""Positions at which edges are short and nodes far from each other, the same for one seed.

    .. math:: F_i = \sum_{j \ne i} \frac{m_i m_j}{d_{ij}} u_{ji} + \sum_{(i,j)} d_{ij} u_{ij}
        - g\, m_i\, x_i, \qquad m_i = \deg_i + 1

    with :math:`u_{ij}` the unit vector from i to j: ForceAtlas2 (Jacomy et al. 2014), section 3.
    A step draws the 32 nodes whose repulsion stands for that of all, so that it takes O(N + E).
    """
    draw = np.random.default_rng(seed)
    place = draw.normal(size=(num_nodes, 2)) * np.sqrt(num_nodes)
    ones = np.ones(edges.shape[1])
    links = sparse.csr_matrix((ones, (edges[0], edges[1])), (num_nodes, num_nodes))
    links = ((links + links.T) > 0).astype(float)
    links.setdiag(0)
    links.eliminate_zeros()
    degree = np.asarray(links.sum(1)).ravel()
    mass = degree + 1
    for step in range(_STEPS):
        others = draw.permutation(num_nodes)[:_OTHERS]
        force = _repulsion(place, mass, others) * mass[:, None]
        force += links @ place - degree[:, None] * place - _GRAVITY * mass[:, None] * place
        move = force / mass[:, None]  # a hub is as quick as a leaf
        length = np.linalg.norm(move, axis=1, keepdims=True)
        reach = np.ptp(place, axis=0).max() * 0.1 * (1 - step / _STEPS) + 1e-9
        place += move * np.minimum(1, reach / np.maximum(length, 1e-9)) * 0.5
    place = place - (place.max(0) + place.min(0)) / 2
    return place / max(float(np.abs(place).max()), 1e-9)


def _repulsion(place: Array, mass: Array, others: NDArray[np.int64]) -> Array:
    """Sum of mass over distance, along the direction from the others, scaled up to all nodes."""
    away = place[:, None] - place[others]
    square = np.maximum((away**2).sum(2), 1e-9)
    return np.einsum("nsd,ns->nd", away, mass[others] / square) * (len(place) / len(others))
