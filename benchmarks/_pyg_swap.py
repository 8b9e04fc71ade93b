"""A plugin of pytest: every test has one seed; with PYG_SWAP set, layers are swapped when made.

A layer whose weights are not there yet is swapped as well; `accelerate` waits for them.
Loaders' workers that are spawned find the tests that they belong to.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import Any

import pytest
import torch

from graphtheory.integrations.pyg import _DROP_INS, _objections


def _swapping(kind: type[Any]) -> None:
    init = kind.__init__

    @wraps(init)
    def then_swap(layer: Any, *args: Any, **kwargs: Any) -> None:
        init(layer, *args, **kwargs)
        if type(layer) is kind and all(map(_only_later, _objections(layer))):
            layer.__class__ = _DROP_INS[kind]

    kind.__init__ = then_swap


def _only_later(reason: str) -> bool:
    return reason.startswith("has no weights yet")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let spawned processes, which get `sys.path`, import tests by the names they have here."""
    sys.path.append(str(session.config.rootpath))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


if "PYG_SWAP" in os.environ:
    for _kind in _DROP_INS:
        _swapping(_kind)
