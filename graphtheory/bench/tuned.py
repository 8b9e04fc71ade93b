"""Options that the search chose, kept beside the code: `graphtheory tune` writes them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.bench.spaces import make_trial, space_of
from graphtheory.bench.trial import NodeTrial
from graphtheory.data.catalogue import key
from graphtheory.models.zoo import NAMES

if TYPE_CHECKING:
    from graphtheory.bench.search import Judged

FILE = Path(__file__).with_name("tuned.json")


def _read() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def tuned_trial(dataset: str, model: str, split: str | None = None) -> tuple[NodeTrial, int, int]:
    """The trial to run for a model on a data set, with its epochs and patience.

    A pair that was never searched gets default options: the same residual stack, width, dropout and
    step size for every model, so that only the layer differs. The kind of split does not matter.

    Raises:
        ValueError: An unknown model.
    """
    if model not in NAMES:
        raise ValueError(f"model: got {model!r}, expected one of {', '.join(NAMES)}")
    space = space_of(dataset)
    kept = kept_trial(dataset, model)
    if kept is not None:
        return NodeTrial.from_dict(kept), space.epochs, space.patience
    default = make_trial(
        model,
        residual=True,
        layers=2,
        hidden=64,
        heads=4,
        dropout=0.5,
        lr=0.005,
        weight_decay=5e-4,
    )
    return default, space.epochs, space.patience


def kept_trial(dataset: str, model: str) -> dict[str, Any] | None:
    """The options that a search has chosen, as plain values; None where none has."""
    kept = _read().get(key(dataset), {}).get(model)
    return None if kept is None else kept["trial"]


def is_tuned(dataset: str, model: str) -> bool:
    """Whether a search has chosen this model's options on this data set."""
    return model in _read().get(key(dataset), {})


def keep(chosen: dict[str, Judged], file: Path = FILE) -> None:
    """Write the best candidates into `file`, other entries kept."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    for model, judged in chosen.items():
        kept.setdefault(judged.dataset, {})[model] = {
            "val": judged.val,
            "parameters": judged.parameters,
            "trial": judged.trial.as_dict(),
        }
    ordered = {d: dict(sorted(kept[d].items())) for d in sorted(kept)}
    file.write_text(json.dumps(ordered, indent=1) + "\n")
