"""What follows from the declaration of a fused operation: its schema, and what takes arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from torch import Tensor

TYPES = {
    "parts": "Tensor[]", "blocks": "SymInt[]", "int": "SymInt", "float": "float", "bool": "bool",
    "str": "str",
}  # fmt: skip


@cache
def flags(digits: str) -> tuple[bool, ...]:
    """Which gradients are needed; as digits they are a constant to whatever compiles a call."""
    return tuple(digit == "1" for digit in digits)


def taker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the entries at some places, as a tuple, without a loop in Python."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places) if places else lambda entries: ()


def one_or_all(found: list[Tensor]) -> Any:
    """As torch wants what an op returns: a tensor, or several as a tuple."""
    return found[0] if len(found) == 1 else tuple(found)


def declared(
    name: str, arguments: str, outputs: int, function: Callable[..., Any]
) -> tuple[str, str, Callable[..., Any], str]:
    """What an `Operator` takes: its name, layout, function and schema."""
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    given = []
    for text in arguments.split():
        one, word = text.split(":")
        kind = TYPES.get(word.rstrip("?"), "Tensor") + "?" * word.endswith("?")
        given.append(f"{kind} {one}")
    schema = f"({', '.join(given)}) -> {results}"
    return f"graphtheory::{name}", arguments.replace("?", ""), function, schema
