"""Options of a trial set by hand: read, put in the place of the chosen ones, told in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, get_args, get_type_hints

from graphtheory.lab.bench.trial import NodeTrial
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo import node_models as zoo

Options = dict[str, Any]
"""Values by name of the option."""

_ENCODED, _HEADS = ("gt",), (*graph_zoo.ATTENDING, "gatv2")
_NODE_HEADS, _ROOTS = (*zoo.ATTENDING, "gat", "gat-res"), ("gat-res", "gcn-res")
_SAMPLED = ("sampled-gcn",)
_REDUCING = ("evit", "tome", "random-drop")
_VITS = ("vit", "kvt", "stvit", *_REDUCING)
_FIXED = (
    "model",
    "epochs",
    "dataset",
    "root",
    "graph",
    "encoder",
    "head",
    "image_size",
)  # set otherwise
_STACKS = (*zoo.ATTENDING, "gat", "gcn", "mlp", "gat-res", "gcn-res", "sage")
READ_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "ImageTrial": {
        "width": (*_VITS, "swin", "vig"), "depth": (*_VITS, "vig"), "heads": _VITS,
        "patch": (*_VITS, "swin", "vig"), "tokens": ("stvit",), "k": ("kvt", "vig"),
        "keep": _REDUCING, "drop_path": (*_VITS, "swin", "vig"),
    },
    "GraphTrial": {
        "heads": _HEADS, "attention_dropout": _HEADS,
        "neighbors": graph_zoo.ATTENDING, "local": graph_zoo.ATTENDING,
        "num_buckets": _ENCODED, "value_encoding": _ENCODED, "paths": _ENCODED,
        "resistance": _ENCODED, "bias_lr": _ENCODED,
    },
    "NodeTrial": {
        "heads": _NODE_HEADS, "attention_dropout": _NODE_HEADS, "neighbors": zoo.ATTENDING,
        "frozen_query": zoo.ATTENDING, "root_weight": zoo.ATTENDING + _ROOTS,
        "num_buckets": zoo.ENCODED, "bias_lr": zoo.ENCODED,
        "sampler": _SAMPLED, "share": _SAMPLED, "fanout": (*_STACKS, "sgformer"),
    }
    | dict.fromkeys(
        ("residual", "ffn", "project", "batch_norm", "layer_norm", "activation", "input_dropout"),
        _STACKS,
    ),
}  # fmt: skip
"""By the kind of trial: options that some networks ignore -> those that read them."""
_VALUES_OF = {("readout", "token"): graph_zoo.ATTENDING}
"""Values that only some networks have."""
_FROM_ONE = (
    "hidden", "layers", "heads", "num_buckets", "nodes_per_batch", "batch_size", "fanout", "width",
    "depth", "patch", "tokens",
)  # fmt: skip
_TRUTH = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def read_options(words: Iterable[str]) -> dict[str, str]:
    """Words such as "walk=16" as names and values.

    Raises:
        ValueError: A word of another form, or a name that comes twice.

    Example:
        >>> read_options(["walk=16", "neighbors==2"])
        {'walk': '16', 'neighbors': '=2'}
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign and value):
            raise ValueError(f"options: got {word!r}, expected NAME=VALUE such as walk=16")
        if name in found:
            raise ValueError(f"options: {name} is set twice, to {found[name]} and to {value}")
        found[name] = value
    return found


def known_options(trial: Any) -> dict[str, Any]:
    """Every option of a trial by name, with its type."""
    hints, found = get_type_hints(type(trial)), dict[str, Any]()
    for field in fields(trial):
        value = getattr(trial, field.name)
        if is_dataclass(value):
            found |= known_options(value)
        elif field.name not in _FIXED:
            found[field.name] = hints[field.name]
    return found


def checked_options(trials: Sequence[Any], given: Mapping[str, Any]) -> Options:
    """The values as the options of these trials have them.

    Args:
        trials: Those of the compared models.
        given: Values by name; text such as "16", "true" or "none" is read as the type of the
            option.

    Raises:
        ValueError: A name that none of the trials has, or a value of another type.
    """
    known = {name: kind for trial in trials for name, kind in known_options(trial).items()}
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ValueError(f"options: unknown {name!r}, expected some of {listed}")
    return {name: _value(name, value, known[name]) for name, value in given.items()}


def with_options(trial: Any, options: Options) -> Any:
    """A trial with these values in the place of its own; its model keeps what it does not read.

    Raises:
        ValueError: A value that the optimizer does not take, or one that has no effect beside the
            other options.
    """
    read = {name: value for name, value in options.items() if not ignores(trial, name, value)}
    changed = _replaced(trial, read)
    if isinstance(trial, NodeTrial):
        for name, residual in (("ffn", True), ("project", False)):
            if read.get(name) and changed.network.residual != residual:
                raise ValueError(
                    f"{name}: got true, expected residual={shown(residual)} beside it; the "
                    f"{trial.model} here has residual={shown(not residual)}"
                )
        if "fanout" in read and changed.sampling.batch_size is None:
            raise ValueError(f"fanout: got {read['fanout']}, expected a batch_size beside it")
    return changed


def _replaced(part: Any, read: Options) -> Any:
    """A dataclass with these values in the place of its own, and in those that it holds."""
    changes = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            changes[field.name] = _replaced(value, read)
        elif field.name in read:
            changes[field.name] = read[field.name]
    return replace(part, **changes)


def ignores(trial: Any, name: str, value: Any = None) -> bool:
    """Whether the model of a trial does not read an option, or does not have that value of it."""
    readers = READ_BY.get(type(trial).__name__, {}).get(name) or _VALUES_OF.get((name, value))
    return name not in known_options(trial) or (readers is not None and trial.model not in readers)


def told_options(options: Options, trials: Sequence[Any] = ()) -> str:
    """Options in words, and which of the models of `trials` ignore some.

    Example:
        >>> from graphtheory.lab.bench.graph_trial import GraphTrial
        >>> told_options({"walk": 16, "paths": 5}, [GraphTrial("gt"), GraphTrial("gcn")])
        'walk=16, paths=5 (gcn ignores paths)'
    """
    pairs = {name: f"{name}={shown(value)}" for name, value in options.items()}
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        if models := [t.model for t in trials if ignores(t, name, value)]:
            said = f"{', '.join(models)} {'ignore' if len(models) > 1 else 'ignores'}"
            groups.setdefault(said, []).append(pairs[name] if (name, value) in _VALUES_OF else name)
    told = "; ".join(f"{said} {', '.join(names)}" for said, names in groups.items())
    return ", ".join(pairs.values()) + (f" ({told})" if told else "")


def shown(value: Any) -> str:
    """A value as it is typed."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _value(name: str, given: Any, kind: Any) -> Any:
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    optional = len(kinds) < len(get_args(kind))
    wanted = kinds[0]
    value = _parsed(given, wanted, optional) if isinstance(given, str) else given
    if value is None and optional:
        return None
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        expected = _KINDS[wanted] + (", or none" if optional else "")
        raise ValueError(f"{name}: got {given!r}, expected {expected}")
    least = 1 if name in _FROM_ONE else 0
    if wanted is int and value < least:
        raise ValueError(f"{name}: got {value}, expected {least} or more")
    return value


def _parsed(text: str, wanted: type, optional: bool) -> Any:
    """Text as a value, or the text itself where it is none of that type."""
    if optional and text.lower() == "none":
        return None
    if wanted is bool:
        return _TRUTH.get(text.lower(), text)
    try:
        return wanted(text)
    except ValueError:
        return text
