"""What the search may choose from on a set of graphs: one space for all sets, by their size."""

from __future__ import annotations

import math
from typing import Any

from graphtheory.lab.bench.graph_trial import GraphTrial
from graphtheory.lab.bench.spaces import Space
from graphtheory.lab.train import AdamOptions
from graphtheory.lab.zoo.graph_models import GraphConfig

_NETWORK = frozenset(GraphConfig.__dataclass_fields__)
_OPTIMIZER = frozenset(AdamOptions.__dataclass_fields__)
_INPUTS = frozenset({"nodes_per_batch"})
_SMALL = 30_000  # training nodes of a set that is trained for all epochs
_MOST, _LEAST = 100, 30  # epochs
_FEW = 2000  # training graphs of a set on which one seed decides too little

SHARED: dict[str, tuple[Any, ...]] = {
    "hidden": (64, 128),
    "layers": (3, 4),
    "dropout": (0.1, 0.3, 0.5),
    "lr": (1e-3, 2e-3),
    "weight_decay": (0.0, 1e-2),
    "decoupled": (True,),
    "average": (0.98,),
    "norm": ("batch", "layer"),
    "readout": ("mean", "sum"),
    "virtual_node": (False, True),
    "walk": (0, 16),
    "nodes_per_batch": (1024, 2048),
}
_ATTENTION: dict[str, tuple[Any, ...]] = {"heads": (4, 8), "attention_dropout": (0.0, 0.2)}
_PLAIN = _ATTENTION | {"neighbors": ("all", "3"), "local": ("gine", None)}
EXTRA: dict[str, dict[str, tuple[Any, ...]]] = {
    "gt": _PLAIN | {"num_buckets": (10, 20), "value_encoding": (False, True)},
    "gt-plain": _PLAIN,
    "gatv2": _ATTENTION,
    "mlp": {"walk": (0,), "virtual_node": (False,)},
}


def make_graph_trial(model: str, **options: Any) -> GraphTrial:
    """A trial from flat options.

    Raises:
        ValueError: An option that neither the network, the optimizer nor the trial has.
    """
    known = _NETWORK | _OPTIMIZER | _INPUTS
    if unknown := sorted(set(options) - known):
        listed = ", ".join(sorted(known))
        raise ValueError(f"options: unknown {unknown[0]!r}, expected some of {listed}")
    network, optimizer, inputs = (
        {name: value for name, value in options.items() if name in names}
        for names in (_NETWORK, _OPTIMIZER, _INPUTS)
    )
    return GraphTrial(model, GraphConfig(**network), AdamOptions(**optimizer), **inputs)


def graph_space(graphs: int, nodes: int) -> Space:
    """The space of a set by its training part; a larger set is passed over less often.

    Args:
        graphs: Training graphs.
        nodes: Their nodes.
    """
    epochs = round(min(_MOST, max(_LEAST, _MOST * math.sqrt(_SMALL / nodes))))
    return Space(
        epochs,
        patience=max(10, epochs // 3),
        search_seeds=2 if graphs < _FEW else 1,
        shared=SHARED,
        extra=EXTRA,
        first={},
        search_epochs=max(_LEAST, epochs // 2),
        make=make_graph_trial,
    )
