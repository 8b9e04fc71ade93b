"""Options that searches chose: those shipped with the package, under the user's own.

`graphtheory tune --keep` writes the user's file into the cache folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.disk import replace_file
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.spaces import DEFAULT, Space
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.files import cache_folder
from graphtheory.lab.zoo.node_models import NAMES

if TYPE_CHECKING:
    from graphtheory.lab.bench.search import SearchResult

FILE = Path(__file__).with_name("tuned.json")


def user_file() -> Path:
    """The file of the user's own options: tuned.json in $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.

    Its entries take the place of those shipped with the package.
    """
    return cache_folder() / "tuned.json"


def tuned_config(dataset: str, model: str) -> tuple[NodeRunConfig, int, int]:
    """The configuration to run for a model on a data set, with its epochs and patience.

    A pair that was never searched gets the first candidate of the space of any graph with many
    labels: the same stack, width, dropout and step size for every model, so that only the layer
    differs.

    Args:
        dataset: Its name in any case, of any kind of split.
        model: One of `zoo.NAMES`.

    Raises:
        ValueError: An unknown model, or a damaged file of the user's own options.
    """
    if model not in NAMES:
        raise ValueError(f"model: got {model!r}, expected one of {', '.join(NAMES)}")
    if (kept := kept_options(dataset, model)) is not None:
        return NodeRunConfig.from_dict(kept[0]), *kept[1:]
    return DEFAULT.candidates(model, 1)[0], DEFAULT.epochs, DEFAULT.patience


def kept_options(dataset: str, model: str) -> tuple[dict[str, Any], int, int] | None:
    """What a search has chosen, as plain values, with epochs and patience; None where none has."""
    name = key(dataset)
    for file in (user_file(), FILE):
        if (kept := _read(file).get(name, {}).get(model)) is not None:
            return kept["trial"], kept["epochs"], kept["patience"]
    return None


def is_tuned(dataset: str, model: str) -> bool:
    """Whether a search has chosen this model's options on this data set."""
    return kept_options(dataset, model) is not None


def keep(
    chosen: dict[str, SearchResult], spaces: Mapping[str, Space], file: Path | None = None
) -> None:
    """Write the best candidates into `file` and leave its other entries.

    Args:
        chosen: By model.
        spaces: By model; they say for how long the winner trains.
        file: None is `user_file()`, which `tuned_config` reads; its folder is made.

    Raises:
        ValueError: The file holds something else.
    """
    file = file or user_file()
    kept = _read(file)
    for model, found in chosen.items():
        kept.setdefault(found.dataset, {})[model] = {
            "val": found.val,
            "parameters": found.parameters,
            "epochs": spaces[model].epochs,
            "patience": spaces[model].patience,
            "trial": found.config.as_dict(),
        }
    ordered = {d: dict(sorted(kept[d].items())) for d in sorted(kept)}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(ordered, indent=1) + "\n").encode())


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{file} is not a file of tuned options ({error}); delete it") from error
