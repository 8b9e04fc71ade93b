"""Load state dicts of the published ViG and Pyramid ViG into ours."""

from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor

from graphtheory.graph import Grid
from graphtheory.vision.integrations import weights
from graphtheory.vision.models import ViG
from graphtheory.vision.nn import GraphBlock, Grapher, MaxRelative
from graphtheory.vision.nn.grapher import GraphStage, position_similarity

_ROUNDING = 1e-3  # between two tables of places, of which one may have been in half precision


def load_vig(model: ViG, state: Mapping[str, Tensor]) -> None:
    """Load a published state dict of ViG (vig_ti, vig_s, vig_b) or Pyramid ViG (pvig_ti to pvig_b).

    The fixed tables of places of Pyramid ViG, `relative_pos`, are compared with those that the
    model computes. The number of neighbors is not in a state dict: the published one is the default
    of the models.

    Args:
        model: `models.vig_tiny()`, `vig_small()` or `vig_base()`; `models.pyramid_vig_tiny()` or
            its kin. With max-relative messages and as many classes as the state has.
        state: Of "vig_ti_224_gelu", "pvig_ti_224_gelu" and their kin, as
            ``torch.load(file, weights_only=True)`` gives it.

    Raises:
        TypeError: If the model is no ViG, or the state no state dict.
        ValueError: If names are missing or left over, shapes differ, or tables of places do; the
            message lists the first ones. If the model has other messages. The model is not changed
            then.

    Source:
        Names of huawei-noah/Efficient-AI-Backbones, vig_pytorch.
    """
    if not isinstance(model, ViG):
        raise TypeError(f"model: got {type(model).__name__}, expected a ViG")
    weights.refuse_foreign(state)
    names, places = _published(model)
    for part in model.modules():
        if isinstance(part, Grapher) and not isinstance(part.message, MaxRelative):
            given = type(part.message).__name__
            raise ValueError(f"model: its messages are {given}, expected MaxRelative as published")
    rules = weights.named_rules("part of ViG")
    parts = [weights.nested(rf"backbone\.{i}\.", f"{name}.", rules) for i, name in enumerate(names)]
    learned = {name: _on_nodes(name, t) for name, t in state.items() if name not in places}
    fitted = weights.fitted_state(model, learned, (*weights.named_rules("ViG"), *chain(*parts)))
    wrong = [n for n, own in places.items() if n in state and not _fits(state[n], *own)]
    if wrong:
        raise ValueError(f"state: other places than those of the model in {', '.join(wrong)}")
    model.load_state_dict(fitted)


def _fits(table: Tensor, grapher: Grapher, grid: Grid) -> bool:
    """Whether a published table of distances has the similarities of the model."""
    own = -position_similarity(grid, grapher.reduce, grapher.message.dim, table.device)[None]
    same_shape = table.shape == own.shape
    return same_shape and torch.allclose(table.float(), own, rtol=0, atol=_ROUNDING)


def _published(model: ViG) -> tuple[list[str], dict[str, tuple[Grapher, Grid]]]:
    """Our names of the entries of their `backbone`, and whose places their tables have."""
    names: list[str] = []
    places: dict[str, tuple[Grapher, Grid]] = {}
    grid = model.position.grid
    for s, stage in enumerate(model.stages):
        assert isinstance(stage, GraphStage)
        if stage.coarser is not None:
            names.append(f"stages.{s}")
            grid = Grid(1, -(-grid.height // 2), -(-grid.width // 2))
        for b, block in enumerate(stage.blocks):
            assert isinstance(block, GraphBlock)
            if block.grapher.with_place:
                places[f"backbone.{len(names)}.0.relative_pos"] = (block.grapher, grid)
            names.append(f"stages.{s}.blocks.{b}")
    return names, places


def _on_nodes(name: str, tensor: Tensor) -> Tensor:
    """The map of positions as rows, and a convolution of one pixel as a matrix."""
    if not isinstance(tensor, Tensor) or tensor.dim() != 4:
        return tensor
    if name == "pos_embed":  # [1, dim, rows, columns]
        return tensor[0].flatten(1).t()
    return tensor[..., 0, 0] if tensor.shape[2:] == (1, 1) else tensor
