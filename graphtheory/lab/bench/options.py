"""Options set by hand: read from words, put in place of the chosen ones, and described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import Any, get_args, get_type_hints

from graphtheory.lab.zoo import graph_models as graph_zoo

Options = dict[str, Any]
"""Values by name of the option."""

# Fields of a configuration that are set otherwise.
_FIXED = ("model", "epochs", "dataset", "root", "graph", "encoder", "head", "image_size")
_READERS_OF_VALUE = {("readout", "token"): graph_zoo.ATTENDING}
_FROM_ONE = (
    "hidden", "layers", "heads", "num_buckets", "nodes_per_batch", "batch_size", "fanout", "width",
    "depth", "patch", "tokens",
)  # fmt: skip
_TRUTH = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def read_options(words: Iterable[str]) -> dict[str, str]:
    """Read words such as "walk=16" as names and values.

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


def known_options(config: Any) -> dict[str, Any]:
    """Every option of a configuration by name, with its type."""
    hints, found = get_type_hints(type(config)), dict[str, Any]()
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            found |= known_options(value)
        elif field.name not in _FIXED:
            found[field.name] = hints[field.name]
    return found


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError, with the list of all options, for a name that is not known."""
    if unknown := sorted(set(names) - set(known)):
        listed = ", ".join(sorted(known))
        raise ValueError(f"options: unknown {unknown[0]!r}, expected some of {listed}")


def checked_options(configs: Sequence[Any], given: Mapping[str, Any]) -> Options:
    """Convert the given values to the types that these configurations have.

    Args:
        configs: Those of the compared models.
        given: Values by name; text such as "16", "true" or "none" is read as the type of the
            option.

    Raises:
        ValueError: A name that none of them has, or a value of another type.
    """
    known = {name: kind for config in configs for name, kind in known_options(config).items()}
    check_known(given, known)
    return {name: _value(name, value, known[name]) for name, value in given.items()}


def with_options(config: Any, options: Options) -> Any:
    """Put these values in place of a configuration's own, except those that its model ignores.

    Raises:
        ValueError: A value that the optimizer does not take, or one that has no effect beside the
            other options.
    """
    read = {name: value for name, value in options.items() if not ignores(config, name, value)}
    changed = replaced(config, read)
    if check := getattr(changed, "check_options", None):
        check(read)
    return changed


def replaced(part: Any, read: Options) -> Any:
    """Put these values into a dataclass and into the dataclasses that it holds."""
    changes = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if is_dataclass(value):
            changes[field.name] = replaced(value, read)
        elif field.name in read:
            changes[field.name] = read[field.name]
    return replace(part, **changes)


def ignores(config: Any, name: str, value: Any = None) -> bool:
    """Whether a configuration's model does not read an option, or does not have that value."""
    readers = getattr(config, "readers", {}).get(name) or _READERS_OF_VALUE.get((name, value))
    return name not in known_options(config) or (
        readers is not None and config.model not in readers
    )


def describe_options(options: Options, configs: Sequence[Any] = ()) -> str:
    """Describe options in words, and which models of the configurations ignore some.

    Example:
        >>> from graphtheory.lab.bench.graph_config import GraphRunConfig
        >>> both = [GraphRunConfig("gt"), GraphRunConfig("gcn")]
        >>> describe_options({"walk": 16, "paths": 5}, both)
        'walk=16, paths=5 (gcn ignores paths)'
    """
    pairs = {name: f"{name}={shown(value)}" for name, value in options.items()}
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        if models := [config.model for config in configs if ignores(config, name, value)]:
            who = f"{', '.join(models)} {'ignore' if len(models) > 1 else 'ignores'}"
            one = pairs[name] if (name, value) in _READERS_OF_VALUE else name
            groups.setdefault(who, []).append(one)
    ignored = "; ".join(f"{who} {', '.join(names)}" for who, names in groups.items())
    return ", ".join(pairs.values()) + (f" ({ignored})" if ignored else "")


def shown(value: Any) -> str:
    """Write a value as it is typed."""
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
