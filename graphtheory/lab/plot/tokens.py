"""Tokens over the image that they were made of: where they look, and which patches went to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import GRAY, styled

_ACROSS = 6  # panels beside each other
_PANEL = 1.25  # inches
# Dark and light by turns, so that neighbors differ where colors do not.
_PATCHES = (
    "#0072B2", "#F0C27B", "#009E73", "#F4A9C4", "#6A51A3", "#B8DDF2", "#D55E00", "#C7E9C0",
    "#4D4D4D", "#FDD0A2", "#1F6F8B", "#E6C8E8", "#8C510A", "#D9D9D9", "#7F0000", "#CCEBC5",
)  # fmt: skip


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
    across = min(_ACROSS, 1 + len(seen))
    down = math.ceil((1 + len(seen)) / across)
    figure = Figure(figsize=(_PANEL * across + 0.9, 1.18 * _PANEL * down + 0.35))
    figure.set_layout_engine("constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    _bare(panels[0], "image")
    panels[0].imshow(pixels, interpolation="nearest")
    extent = (0, pixels.shape[1], pixels.shape[0], 0)
    for axes, name, weight in zip(panels[1:], names, seen, strict=False):
        _bare(axes, name)
        shown = axes.imshow(
            weight, extent=extent, vmin=0, vmax=seen.max(), cmap="magma", interpolation="nearest"
        )
        _outline(axes, pixels)
    for axes in panels[1 + len(seen) :]:
        axes.set_axis_off()
    figure.colorbar(shown, ax=panels, shrink=0.8, aspect=30, label="attention weight")
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
    figure = Figure(figsize=(6.6, 3.1 * height / width + 0.5))
    figure.set_layout_engine("constrained")
    plain, tokens = figure.subplots(1, 2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
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
    _numbers(tokens, place, rank)
    return figure


def _outline(axes: Axes, pixels: np.ndarray) -> None:
    """Where the image changes from dark to light, as a thin line."""
    gray = pixels.mean(2)
    if gray.min() < 0.5 < gray.max():
        across, down = (np.arange(n) + 0.5 for n in gray.shape[::-1])
        axes.contour(across, down, gray, levels=[0.5], colors="#14C8E8", linewidths=0.9)


def _numbers(axes: Axes, place: np.ndarray, rank: np.ndarray) -> None:
    size = min(9.0, 90 / max(place.shape))
    for (row, column), token in np.ndenumerate(place):
        if token >= 0:
            dark = int(rank[row, column]) % 2 == 0
            axes.text(
                column + 0.5, row + 0.5, str(token + 1), ha="center", va="center", fontsize=size,
                color="white" if dark else "#222222",
            )  # fmt: skip


def _pixels(image: Any) -> np.ndarray:
    """[H, W, 3] of [1 or 3, H, W]."""
    pixels = np.asarray(image, dtype=float)
    if pixels.ndim != 3 or len(pixels) not in (1, 3):
        raise ValueError(f"image: shape {pixels.shape}, expected [1 or 3, H, W]")
    return np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)


def _bare(axes: Axes, name: str) -> None:
    axes.set_title(name, fontsize=8.5, fontweight="normal", loc="center", pad=3)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(GRAY)
