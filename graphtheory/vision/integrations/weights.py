"""Load state dicts of other libraries, renamed to our parameter names; of ViG and STViT-R too."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.models import ViG
from graphtheory.vision.models.dumbbell import Dumbbell, token_order
from graphtheory.vision.models.stvit_swin import STViTRSwin
from graphtheory.vision.nn import ConvStem, GraphBlock, Grapher, MaxRelative
from graphtheory.vision.nn.grapher import GraphStage, position_similarity

Rules = Sequence[tuple[str, str]]
"""(regular expression of a name, our name); ``name#1`` is the second part of `name`."""
_SHOWN = 8  # names of a message

_NAMES = json.loads(Path(__file__).with_name("names.json").read_text())


def named_rules(kind: str) -> list[tuple[str, str]]:
    """The rules that names.json has of a kind of model; what is nested lies behind a prefix."""
    found: list[tuple[str, str]] = []
    for theirs, ours in _NAMES[kind].items():
        inner = isinstance(ours, list)
        found += nested(theirs, ours[0], named_rules(ours[1])) if inner else [(theirs, ours)]
    return found


def nested(prefix: str, ours: str, rules: Rules) -> list[tuple[str, str]]:
    r"""Rules of names behind a prefix, such as those of a block.

    Example:
        >>> nested(r"h\.(\d+)\.", r"blocks.\1.", [(r"mlp\.(\w+)", r"mlp.\1")])
        [('h\\.(\\d+)\\.(?:mlp\\.(\\w+))', 'blocks.\\1.mlp.\\2')]
    """
    before = re.compile(prefix).groups

    def shifted(match: re.Match[str]) -> str:
        return f"\\{int(match[1]) + before}"

    return [
        (f"{prefix}(?:{theirs})", own and ours + re.sub(r"\\(\d)", shifted, own))
        for theirs, own in rules
    ]


def load_renamed(model: nn.Module, state: Mapping[str, Tensor], rules: Rules) -> None:
    """Load copies of the tensors of `fitted_state`, which has the same arguments and errors."""
    model.load_state_dict(fitted_state(model, state, rules))


def fitted_state(model: nn.Module, state: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """The state dict of a model that has the tensors of a state dict of another library.

    Every name is rewritten by the first rule that matches it in full. Parts ``name#0``, ``name#1``
    are concatenated along the first axis; leading axes of size 1 that our parameter lacks are
    squeezed. A rule to "" ignores a name.
    """
    refuse_foreign(state)
    wanted = model.state_dict()
    parts: dict[str, dict[int, Tensor]] = {}
    unexpected = []
    for name, tensor in state.items():
        matches = ((re.fullmatch(pattern, name), own) for pattern, own in rules)
        ours = next((match.expand(own) for match, own in matches if match), "no rule")
        target, _, part = ours.partition("#")
        if target in wanted:
            parts.setdefault(target, {})[int(part or 0)] = tensor
        elif ours:
            unexpected.append(name)
    missing = [name for name, tensor in wanted.items() if tensor.numel() and name not in parts]
    found = {name: _joined(part, wanted[name]) for name, part in parts.items()}
    shapes = [
        f"{name} {tuple(t.shape)} for {tuple(wanted[name].shape)}"
        for name, t in found.items()
        if t.shape != wanted[name].shape
    ]
    if missing or unexpected or shapes:
        raise ValueError(
            f"state: does not fit {type(model).__name__}; missing: {_listed(missing)}; "
            f"unexpected: {_listed(unexpected)}; other shapes: {_listed(shapes)}"
        )
    return wanted | found  # empty tensors stay


def _joined(parts: Mapping[int, Tensor], like: Tensor) -> Tensor:
    trimmed = []
    for _, part in sorted(parts.items()):
        while part.dim() > like.dim() and part.size(0) == 1:
            part = part[0]
        trimmed.append(part)
    fit = len({t.shape[1:] for t in trimmed}) == 1
    return torch.cat(trimmed) if fit and like.dim() else trimmed[0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def refuse_foreign(state: Any) -> None:
    """Raise TypeError unless it is a state dict, ValueError if it is one in something else."""
    kinds = {type(value).__name__ for value in state.values()} if isinstance(state, Mapping) else ()
    if isinstance(state, Mapping) and all(isinstance(t, Tensor) for t in state.values()):
        if state and all(name.startswith("module.") for name in state):
            raise ValueError("state: all names begin with 'module.', expected them without")
        return
    inner = [n for n, v in state.items() if isinstance(v, Mapping)] if kinds else []
    hint = f"; it has a dict under {inner[0]!r}, which may be one" if inner else ""
    found = f"a dict of {', '.join(sorted(kinds))}" if kinds else type(state).__name__
    raise TypeError(f"state: got {found}, expected a state dict, name -> tensor{hint}")


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
    refuse_foreign(state)
    names, places = _published(model)
    for part in model.modules():
        if isinstance(part, Grapher) and not isinstance(part.message, MaxRelative):
            given = type(part.message).__name__
            raise ValueError(f"model: its messages are {given}, expected MaxRelative as published")
    rules = named_rules("part of ViG")
    parts = [nested(rf"backbone\.{i}\.", f"{name}.", rules) for i, name in enumerate(names)]
    learned = {name: _on_nodes(name, t) for name, t in state.items() if name not in places}
    fitted = fitted_state(model, learned, (*named_rules("ViG"), *chain(*parts)))
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
