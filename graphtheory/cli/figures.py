"""The figures and tables that `graphtheory reproduce` makes again, one entry each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphtheory.cli import (
    figures_fusion,
)
from graphtheory.cli.figure import Figure

Former = Figure

if TYPE_CHECKING:
    pass

_ENTRIES = (*figures_fusion.ENTRIES,)
FIGURES: dict[str, Figure] = {entry.name: entry for entry in _ENTRIES}
