"""Load state dicts of other libraries, renamed to our parameter names."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
        ours = _renamed(name, rules)
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


def _renamed(name: str, rules: Rules) -> str:
    """Our name, "" for one to ignore, and what no parameter is called where no rule matches."""
    for pattern, ours in rules:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return "no rule"


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
