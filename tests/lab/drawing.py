"""Pictures in tests that are not about pictures: one of a kind is drawn in a process, not each."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

_DRAWN: dict[tuple[Any, ...], bytes] = {}
_savefig = Figure.savefig


def _kind(figure: Figure) -> tuple[Any, ...]:
    """Labels and sorts of marks of all axes."""
    return tuple(
        (axes.get_xlabel(), axes.get_ylabel(), frozenset(map(type, axes.get_children())))
        for axes in figure.axes
    )


def _saved(figure: Figure, target: Any, **options: Any) -> None:
    form = options.pop("format", None) or Path(target).suffix[1:]
    kind = (form, *_kind(figure))
    if kind not in _DRAWN:
        out = io.BytesIO()
        _savefig(figure, out, format=form, **options)
        _DRAWN[kind] = out.getvalue()
    if isinstance(target, io.StringIO):
        target.write(_DRAWN[kind].decode())
    else:
        Path(target).write_bytes(_DRAWN[kind])


@contextmanager
def one_picture_of_a_kind() -> Iterator[None]:
    """A picture with the labels and marks of an earlier one is written as that one was drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _saved)
        yield
