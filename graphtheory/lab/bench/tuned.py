"""Options that the search chose, kept beside the code: `graphtheory tune` writes them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.disk import replace_file
from graphtheory.lab.bench.spaces import DEFAULT, Space
from graphtheory.lab.bench.trial import NodeTrial
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.zoo.node_models import NAMES

if TYPE_CHECKING:
    from graphtheory.lab.bench.search import Judged

FILE = Path(__file__).with_name("tuned.json")


def _read() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def tuned_trial(dataset: str, model: str) -> tuple[NodeTrial, int, int]:
    """The trial to run for a model on a data set, with its epochs and patience.

    A pair that was never searched gets the first candidate of the space of any graph with many
    labels: the same stack, width, dropout and step size for every model, so that only the layer
    differs.

    Args:
        dataset: Its name in any case, of any kind of split.
        model: One of `zoo.NAMES`.

    Raises:
        ValueError: An unknown model.
    """
    if model not in NAMES:
        raise ValueError(f"model: got {model!r}, expected one of {', '.join(NAMES)}")
    if (kept := _kept(dataset, model)) is not None:
        return NodeTrial.from_dict(kept["trial"]), kept["epochs"], kept["patience"]
    return DEFAULT.candidates(model, 1)[0], DEFAULT.epochs, DEFAULT.patience


def kept_trial(dataset: str, model: str) -> tuple[dict[str, Any], int, int] | None:
    """What a search has chosen, as plain values, with epochs and patience; None where none has."""
    kept = _kept(dataset, model)
    return None if kept is None else (kept["trial"], kept["epochs"], kept["patience"])


def _kept(dataset: str, model: str) -> dict[str, Any] | None:
    return _read().get(key(dataset), {}).get(model)


def is_tuned(dataset: str, model: str) -> bool:
    """Whether a search has chosen this model's options on this data set."""
    return _kept(dataset, model) is not None


def keep(chosen: dict[str, Judged], spaces: Mapping[str, Space], file: Path | None = None) -> None:
    """Write the best candidates into `file`, other entries kept.

    Args:
        chosen: By model.
        spaces: By model; they say for how long the winner trains.
        file: None is the one that `tuned_trial` reads.
    """
    file = file or FILE
    kept = json.loads(file.read_text()) if file.exists() else {}
    for model, judged in chosen.items():
        kept.setdefault(judged.dataset, {})[model] = {
            "val": judged.val,
            "parameters": judged.parameters,
            "epochs": spaces[model].epochs,
            "patience": spaces[model].patience,
            "trial": judged.trial.as_dict(),
        }
    ordered = {d: dict(sorted(kept[d].items())) for d in sorted(kept)}
    replace_file(file, (json.dumps(ordered, indent=1) + "\n").encode())
