"""Gives functions of modules that are imported already the code of a changed source file."""

from __future__ import annotations

import gc
import inspect
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

Pairs = list[tuple[CodeType, CodeType]]


def differences(old: CodeType, new: CodeType) -> Pairs | None:
    """Functions of a module that differ, each with what is inside; None if anything else does.

    What stands outside of functions, such as defaults and decorators, ran at the import.
    """
    if _own(old) != _own(new):
        return None
    out: Pairs = []
    for one, other in zip(_inside(old), _inside(new), strict=True):
        if one.co_flags & inspect.CO_OPTIMIZED:
            out += [(one, other)] if one != other else []
            continue
        of_class = differences(one, other)
        if of_class is None:
            return None
        out += of_class
    return out


def _inside(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _own(code: CodeType) -> tuple[Any, ...]:
    """All but the code inside, numbers with their type: 1 is not True."""
    consts = [(type(c), None if isinstance(c, CodeType) else repr(c)) for c in code.co_consts]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_flags


class Functions:
    """Every function that files under a folder have made, by where it stands."""

    def __init__(self, folder: str) -> None:
        self.found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # where tests hide objects from the collector
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(folder):
                self.found[_place(one.__code__)].append(one)

    def change(self, file: str, old: str, new: str, imported: set[int]) -> bool:
        """Whether all that differs could be given to functions, none of which ran at the import.

        Args:
            file: As the code objects name it.
            old: Its text.
            new: The text to take instead.
            imported: Lines that ran when the modules were imported.
        """
        if old == new:
            return True
        codes = (compile(text, file, "exec", dont_inherit=True) for text in (old, new))
        pairs = differences(*codes)
        if not pairs:
            return False
        if any(not self.found[_place(one)] or _lines(one) & imported for one, _ in pairs):
            return False
        for one, other in pairs:
            for function in self.found[_place(one)]:
                function.__code__ = other.replace(co_filename=file)
        return True


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_name, code.co_firstlineno


def _lines(code: CodeType) -> set[int]:
    return {line for one in _every(code) for *_, line in one.co_lines() if line} - {
        code.co_firstlineno
    }


def _every(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in _inside(code):
        yield from _every(one)
