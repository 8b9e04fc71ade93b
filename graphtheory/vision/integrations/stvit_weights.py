"""Load state dicts of the published STViT-R on Swin into ours."""

from collections.abc import Iterator, Mapping
from math import isqrt

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.integrations.weights import (
    load_renamed,
    named_rules,
    nested,
    refuse_foreign,
)
from graphtheory.vision.models.dumbbell import Dumbbell, token_order
from graphtheory.vision.models.stvit_swin import STViTRSwin
from graphtheory.vision.nn import ConvStem

_UNIT = {"side": 3, "reach": 3, "shortcut": False}  # what no name or shape tells of a unit
_CENTERS = "layers.2.semantic_token2"


def load_stvit_r(model: STViTRSwin, state: Mapping[str, Tensor]) -> None:
    """Load a published state dict of STViT-R on Swin, small or base.

    Args:
        model: `models.stvit_r_swin_small()` or `stvit_r_swin_base()` with as many classes as the
            state has; with ``tokens=36`` if it has learned centers, which the released
            configurations leave out.
        state: The entry "model" of the released file.

    Raises:
        TypeError: If the model is of another kind, or the state no state dict.
        ValueError: If names are missing or left over, or shapes differ; the message lists the first
            ones. If the units of the model are not those published. The model is not changed then.

    Source:
        Names of changsn/STViT-R. Code and weights of STViT on DeiT were never released.
    """
    if not isinstance(model, STViTRSwin):
        raise TypeError(f"model: got {type(model).__name__}, expected an STViTRSwin")
    refuse_foreign(state)
    units = [part for part in model.modules() if isinstance(part, Dumbbell)]
    for unit in units:
        given = {name: getattr(unit, name) for name in _UNIT}
        if given != _UNIT:
            raise ValueError(f"model: its units have {given}, expected {_UNIT} as published")
    assert isinstance(model.stem, ConvStem)
    convolutions = [part for part in model.stem.layers if isinstance(part, nn.Conv2d)]
    no_bias = {  # for a norm follows
        f"patch_embed.proj.{2 * i}.c.bias": torch.zeros(part.out_channels)
        for i, part in enumerate(convolutions)
    }
    fitted = no_bias | dict(state)
    if _CENTERS in fitted:
        fitted[_CENTERS] = _window_by_window(fitted[_CENTERS], units[0])
    swin = named_rules("Swin of timm")
    load_renamed(model, fitted, [*named_rules("STViT-R"), *_unit_rules(len(units)), *swin])


def _unit_rules(units: int) -> Iterator[tuple[str, str]]:
    """Blocks count through all units; in ours the five on tokens follow one on patches."""
    for i in range(6 * units):
        unit, block = divmod(i, 6)
        name = f"blocks.{block - 1}" if block else "swin.blocks.0"
        ours = f"stages.2.units.{unit}.{name}."
        yield from nested(rf"layers\.2\.blocks\.{i}\.", ours, named_rules("block of timm"))


def _window_by_window(centers: Tensor, unit: Dumbbell) -> Tensor:
    """Centers [1, tokens, dim] of a square, given row by row, in the order of `WindowTokens`."""
    windows = isqrt(centers.size(1)) // unit.side if centers.dim() == 3 else 0
    if not windows or (windows * unit.side) ** 2 != centers.size(1):
        return centers  # of no square of windows, which no model of ours has: refused by its shape
    grid = Grid(1, windows * unit.window, windows * unit.window)
    order = token_order(grid, unit.window, unit.side, centers.device)[2]
    return centers[:, order]
