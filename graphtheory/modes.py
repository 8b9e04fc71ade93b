"""Models in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within, the model is in evaluation mode; after, each of its modules in the mode it had.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout().eval())
        >>> with evaluating(model):
        ...     model.training
        False
        >>> [module.training for module in model]
        [True, False]
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training
