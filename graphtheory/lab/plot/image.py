"""Graphs over the image that they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import COLORS, panels, styled

_EDGE, _NODE, _CHOSEN = COLORS[0], COLORS[3], COLORS[1]


@styled
def image_graph(
    image: Any,
    pos: Any,
    edge_index: Any,
    *,
    weight: Any = None,
    target: int | None = None,
    title: str = "",
) -> Figure:
    """The edges of a patch or superpixel graph as lines over its image.

    The image is paled. An edge from a node to itself is not drawn; two edges in opposite directions
    are one line over the other.

    Args:
        image: Values 0..1, [C, H, W] with 1 or 3 channels.
        pos: Place (x, y) of each node in pixels, [N, 2].
        edge_index: Sources and targets, [2, E].
        weight: One number of 0 or more an edge: wider and darker lines weigh more; None draws all
            alike.
        target: Draw only what this node aggregates from, and mark it and them: a line may pass
            over other nodes.
        title: Above the picture.

    Raises:
        ValueError: Shapes that do not fit; a target that is no node.
    """
    pixels, place, edges = np.asarray(image), np.asarray(pos), np.asarray(edge_index)
    if pixels.ndim != 3 or len(pixels) not in (1, 3):
        raise ValueError(f"image: shape {pixels.shape}, expected [1 or 3, H, W]")
    if target is not None and not 0 <= target < len(place):
        raise ValueError(f"target: got {target}, expected 0..{len(place) - 1}")
    strength = np.ones(edges.shape[1]) if weight is None else np.asarray(weight, dtype=float)
    if strength.shape != edges.shape[1:]:
        raise ValueError(f"weight: shape {strength.shape}, expected [{edges.shape[1]}]")
    drawn = edges[0] != edges[1]
    if target is not None:
        drawn &= edges[1] == target
    height, width = pixels.shape[1:]
    figure, (axes,) = panels(1, width=6.0, height=6.0 * height / width + 0.6)
    shown = np.broadcast_to(pixels, (3, height, width)).transpose(1, 2, 0)
    axes.imshow(0.45 + 0.55 * shown, extent=(0, width, height, 0), interpolation="nearest")
    axes.add_collection(_lines(place[edges[:, drawn]], strength[drawn], weight is not None))
    size = min(18.0, 4000 / len(place))
    axes.scatter(
        place[:, 0], place[:, 1], s=size, color=_NODE, edgecolors="white", linewidths=0.5, zorder=3
    )
    if target is not None:
        at, own = place[edges[0, drawn]], place[target]
        axes.scatter(at[:, 0], at[:, 1], s=2 * size, color=_EDGE, edgecolors="white", zorder=4)
        axes.scatter(own[0], own[1], s=4 * size, color=_CHOSEN, edgecolors="white", zorder=5)
    axes.set_xlabel("column (pixels)")
    axes.set_ylabel("row (pixels)")
    axes.set_title(title)
    return figure


def _lines(ends: np.ndarray, strength: np.ndarray, weighted: bool) -> LineCollection:
    """A line between the two places of each edge, ends [2, E, 2]."""
    share = strength / max(strength.max(initial=0.0), 1e-12)
    crowded = min(1.0, (400 / max(len(strength), 1)) ** 0.5)  # many lines are drawn thinner
    widths = 0.4 + 2.6 * share if weighted else 1.2 * max(crowded, 0.3)
    alpha = 0.15 + 0.85 * share if weighted else 0.25 + 0.6 * crowded
    return LineCollection(
        list(ends.transpose(1, 0, 2)), colors=_EDGE, linewidths=widths, alpha=alpha
    )
