"""What the search on validation may choose from; the same axes for every network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from graphtheory.bench.sampling import SAMPLERS, Sampling
from graphtheory.bench.trial import NodeTrial
from graphtheory.data.catalogue import key
from graphtheory.models.zoo import NetworkConfig
from graphtheory.train import AdamOptions

_NETWORK = frozenset(NetworkConfig.__dataclass_fields__)
_OPTIMIZER = frozenset(AdamOptions.__dataclass_fields__)
_SAMPLING = frozenset(Sampling.__dataclass_fields__)
_INPUTS = frozenset({"degree", "row_scale", "undirected"})


@dataclass(frozen=True)
class Space:
    """Options to draw from.

    Attributes:
        epochs: Upper bound.
        patience: Epochs without a better validation score.
        search_epochs: Upper bound for a candidate of the search; None is `epochs`.
        search_seeds: Splits (seeds) that a candidate is judged on, by mean validation score.
        shared: Axes of every network: option -> values.
        extra: Axes that one network has besides; a network that is not listed has none.
        make: A trial from a model and flat options; None is `make_trial`.
    """

    epochs: int
    patience: int
    search_seeds: int
    shared: dict[str, tuple[Any, ...]]
    extra: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    search_epochs: int | None = None
    make: Callable[..., Any] | None = None

    def along(self, name: str, value: Any) -> Space:
        """The same with one option of every network set to a value."""
        return replace(self, shared=self.shared | {name: (value,)})

    def candidates(self, model: str, budget: int) -> list[Any]:
        """`budget` different trials, drawn uniformly.

        Candidate i of one network shares candidate i's options with every other network, as far as
        both have them: gt and gt-plain differ in the encoding alone.
        """
        axes = self.shared | self.extra.get(model, {})
        make = self.make or make_trial
        found: dict[str, Any] = {}
        for candidate in range(50 * budget):
            if len(found) == budget:
                break
            generator = torch.Generator().manual_seed(candidate)
            draw = {
                name: values[int(torch.randint(len(values), (), generator=generator))]
                for name, values in axes.items()
            }
            found.setdefault(repr(draw), make(model, **draw))
        return list(found.values())


def make_trial(model: str, **options: Any) -> NodeTrial:
    """A trial from flat options.

    Raises:
        ValueError: An option that a trial does not have.
    """
    network = {k: v for k, v in options.items() if k in _NETWORK}
    optimizer = {k: v for k, v in options.items() if k in _OPTIMIZER}
    sampling = {k: v for k, v in options.items() if k in _SAMPLING}
    unknown = set(options) - set(network) - set(optimizer) - set(sampling) - _INPUTS
    if unknown:
        known = ", ".join(sorted(_NETWORK | _OPTIMIZER | _SAMPLING | _INPUTS))
        raise ValueError(f"options: unknown {sorted(unknown)[0]!r}, expected some of {known}")
    inputs = {k: v for k, v in options.items() if k in _INPUTS}
    return NodeTrial(
        model, NetworkConfig(**network), AdamOptions(**optimizer),
        sampling=Sampling(**sampling), **inputs,
    )  # fmt: skip


_ATTENTION: dict[str, tuple[Any, ...]] = {"heads": (1, 4), "attention_dropout": (0.0, 0.3)}
_GT = _ATTENTION | {"neighbors": ("1", "2"), "root_weight": (True, False)}


_ON_SAMPLES: dict[str, tuple[Any, ...]] = {
    "residual": (False,),
    "layers": (2, 3),
    "hidden": (64, 128),
    "dropout": (0.0, 0.2, 0.5),
    "sampler": SAMPLERS,
    "share": (0.1, 0.3),
}
"""Of sampled-gcn; its own stack has no residual connections, and takes less dropout."""


def _space(
    epochs: int, patience: int, search_seeds: int, shared: dict[str, tuple[Any, ...]],
    gt: dict[str, tuple[Any, ...]] | None = None, others: dict[str, tuple[Any, ...]] | None = None,
    search_epochs: int | None = None,
) -> Space:  # fmt: skip
    """Axes of the transformers and of the others besides, in place of the shared ones.

    gat-res and gcn-res are residual, unless `others` says that the root term is all they have.
    """
    gt, others = _GT | (gt or {}), others or {}
    no, yes = others | {"residual": (False,)}, {"residual": (True,)} | others
    extra = {
        "gt": gt | {"bias_lr": (None, 0.05)},
        "gt-plain": gt,
        "gcn": no,
        "gcn-res": yes,
        "gat": _ATTENTION | no,
        "gat-res": _ATTENTION | yes,
        "mlp": others,
        "sampled-gcn": _ON_SAMPLES,
    }
    return Space(epochs, patience, search_seeds, shared, extra, search_epochs)


_CLASSIC: dict[str, tuple[Any, ...]] = {
    "residual": (False,),
    "layers": (2,),
    "hidden": (64, 128),
    "dropout": (0.6, 0.8),
    "lr": (0.01,),
    "weight_decay": (5e-4, 1e-3, 2e-3),
}
_RESIDUAL: dict[str, tuple[Any, ...]] = {
    "residual": (True, False),
    "layers": (1, 2),
    "hidden": (64,),
    "dropout": (0.5, 0.7),
    "lr": (0.003, 0.01),
    "weight_decay": (5e-4, 5e-3),
}
_ROWS: dict[str, tuple[Any, ...]] = {"row_scale": (True, False)}
_WIDER: dict[str, tuple[Any, ...]] = {
    "weight_decay": (5e-4, 5e-3, 1e-2, 2e-2),
    "activation": (None, "relu"),
    "input_dropout": (None, 0.0),
}
"""What baselines may choose from besides, where they fell short of their known scores."""
_WEBKB = _space(300, 100, 10, _RESIDUAL | _ROWS | {"hidden": (64, 128)}, others=_WIDER)
_DEEP: dict[str, tuple[Any, ...]] = {
    "residual": (False,),
    "batch_norm": (True,),
    "activation": ("relu",),
    "input_dropout": (0.0,),
    "hidden": (64,),
    "dropout": (0.2,),
    "weight_decay": (0.0,),
}

SPACES: dict[str, Space] = {
    "digits": _space(60, 20, 1, _CLASSIC | {"dropout": (0.5,)}, {"root_weight": (True,)}),
    "core-distance": _space(
        100,
        40,
        1,
        _RESIDUAL
        | {
            "hidden": (32, 128),
            "ffn": (False, True),
            "dropout": (0.0, 0.1),
            "lr": (0.005, 0.01),
            "weight_decay": (0.0, 5e-4),
        },
        {"attention_dropout": (0.0,), "root_weight": (True,)},
        {"attention_dropout": (0.0,), "layers": (2, 3, 4, 6), "residual": (True, False)},
    ),
    "cora": _space(
        200,
        60,
        5,
        _CLASSIC,
        {"root_weight": (False,), "hidden": (32, 64)},
        {
            "hidden": (32, 64, 128, 256),
            "dropout": (0.6, 0.8, 0.9),
            "weight_decay": (5e-4, 1e-3, 2e-3, 5e-3),
        },
    ),
    "actor": _space(
        150,
        40,
        3,
        _RESIDUAL | _ROWS | {"hidden": (64, 128)},
        {"root_weight": (True,)},
        _WIDER | {"weight_decay": (5e-4, 5e-3, 1e-2)},
    ),
    "facebook": _space(
        400,
        30,
        1,
        _RESIDUAL | {"dropout": (0.3, 0.5), "weight_decay": (0.0, 5e-4)},
        {"neighbors": ("1",)},
        {"weight_decay": (0.0, 5e-4), "layers": (2,), "lr": (0.01,)},
        search_epochs=120,
    ),
    "minesweeper": _space(
        600,
        250,
        1,
        _DEEP | {"layers": (8, 10), "lr": (0.005, 0.01)},
        {"attention_dropout": (0.0,), "root_weight": (True,)},
        {"attention_dropout": (0.0,), "residual": (False,)},
        search_epochs=250,
    ),
    "tolokers": _space(
        300,
        100,
        1,
        _DEEP | {"layers": (3, 4), "lr": (0.003, 0.01), "degree": (True,), "dropout": (0.2, 0.5)},
        {"attention_dropout": (0.0,), "root_weight": (True,), "neighbors": ("1",)},
        {"attention_dropout": (0.0,), "residual": (False,)},
        search_epochs=120,
    ),
    "cornell": _WEBKB,
    "wisconsin": _WEBKB,
    "chameleon-filtered": _space(
        200, 60, 5, _RESIDUAL | {"row_scale": (False,), "degree": (True, False)}
    ),
}
DEFAULT = _space(200, 50, 1, _RESIDUAL)
"""Space of any other graph."""


def space_of(dataset: str) -> Space:
    """The space of a data set, by its name in any case."""
    return SPACES.get(key(dataset), DEFAULT)
