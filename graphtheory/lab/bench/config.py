"""A run's configuration, options of it that are set by hand, and how long a search may be."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

C = TypeVar("C", bound="RunConfig")
AXES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("spaces.json").read_text())
"""By kind of data: axes of search, default options, recipes, and which networks read an option."""
Axes = Mapping[str, Mapping[Any, Mapping[str, Any]]]
"""What a search chooses: axis -> choice -> the options that this choice stands for."""


def readers_of(kind: str) -> dict[str, list[str]]:
    """Options of a kind of data that some networks ignore -> the networks that read them."""
    groups = AXES["readers"][kind].items()
    return {option: models.split() for models, options in groups for option in options}


@dataclass(frozen=True)
class RunConfig:
    """One model with every option that is chosen on validation; subclasses add the options."""

    model: str
    readers: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Options that some networks ignore -> the networks that read them."""

    @classmethod
    def of(cls: type[C], model: str, **options: Any) -> C:
        """The configuration of a model from flat options; the others have their defaults."""
        config = cls(model)
        check_known(options, known_options(config))
        return replaced(config, options)

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain values, for a log."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """The inverse of `as_dict`; options that are not named have their defaults."""
        plain = cls(values["model"])
        parts = {
            name: replace(part, **values[name])
            for name, part in vars(plain).items()
            if is_dataclass(part) and not isinstance(part, type) and name in values
        }
        return replace(plain, **{**values, **parts})


# Fields of a configuration that are set otherwise.
_FIXED = ("model", "epochs", "dataset", "root", "graph", "encoder", "head", "image_size")
_FROM_ONE = (
    "hidden", "layers", "heads", "num_buckets", "nodes_per_batch", "batch_size", "fanout", "width",
    "depth", "patch", "tokens", "head_layers", "walk_width",
)  # fmt: skip
_TOKEN = ("readout", "token")  # a value that networks with attention alone can have
_TRUTH = {"true": True, "false": False}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def read_options(words: Iterable[str]) -> dict[str, str]:
    """Read words such as "walk=16" as names and values; a name may not come twice."""
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


def checked_options(configs: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values, text among them, as the types that one of these configurations has."""
    known = {name: kind for config in configs for name, kind in known_options(config).items()}
    check_known(given, known)
    return {name: checked_value(name, value, known[name]) for name, value in given.items()}


def with_options(config: Any, options: Mapping[str, Any]) -> Any:
    """Put these values in place of a configuration's own, except those that its model ignores."""
    read = {name: value for name, value in options.items() if not ignores(config, name, value)}
    changed = replaced(config, read)
    if check := getattr(changed, "check_options", None):
        check(read)
    return changed


def replaced(part: Any, read: Mapping[str, Any]) -> Any:
    """Put these values into a dataclass and into the dataclasses that it holds."""
    values = ((field.name, getattr(part, field.name)) for field in fields(part))
    return replace(
        part, **{n: replaced(v, read) if is_dataclass(v) else read.get(n, v) for n, v in values}
    )


def ignores(config: Any, name: str, value: Any = None) -> bool:
    """Whether a configuration's model does not read an option, or does not have that value."""
    from graphtheory.lab.zoo.graph_models import ATTENDING  # images do without these networks

    attending = ATTENDING if (name, value) == _TOKEN else None
    readers = getattr(config, "readers", {}).get(name, attending)
    return name not in known_options(config) or bool(readers and config.model not in readers)


def axes_of(kind: str, config: RunConfig) -> Axes:
    """The axes of a kind of data whose options a configuration's model reads."""
    found = {}
    for name, choices in AXES[kind].items():
        axis = choices if isinstance(choices, dict) else {value: {name: value} for value in choices}
        options = {option for choice in axis.values() for option in choice}
        fixed = config.model in AXES["not searched"].get(name, ())
        if not fixed and not all(ignores(config, option) for option in options):
            found[name] = axis
    return found


def describe_options(options: Mapping[str, Any], configs: Sequence[Any] = ()) -> str:
    """Describe options as "walk=16, paths=5 (gcn ignores paths)"."""
    pairs = {name: f"{name}={shown(value)}" for name, value in options.items()}
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        if models := [config.model for config in configs if ignores(config, name, value)]:
            who = f"{', '.join(models)} {'ignore' if len(models) > 1 else 'ignores'}"
            one = pairs[name] if (name, value) == _TOKEN else name
            groups.setdefault(who, []).append(one)
    ignored = "; ".join(f"{who} {', '.join(names)}" for who, names in groups.items())
    return ", ".join(pairs.values()) + (f" ({ignored})" if ignored else "")


def shown(value: Any) -> str:
    """Write a value as it is typed."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def checked_value(name: str, given: Any, kind: Any) -> Any:
    """The value of an option, text among them, as the type that it has."""
    optional, wanted, value = NoneType in get_args(kind), (get_args(kind) or (kind,))[0], given
    if optional and str(given).lower() == "none":
        return None
    if isinstance(given, str):
        with suppress(KeyError, ValueError):
            value = _TRUTH[given.lower()] if wanted is bool else wanted(given)
    if wanted in (float, str) and type(value) is int:
        value = wanted(value)
    if type(value) is not wanted:
        expected = _KINDS[wanted] + (", or none" if optional else "")
        raise ValueError(f"{name}: got {given!r}, expected {expected}")
    least = 1 if name in _FROM_ONE else 0
    if wanted is int and value < least:
        raise ValueError(f"{name}: got {value}, expected {least} or more")
    return value


_UNITS = {"s": 1, "m": 60, "h": 3600}  # seconds


@dataclass(frozen=True)
class Budget:
    """The same number of candidates for each model, or the same share of the time."""

    written: str  # as its user wrote it
    candidates: int | None = None  # for each model
    seconds: float | None = None  # for the whole search

    @classmethod
    def of(cls, given: object, least: int = 1) -> "Budget":
        """Read a number of candidates, at least `least`, or a length of time such as "30m".

        Raises:
            TypeError: If it is neither a whole number nor text.
            ValueError: If the text is no such length, or the number is too small.
        """
        if not isinstance(given, Integral | str):
            raise TypeError(f"budget: got {given!r}, expected a whole number or text such as '30m'")
        text = str(given)
        number = re.fullmatch(r"(\d+)|(\d+\.?\d*)([smh])", text)
        if number and number[1] and int(text) >= least:
            return cls(text, candidates=int(text))
        if number and number[3] and float(number[2]):
            return cls(text, seconds=float(number[2]) * _UNITS[number[3]])
        first = " (the first are the defaults)" if least > 1 else ""
        raise ValueError(
            f"budget: got {text}, expected {least} or more candidates{first}, or a length of time "
            "such as 90s, 30m or 2h"
        )

    def __str__(self) -> str:
        """What the best is the best of, such as "16" and "a search of 30m"."""
        return self.written if self.seconds is None else f"a search of {self.written}"
