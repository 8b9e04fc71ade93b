"""Models of Hugging Face transformers with an applied rule, saved and loaded with it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig
from transformers.utils.hub import cached_file

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
_ENTRY = "graphtheory"  # of the config
# A tensor that Hugging Face alone does not expect, so that it reports it when it loads the folder.
_MARK = "load_with_graphtheory.integrations.transformers.from_pretrained"
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
        raise ValueError(f"config.{_ENTRY}: names {entry['kind']!r}, expected {_known()}")
    return kinds[entry["kind"]](**given)


def saves(model: Any) -> None:
    """Make ``model.save_pretrained`` save the rules that are applied; or not, if there are none."""
    vars(model).pop("save_pretrained", None)
    if _applied(model):
        model.save_pretrained = partial(_save, model)


def from_pretrained(kind: Any, folder: str | os.PathLike[str], *args: Any, **options: Any) -> Any:
    """Load a model that was saved after `apply`, with its rules and trained semantic tokens.

    ``model.save_pretrained(folder)`` writes the rules into config.json. Hugging Face alone loads
    such a folder without them, and reports an unexpected tensor whose name tells this function.

    Args:
        kind: Class of the model, or a class such as ``AutoModelForImageClassification``.
        folder: The folder, or the name of a repository.
        args: As for ``kind.from_pretrained``.
        options: As for ``kind.from_pretrained``.

    Raises:
        ValueError: If the config names no rule, or one that does not exist; or if the weights were
            saved again by Hugging Face alone, without the rule.

    Example:
        >>> apply(model, Merge(8))  # doctest: +SKIP
        >>> model.save_pretrained("folder")  # doctest: +SKIP
        >>> model = from_pretrained(ViTForImageClassification, "folder")  # doctest: +SKIP
    """
    from graphtheory.vision.integrations.hf_attention import apply

    config = options.pop("config", None)
    where = ("cache_dir", "local_files_only", "revision", "subfolder", "token")
    found = {name: options[name] for name in where if name in options}
    if config is None:
        config = AutoConfig.from_pretrained(folder, **found)
    entry = getattr(config, _ENTRY, None)
    if not entry:
        raise ValueError(f"folder: the config in {folder} names no rule, expected one of `apply`")
    names = _tensors(folder, found)
    if names is not None and _MARK not in names:
        raise ValueError(
            f"folder: the weights in {folder} were saved by a model without the rule that its "
            f"config names, expected {kind.__name__}.from_pretrained, and `apply` after it"
        )
    delattr(config, _ENTRY)
    if hasattr(kind, "_model_mapping"):
        kind = kind._model_mapping[type(config)]

    def start(self: Any, config: Any, *args: Any, **options: Any) -> None:
        kind.__init__(self, config, *args, **options)
        for rule in decoded(entry):  # before the weights are loaded: theirs are among them
            apply(self, rule)

    parts = {
        "__init__": start, "__module__": kind.__module__, "__qualname__": kind.__qualname__,
        "_keys_to_ignore_on_load_unexpected": [
            *(kind._keys_to_ignore_on_load_unexpected or ()), _MARK.replace(".", r"\.")
        ],
    }  # fmt: skip
    started: Any = type(kind.__name__, (kind,), parts)
    model = started.from_pretrained(folder, *args, config=config, **options)
    model.__class__ = kind
    return model


def _tensors(folder: str | os.PathLike[str], where: dict[str, Any]) -> set[str] | None:
    """Names of the tensors of a folder; None if they are in files of another format."""
    for name in ("model.safetensors.index.json", "model.safetensors"):
        path = cached_file(folder, name, _raise_exceptions_for_missing_entries=False, **where)
        if path is None:
            continue
        if name.endswith("json"):
            return set(json.loads(Path(path).read_text())["weight_map"])
        with safe_open(path, "pt") as file:
            return set(file.keys())
    return None


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
    state[_MARK] = torch.ones(1)
    setattr(model.config, _ENTRY, entry)
    try:
        type(model).save_pretrained(model, folder, *args, state_dict=state, **options)
    finally:
        delattr(model.config, _ENTRY)


def _known() -> str:
    return ", ".join((*_RULES, *(kind.__name__ for kind in _CENTERS)))
