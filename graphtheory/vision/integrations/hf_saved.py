"""Rules as entries of a config of Hugging Face, with which `save_pretrained` saves them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch

from graphtheory.patterns import TopK
from graphtheory.vision.integrations.hf_reduce import INSTALLED, Reduce
from graphtheory.vision.integrations.hf_semantic import Semantic
from graphtheory.vision.nn import (
    AveragePool,
    Fuse,
    Keep,
    LearnedCenters,
    MaskPool,
    MaxPool,
    Merge,
    MultiScale,
    OverlapPool,
)
from graphtheory.vision.nn.reduce import Attended, Random

NEAREST = "_nearest_attention"  # attribute of a model: its `TopK` and what was there before
ENTRY = "graphtheory"  # of the config
# A tensor that Hugging Face alone does not expect, so that it reports it when it loads the folder.
MARK = "load_with_graphtheory.vision.integrations.transformers.from_pretrained"
_RULES = {r.__name__: r for r in (TopK, Reduce, Semantic, Keep, Fuse, Merge, Attended, Random)}


def _of_windows(pool: MaskPool) -> dict[str, Any]:
    return {"side": pool.side, "dim": pool.depthwise.in_channels, "eps": pool.norm.eps}


# Arguments of the constructors of centers.
_CENTERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    AveragePool: lambda pool: {"side": pool.side},
    MaxPool: lambda pool: {"side": pool.side},
    MaskPool: _of_windows,
    OverlapPool: _of_windows,
    MultiScale: lambda pool: {"parts": [encoded(part) for part in pool.parts]},
    LearnedCenters: lambda pool: {"tokens": pool.tokens, "dim": pool.table.size(1)},
}


def encoded(what: Any) -> Any:
    """A rule as an entry of a config, for JSON.

    Raises:
        ValueError: If the rule holds tensors or is of a class that is not the package's own.
    """
    if what is None or isinstance(what, (bool, int, float)):
        return what
    if isinstance(what, (list, tuple)):
        return [encoded(part) for part in what]
    if isinstance(what, Mapping):
        return {"layers": [[number, encoded(rule)] for number, rule in what.items()]}
    kind = type(what)
    if kind in _CENTERS:
        return {"kind": kind.__name__, **_CENTERS[kind](what)}
    if kind not in _RULES.values():
        raise ValueError(
            f"what: a {kind.__name__} cannot be saved in a config, expected {_known()}"
        )
    return {"kind": kind.__name__, **{f.name: encoded(getattr(what, f.name)) for f in fields(what)}}


def decoded(entry: Any) -> Any:
    """The rule of an entry of a config.

    Raises:
        ValueError: If it names a rule that does not exist.
    """
    if isinstance(entry, list):
        return [decoded(part) for part in entry]
    if not isinstance(entry, dict):
        return entry
    if "layers" in entry:
        return {number: decoded(rule) for number, rule in entry["layers"]}
    given = {name: decoded(value) for name, value in entry.items() if name != "kind"}
    kinds = {kind.__name__: kind for kind in _CENTERS} | _RULES
    if entry["kind"] not in kinds:
        raise ValueError(f"config.{ENTRY}: names {entry['kind']!r}, expected {_known()}")
    return kinds[entry["kind"]](**given)


def saves(model: Any) -> None:
    """Make ``model.save_pretrained`` save the rules that are applied; or not, if there are none."""
    vars(model).pop("save_pretrained", None)
    if _applied(model):
        model.save_pretrained = partial(_save, model)


def _applied(model: Any) -> list[Any]:
    """What is applied to a model, tokens first."""
    made, nearest = vars(model).get(INSTALLED), vars(model).get(NEAREST)
    return [w for w in (getattr(made, "what", None), getattr(nearest, "pattern", None)) if w]


def _save(
    model: Any, folder: str | os.PathLike[str], *args: Any,
    state_dict: dict[str, Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    """``save_pretrained`` with the rules in the config."""
    entry = [encoded(what) for what in _applied(model)]
    state = dict(model.state_dict() if state_dict is None else state_dict)
    state[MARK] = torch.ones(1)
    setattr(model.config, ENTRY, entry)
    try:
        type(model).save_pretrained(model, folder, *args, state_dict=state, **options)
    finally:
        delattr(model.config, ENTRY)


def _known() -> str:
    return ", ".join((*_RULES, *(kind.__name__ for kind in _CENTERS)))
