"""The data sets by name: where their raw files lie, which splits they have, how they are scored."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from graphtheory.lab.datasets.dataset_info import DatasetInfo
from graphtheory.lab.datasets.graph_catalogue import GRAPH_SETS, tudataset_below
from graphtheory.lab.datasets.node_catalogue import NODE_SETS

__all__ = ["DatasetInfo", "describe", "key", "known_seed", "lookup", "names"]

_ALL = NODE_SETS + GRAPH_SETS


def key(name: str) -> str:
    """What names of one data set have in common: case and "_" against "-" make no difference."""
    return name.lower().replace("_", "-")


_BY_KEY = {key(info.name): info for info in _ALL}
_ALIASES = {key(alias): key(info.name) for info in _ALL for alias in info.aliases}


def names(task: str | None = None) -> list[str]:
    """Names of all data sets, the embedded ones first.

    Args:
        task: "node", "graph" or "pairs" for single graphs, sets of graphs or pairs of graphs to
            tell apart; None for all.

    Example:
        >>> names()[:3]
        ['digits', 'karate', 'core-neighborhood']
    """
    return [info.name for info in _ALL if task in (None, info.task)]


def describe(name: str, root: str | PathLike[str] | None = None) -> DatasetInfo:
    """What is known about a data set, without opening its files.

    Args:
        name: One of `names()`, or the name of a folder TUDataset/<name>/raw below `root`; case and
            "_" against "-" make no difference.
        root: Folder with the raw files, to find TUDatasets that `names()` does not list.

    Raises:
        ValueError: Unknown name; the message holds the nearest match, else the known names.

    Example:
        >>> describe("cora").default_split
        'public'
    """
    wanted = _ALIASES.get(key(name), key(name))
    if wanted not in _BY_KEY and root is not None:
        found = tudataset_below(Path(root), wanted)
        if found is not None:
            return found
    return lookup(wanted if wanted in _BY_KEY else name, _BY_KEY)


def lookup(name: str, known: Mapping[str, DatasetInfo]) -> DatasetInfo:
    """The entry of that name in a catalogue by `key`.

    Raises:
        ValueError: Unknown name; the message holds the nearest match, else the known names.
    """
    if key(name) in known:
        return known[key(name)]
    near = difflib.get_close_matches(key(name), known, n=1)
    if near:
        hint = f"a name that `graphtheory datasets` lists; did you mean {known[near[0]].name!r}?"
    else:
        hint = f"one of {', '.join(info.name for info in known.values())}"
    raise ValueError(f"name: unknown data set {name!r}, expected {hint}")


def known_seed(seed: int) -> int:
    """The seed itself.

    Raises:
        ValueError: Not a whole number, or negative.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: got {seed!r}, expected a whole number, 0 or more, below 2^63")
    return seed
