"""Graphs and tokens over the image that they were made of."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import COLORS, GRAY, figure_title, panels, styled

_EDGE, _NODE, _CHOSEN = COLORS[0], COLORS[3], COLORS[1]
_ACROSS = 6  # panels beside each other
_PANEL = 1.25  # inches
# Dark and light by turns, so that neighbors differ where colors do not.
_PATCHES = (
    "#0072B2", "#F0C27B", "#009E73", "#F4A9C4", "#6A51A3", "#B8DDF2", "#D55E00", "#C7E9C0",
    "#4D4D4D", "#FDD0A2", "#1F6F8B", "#E6C8E8", "#8C510A", "#D9D9D9", "#7F0000", "#CCEBC5",
)  # fmt: skip


@styled
def image_graph(
    image: Any, pos: Any, edge_index: Any, *, weight: Any = None, target: int | None = None,
    title: str = "",
) -> Figure:  # fmt: skip
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
    pixels, place, edges = _pixels(image, None), np.asarray(pos), np.asarray(edge_index)
    if target is not None and not 0 <= target < len(place):
        raise ValueError(f"target: got {target}, expected 0..{len(place) - 1}")
    strength = np.ones(edges.shape[1]) if weight is None else np.asarray(weight, dtype=float)
    if strength.shape != edges.shape[1:]:
        raise ValueError(f"weight: shape {strength.shape}, expected [{edges.shape[1]}]")
    drawn = edges[0] != edges[1]
    if target is not None:
        drawn &= edges[1] == target
    height, width = pixels.shape[:2]
    figure, (axes,) = panels(1, width=6.0, height=6.0 * height / width + 0.6)
    axes.imshow(0.45 + 0.55 * pixels, extent=(0, width, height, 0), interpolation="nearest")
    share = strength[drawn] / max(strength[drawn].max(initial=0.0), 1e-12)
    crowded = min(1.0, (400 / max(len(share), 1)) ** 0.5)  # many lines are drawn thinner
    widths = 1.2 * max(crowded, 0.3) if weight is None else 0.4 + 2.6 * share
    alpha = 0.25 + 0.6 * crowded if weight is None else 0.15 + 0.85 * share
    ends = list(place[edges[:, drawn]].transpose(1, 0, 2))
    axes.add_collection(LineCollection(ends, colors=_EDGE, linewidths=widths, alpha=alpha))
    size = min(18.0, 4000 / len(place))
    axes.scatter(
        place[:, 0], place[:, 1], s=size, color=_NODE, edgecolors="white", linewidths=0.5, zorder=3
    )
    if target is not None:
        at, own = place[edges[0, drawn]], place[target]
        axes.scatter(at[:, 0], at[:, 1], s=2 * size, color=_EDGE, edgecolors="white", zorder=4)
        axes.scatter(own[0], own[1], s=4 * size, color=_CHOSEN, edgecolors="white", zorder=5)
    axes.set(xlabel="column (pixels)", ylabel="row (pixels)", title=title)
    return figure


@styled
def token_attention(
    image: Any, weights: Any, *, names: Sequence[str] = (), title: str = ""
) -> Figure:
    """The image, and one picture of it a token: the lighter a patch, the more of its attention.

    All pictures share one scale, from 0 to the largest weight.

    Args:
        image: Values 0..1, [C, H, W] with 1 or 3 channels.
        weights: Attention of each token to each patch of a grid, [M, h, w].
        names: Of the tokens; without them their numbers from 1.
        title: Above the pictures.

    Raises:
        ValueError: Shapes that do not fit; not as many names as tokens.
    """
    pixels, seen = _pixels(image), np.asarray(weights, dtype=float)
    if seen.ndim != 3 or not len(seen):
        raise ValueError(f"weights: shape {seen.shape}, expected [M, h, w]")
    names = names or [str(i + 1) for i in range(len(seen))]
    if len(names) != len(seen):
        raise ValueError(f"names: {len(names)}, expected one a token: {len(seen)}")
    columns = min(_ACROSS, 1 + len(seen))
    rows = math.ceil((1 + len(seen)) / columns)
    size = (_PANEL * columns + 0.9, 1.18 * _PANEL * rows + 0.35)
    figure = Figure(figsize=size, layout="constrained")
    cells = list(figure.subplots(rows, columns, squeeze=False).flat)
    figure_title(figure, title)
    _bare(cells[0], "image")
    cells[0].imshow(pixels, interpolation="nearest")
    extent = (0, pixels.shape[1], pixels.shape[0], 0)
    for axes, name, weight in zip(cells[1:], names, seen, strict=False):
        _bare(axes, name)
        shown = axes.imshow(
            weight, extent=extent, vmin=0, vmax=seen.max(), cmap="magma", interpolation="nearest"
        )
        gray = pixels.mean(2)
        if gray.min() < 0.5 < gray.max():  # an outline where the image changes to light
            across, down = (np.arange(n) + 0.5 for n in gray.shape[::-1])
            axes.contour(across, down, gray, levels=[0.5], colors="#14C8E8", linewidths=0.9)
    for axes in cells[1 + len(seen) :]:
        axes.set_axis_off()
    figure.colorbar(shown, ax=cells, shrink=0.8, aspect=30, label="attention weight")
    return figure


@styled
def token_assignment(image: Any, slot: Any, *, title: str = "") -> Figure:
    """The image, and which token each of its patches went to: one number and color a token.

    Args:
        image: Values 0..1, [C, H, W] with 1 or 3 channels.
        slot: Number of the token of each patch from 0, shown from 1; -1 for a patch that was left.
            [h, w].
        title: Above the pictures.

    Raises:
        ValueError: Shapes that do not fit.
    """
    pixels, place = _pixels(image), np.asarray(slot)
    if place.ndim != 2:
        raise ValueError(f"slot: shape {place.shape}, expected [h, w]")
    height, width = pixels.shape[:2]
    figure, (plain, tokens) = panels(2, width=6.6, height=3.1 * height / width + 0.5)
    figure_title(figure, title)
    _bare(plain, "image")
    _bare(tokens, "token of each patch" + (", white: dropped" if (place < 0).any() else ""))
    plain.imshow(pixels, interpolation="nearest")
    known = np.unique(place[place >= 0])
    rank = np.searchsorted(known, place).astype(float)
    rank[place < 0] = np.nan
    shown = ListedColormap([_PATCHES[i % len(_PATCHES)] for i in range(max(len(known), 1))])
    extent = (0, place.shape[1], place.shape[0], 0)
    last = max(len(known), 1) - 0.5
    tokens.imshow(rank, cmap=shown, vmin=-0.5, vmax=last, extent=extent, interpolation="nearest")
    tokens.set_xticks(range(place.shape[1] + 1), [])
    tokens.set_yticks(range(place.shape[0] + 1), [])
    tokens.grid(color="white", linewidth=1)
    tokens.set_axisbelow(False)
    size = min(9.0, 90 / max(place.shape))
    for (row, column), token in np.ndenumerate(place):
        if token >= 0:
            color = "#222222" if rank[row, column] % 2 else "white"
            text: Any = {"ha": "center", "va": "center", "fontsize": size, "color": color}
            tokens.text(column + 0.5, row + 0.5, str(token + 1), **text)
    return figure


def _pixels(image: Any, dtype: type | None = float) -> np.ndarray:
    """[H, W, 3] of [1 or 3, H, W]."""
    pixels = np.asarray(image, dtype=dtype)
    if pixels.ndim != 3 or len(pixels) not in (1, 3):
        raise ValueError(f"image: shape {pixels.shape}, expected [1 or 3, H, W]")
    return np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)


def _bare(axes: Axes, name: str) -> None:
    axes.set_title(name, fontsize=8.5, fontweight="normal", loc="center", pad=3)
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(GRAY)
