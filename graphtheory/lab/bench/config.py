"""A run's configuration: one model with all its options, and what a run of it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

import torch
from torch import Tensor

from graphtheory.lab.bench.options import check_known, known_options, replaced
from graphtheory.lab.train import FitResult

C = TypeVar("C", bound="RunConfig")


@dataclass(frozen=True)
class RunConfig:
    """One model with every option that is chosen on validation; subclasses add the options.

    Attributes:
        model: Name of the network.
        readers: Options that some networks ignore -> the networks that read them.
    """

    model: str
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @classmethod
    def of(cls: type[C], model: str, **options: Any) -> C:
        """The configuration of a model from flat options; the others have their defaults.

        Raises:
            ValueError: An option that the configuration does not have.
        """
        config = cls(model)
        check_known(options, known_options(config))
        return replaced(config, options)

    def as_dict(self) -> dict[str, Any]:
        """The configuration as plain values, for a log."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], values: Mapping[str, Any]) -> C:
        """The inverse of `as_dict`; options that are not named have their defaults."""
        return _from_plain(cls, values)

    def check_options(self, given: Mapping[str, Any]) -> None:
        """Raise ValueError if one of the given options has no effect beside the others."""


def _from_plain(kind: Any, values: Any) -> Any:
    if not is_dataclass(kind):
        return values
    hints = get_type_hints(kind)
    return kind(**{name: _from_plain(hints[name], value) for name, value in values.items()})  # type: ignore[operator]


@dataclass(frozen=True)
class RunResult:
    """A trained network, its data and its scores.

    Attributes:
        fit: How well it did.
        model: The trained network.
        batches: Its data.
        parameters: Number of trainable parameters.
        constant: Test score of the best constant prediction, chosen on the training labels; None
            where there are no test labels.
    """

    fit: FitResult
    model: Any
    batches: Any
    parameters: int
    constant: float | None = None

    @property
    def test(self) -> float | None:
        """The test score at the epoch of best validation; None where there is no test part."""
        return self.fit.test


def trainable(model: torch.nn.Module) -> int:
    """Count the trainable parameters of a model."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def constant_score(
    score: Callable[[Tensor, Tensor], float], kind: str, train: Tensor, test: Tensor, outputs: int
) -> float | None:
    """Score of the best constant prediction: the commonest class, or the mean or median of a value.

    None where the scored labels have no such score, as the ROC AUC of one class.

    Args:
        score: (predictions, y) -> score.
        kind: "multiclass", "multilabel" or "regression".
        train: Labels that choose the constant.
        test: Labels that are scored; a class of -1 is none and is left out.
        outputs: Classes, labels or values.
    """
    if kind == "multiclass":
        test, constant = test[test >= 0], torch.zeros(outputs)
        constant[train[train >= 0].bincount(minlength=outputs).argmax()] = 1.0
    elif kind == "multilabel":
        constant = torch.zeros(outputs)
    else:  # the mean is best by squares, the median by absolute errors
        found = (train.nanmean(0), train.nanmedian(0).values)
        return min(score(constant.expand(len(test), -1), test) for constant in found)
    try:
        return score(constant.expand(len(test), -1), test)
    except ValueError:
        return None
