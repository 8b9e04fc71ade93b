"""The picture of README.md: attention over a graph and over an image, by the same two lines.

    python docs/pictures/attention.py            # writes attention.png beside this file

No weights are learned: queries and keys are features, so that a node attends to nodes that are like it. The photograph
is Grace Hopper's official portrait (US Navy, public domain), which matplotlib ships among its samples.
"""  # noqa: E501

from __future__ import annotations

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cbook import get_sample_data
from matplotlib.image import imread
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.lab.datasets import graphs
from graphtheory.lab.plot.style import COLORS, GRAY, LIGHT, panels, styled
from graphtheory.patterns import AddSelf, Compose, KHop

PATCH, MEMBER, LOOKING = 32, 2, (5, 8)  # pixels; a member of the club; row and column of a patch


def weights(features: Tensor, neighborhood: Neighborhood, node: int) -> Tensor:
    """With which weights the node aggregates from every node, [N]."""
    query = key = features[:, None]  # one head
    weight = ops.edge_softmax(ops.edge_dot(query, key, neighborhood), neighborhood)
    row = slice(*neighborhood.indptr[node : node + 2].tolist())
    out = torch.zeros(len(features))
    out[neighborhood.indices[row].long()] = weight[row, 0]
    return out


def club() -> tuple[nx.Graph, Neighborhood, Tensor]:
    """The karate club, its balls of two hops, and features: the first eigenvectors of its Laplacian."""  # noqa: E501
    data = graphs.load("karate")
    graph = Neighborhood.from_edge_index(data.edge_index, num_nodes=data.num_nodes)
    drawn = nx.karate_club_graph()
    laplacian = torch.tensor(nx.normalized_laplacian_matrix(drawn, weight=None).toarray())
    features = torch.linalg.eigh(laplacian).eigenvectors[:, 1:4].float() * 4
    return drawn, Compose(KHop(2), AddSelf())(graph), features


def portrait() -> tuple[Tensor, Neighborhood, Tensor]:
    """Pixels [H, W, 3], a clique of all patches, and features: mean color, spread and place."""
    with get_sample_data("grace_hopper.jpg") as file:
        pixels = torch.tensor(imread(file, format="jpg")) / 255
    rows, columns = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    pixels = pixels[: rows * PATCH, : columns * PATCH]
    patches = pixels.unfold(0, PATCH, PATCH).unfold(1, PATCH, PATCH).flatten(3)  # [R, C, 3, P * P]
    y, x = torch.meshgrid(torch.linspace(0, 1, rows), torch.linspace(0, 1, columns), indexing="ij")
    color, spread = patches.mean(3), patches.std(3)
    features = torch.cat([5 * color, 10 * spread, 1.5 * torch.stack([x, y], 2)], 2).flatten(0, 1)
    features = 5 * torch.nn.functional.normalize(features - features.mean(0), dim=1)
    return pixels, cliques([rows * columns]), features


def draw(axes: Axes, place: np.ndarray, weight: Tensor, node: int) -> None:
    """The node in orange, all others as large as their weight, with lines to those that count."""
    share = weight.index_fill(0, torch.tensor(node), 0)
    share = share / share.max()
    size = (6 + 100 * share).numpy()
    for at in share.topk(30).indices.tolist():
        line = {"linewidth": 4 * float(share[at]), "alpha": 0.2 + 0.6 * float(share[at])}
        axes.plot(*place[[at, node]].T, color=COLORS[0], zorder=2, **line)
    axes.scatter(*place.T, s=size, color=COLORS[0], linewidths=0, zorder=3)
    axes.scatter(*place[node], s=150, color=COLORS[1], edgecolors="white", zorder=5)


def draw_club(axes: Axes) -> None:
    drawn, balls, features = club()
    place = np.stack(list(nx.kamada_kawai_layout(drawn).values()))
    for edge in drawn.edges:
        axes.plot(*place[list(edge)].T, color=LIGHT, linewidth=0.8, zorder=1)
    draw(axes, place, weights(features, balls, MEMBER), MEMBER)
    axes.set_title("A graph: a node attends to\nits neighborhood of two hops")


def draw_portrait(axes: Axes) -> None:
    pixels, clique, features = portrait()
    rows, columns = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    node = LOOKING[0] * columns + LOOKING[1]
    axes.imshow((0.35 + 0.65 * pixels).numpy())
    at = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    draw(axes, PATCH * (at.flip(1) + 0.5).numpy(), weights(features, clique, node), node)
    axes.set_title("An image: a patch attends to\nall patches")


@styled
def main(path: Path) -> None:
    figure, (left, right) = panels(2, width=7.0, height=3.9)
    figure.set_facecolor("white")
    draw_club(left)
    draw_portrait(right)
    for axes in (left, right):
        axes.set_axis_off()
    figure.supxlabel(
        "ops.edge_softmax(ops.edge_dot(query, key, neighborhood), neighborhood): "
        "thicker lines, larger weights", fontsize=8.5, color=GRAY,
    )  # fmt: skip
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("attention.png"))
