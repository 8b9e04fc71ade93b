"""Pictures: plain rows in, one matplotlib Figure out, all in one style.

Example:
    >>> from graphtheory.lab.plot import score_bars, svg
    >>> rows = [{"model": "gt", "test": 0.9}, {"model": "gt", "test": 0.8}]
    >>> svg(score_bars(rows)).startswith("<?xml")
    True
"""

from typing import TYPE_CHECKING

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.lab.plot.attention import attention_mass, learned_bias
    from graphtheory.lab.plot.cost import score_over_cost
    from graphtheory.lab.plot.image import image_graph
    from graphtheory.lab.plot.scores import (
        paired_differences,
        score_bars,
    )
    from graphtheory.lab.plot.structure import grouped_bars, winning_margin
    from graphtheory.lab.plot.style import save, svg
    from graphtheory.lab.plot.tokens import token_assignment, token_attention
    from graphtheory.lab.plot.training import learning_curves

__all__ = [
    "attention_mass",
    "grouped_bars",
    "image_graph",
    "learned_bias",
    "learning_curves",
    "paired_differences",
    "save",
    "score_bars",
    "score_over_cost",
    "svg",
    "token_assignment",
    "token_attention",
    "winning_margin",
]

import_when_used(__name__)
