"""Bad input: every call with one bad argument is refused, in a sentence that helps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from battery.bad_calls import CALLS, NEEDED
from battery.line import Line, timed

_EXPECTED = re.compile(  # each of them says it
    r"expected|known:|none of|one of|has .*; got|give the|is not a|there is",
    re.IGNORECASE,
)


def complaint(call: Callable[..., Any], arguments: dict[str, Any], kind: Any, name: str) -> str:
    """What is wrong with how a call is refused; "" if nothing.

    Args:
        call: Is called.
        arguments: By name, one of them bad.
        kind: Class, or classes, of the exception that has to come.
        name: Of the bad argument, and after a slash the one that the message has.
    """
    key, _, told = name.partition("/")
    try:
        call(**arguments)
    except kind as error:
        return _missing(str(error), told or key, arguments[key])
    except BaseException as error:  # of a wrong class
        return f"{type(error).__name__}: {error}"[:200]
    return "is taken"


def _missing(message: str, name: str, value: Any) -> str:
    if name not in message:
        return f"does not name {name}: {message[:200]}"
    if not _EXPECTED.search(message):
        return f"does not say what was expected: {message[:200]}"
    if not any(piece in message for piece in _pieces(value)):
        return f"does not say what was given: {message[:200]}"
    return ""


def _pieces(value: Any) -> list[str]:
    """Any of these tells what was given."""
    if isinstance(value, torch.Tensor):
        least = [str(t.item()) for t in (value.min(), value.max())] if value.numel() else ["0"]
        kind = str(value.dtype).removeprefix("torch.")
        entries = [str(tuple(value.shape)), str([*value.shape]), f"{len(value)} ", *least]
        return ["Tensor", kind, *entries]
    inner = [str(key) for key in value] if isinstance(value, (dict, tuple, list)) else []
    for field in vars(value).values() if hasattr(value, "__dict__") else ():
        inner += [str(field), type(field).__name__]
        inner += [str(key) for key in field] if isinstance(field, dict) else []
    nothing = ["none"] if isinstance(value, (dict, tuple, list)) and not value else []
    return [type(value).__name__, "Tensor", *nothing, *inner, str(value).partition("=")[0]]


def bad_input(share: float, seed: int) -> list[Line]:
    """The whole catalogue; the share does not matter."""
    line = Line(
        "bad input", "a call with one bad argument ends in the right exception, whose message has "
        "the argument's name, what was expected and what was given",
        "the same calls with the right argument in its place, which have to pass",
    )  # fmt: skip
    here = [one for one in CALLS if one[0] not in NEEDED or find_spec(NEEDED[one[0]])]
    with timed(line), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, good, bad in here:
            for kind, name, value in bad:
                key, where = name.partition("/")[0], getattr(call, "__qualname__", str(call))
                line.trials += 1
                if said := complaint(call, good | {key: value}, kind, name):
                    line.broken.append(f"{where}, {name} = {str(value)[:40]!r}: {said}")
            line.planted += 1
            line.caught += complaint(call, good, (), next(iter(good))) == "is taken"
    line.figures = {"calls": len(here), "unhelpful": len(line.broken)}
    if len(here) < len(CALLS):
        line.figures["calls of packages that are missing"] = len(CALLS) - len(here)
    return [line]
