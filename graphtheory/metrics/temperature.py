"""Is k-nearest attention more than a sharper softmax? The same network at other temperatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.modes import evaluating
from graphtheory.patterns import AllSenders, ScorePattern, TopK


@dataclass(frozen=True)
class Tempered(AllSenders):
    r"""Softmax attention of the logits :math:`\langle q, k \rangle / (t \sqrt d) + b`.

    A value for `pattern` of `nn.Attention`; a bias is not divided.

    Args:
        t: Temperature above 0, dimensionless; below 1 the softmax is sharper, 1 is `AllSenders()`.

    Raises:
        ValueError: t that is not above 0.
    """

    t: float = 1.0

    def __post_init__(self) -> None:
        if not self.t > 0:
            raise ValueError(f"t: got {self.t}, expected a temperature above 0")

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, **options: Any
    ) -> Tensor:
        """Sums [num_dst, heads, head_dim]; arguments as in `ops.attention`."""
        return ops.attention(query / self.t, key, value, neighborhood, **options)

    def weights(
        self, query: Tensor, key: Tensor, neighborhood: Neighborhood, *args: Any, **options: Any
    ) -> Tensor:
        """The weights [num_edges, heads] of those sums, without dropout."""
        return super().weights(query / self.t, key, neighborhood, *args, **options)


def compare_temperatures(
    model: nn.Module,
    measure: Callable[[nn.Module], float],
    temperatures: Sequence[float] = (0.25, 0.5, 0.75, 1.0),
    patterns: Sequence[ScorePattern] = (TopK(0.5),),
) -> list[dict[str, Any]]:
    """Measure a trained network with other rules in the place of all its attention.

    The model is in evaluation mode while it is measured, without gradients; its own rules and mode
    are back afterwards. A network that was trained with k-nearest attention is compared fairly
    with one that was trained at a temperature, which `Tempered` allows, not with itself.

    Args:
        model: With `nn.Attention` layers.
        measure: Takes the model and gives a number, such as the accuracy on a validation set.
        temperatures: Of the softmax over whole rows; 1 is plain attention.
        patterns: Of k-nearest attention at temperature 1.

    Returns:
        Rows with keys rule (a `Tempered` or a `TopK`) and measured.

    Raises:
        ValueError: A model without attention that could be replaced.

    Source:
        Wang et al. (2022), k-NN attention, comparison with a temperature t < 1 in the softmax.

    Example:
        >>> from graphtheory.graph import cliques
        >>> from graphtheory.nn import Attention
        >>> layer, x, nb = Attention(4, 1), torch.randn(3, 4), cliques([3])
        >>> rows = compare_temperatures(layer, lambda m: float(m(x, nb).norm()), [0.5])
        >>> [row["rule"] for row in rows]
        [Tempered(t=0.5), TopK(k=0.5)]
    """
    layers: list[Any] = [
        m for m in model.modules() if isinstance(getattr(m, "pattern", None), ScorePattern)
    ]
    if not layers:
        raise ValueError("model: no layer has a score pattern, expected nn.Attention layers")
    own = [m.pattern for m in layers]
    rows: list[dict[str, Any]] = []
    try:
        with evaluating(model), torch.no_grad():
            for rule in (*map(Tempered, temperatures), *patterns):
                for layer in layers:
                    layer.pattern = rule
                rows.append({"rule": rule, "measured": measure(model)})
    finally:
        for layer, rule in zip(layers, own, strict=True):
            layer.pattern = rule
    return rows
