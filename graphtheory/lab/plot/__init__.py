"""Pictures: plain rows in, one matplotlib Figure out, all in one style.

A picture of rows raises ValueError where there are none, or one lacks the value that is drawn.

Example:
    >>> from graphtheory.lab.plot import score_bars, svg
    >>> rows = [{"model": "gt", "test": 0.9}, {"model": "gt", "test": 0.8}]
    >>> svg(score_bars(rows)).startswith("<?xml")
    True
"""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.plot.image import image_graph, token_assignment, token_attention
    from graphtheory.lab.plot.rows import (
        attention_mass,
        grouped_bars,
        learned_bias,
        learning_curves,
        paired_differences,
        score_bars,
        score_over_cost,
        winning_margin,
    )
    from graphtheory.lab.plot.style import save, svg

__all__ = [
    "attention_mass", "grouped_bars", "image_graph", "learned_bias", "learning_curves",
    "paired_differences", "save", "score_bars", "score_over_cost", "svg", "token_assignment",
    "token_attention", "winning_margin",
]  # fmt: skip

import_when_used(__name__)
