"""The data sets by name: where their raw files lie, which splits they have, how they are scored.

The table is `catalogue.json`, one entry for each set; what the sets of a family share stands there
under "families", with {name}, {lower}, {upper} and {stem} ("_" for "-") for the name of the set
and {archive} for a word of its entry.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

Kind = Literal["multiclass", "multilabel", "regression"]
Root = str | PathLike[str] | None  # a folder


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before any of its files is opened."""

    name: str  #: The name to load it by.
    family: str  #: The reader it needs; "embedded" needs no file.
    folder: str = ""  #: Folder of the raw files below `root`.
    files: tuple[str, ...] = ()  #: Raw files that must lie in `folder`.
    optional_files: tuple[str, ...] = ()  #: Raw files that are read where present.
    splits: tuple[str, ...] = ("random-60-20-20",)  #: The first is the default.
    #: "accuracy", or "rocauc" for two unbalanced classes; of sets of graphs also "ap", "mae",
    #: "rmse" and "f1", the mean over the classes.
    metric: str = "accuracy"
    #: "node", "graph", "pairs" or "image": one graph, a set of graphs, pairs of graphs to tell
    #: apart (`papers.core_neighborhood.expressiveness`), or images.
    task: str = "node"
    source: str = ""  #: Where the raw files come from.
    citation: str = ""  #: Who published it.
    fetched_by: str = ""  #: The class of PyG or ogb that downloads the raw files, "" for none.
    license: str = "license not stated"  #: Of the raw files, as far as their source says.
    #: Numbers that hold after loading, such as ("nodes", 2708); "edges" counts stored directions.
    counts: tuple[tuple[str, int], ...] = ()
    #: Labels of "multilabel" are true, false or missing, values of "regression" may be missing.
    kind: Kind = "multiclass"
    level: Literal["graph", "node"] = "graph"  #: What carries a label in a set of graphs.
    #: Whether networks are by custom trained on both directions of its directed edges.
    both_ways: bool = False
    features: str = ""  #: Of sets of graphs: what `x` and `edge_attr` are.
    aliases: tuple[str, ...] = ()  #: Other names of it.
    #: Size and SHA-256 of raw files, each checked before its file is read.
    sha256: Mapping[str, tuple[int, str]] = field(default_factory=dict, hash=False)
    #: Git's own hash of a file whose SHA-256 was not taken of the file itself.
    git_blob: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: MD5 of published pickles whose SHA-256 is not known.
    md5: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def embedded(self) -> bool:
        """Whether it comes with the installed packages."""
        return self.family == "embedded"

    @property
    def how(self) -> str:
        """How to get the raw files, in a line with size and license."""
        if not self.fetched_by:
            return f"by hand from {self.source}"
        known = [size for size, _ in self.sha256.values()]
        size = f"{sum(known) / 1e6:.1f} MB" if len(known) == len(self.files) else "size not known"
        return f"by --download ({size}, {self.license}), or by hand from {self.source}"

    @property
    def default_split(self) -> str:
        """The split that is taken when none is asked for."""
        return self.splits[0]

    def known_split(self, split: str | None) -> str:
        """The split of that name, the default for None; ValueError where the set has none such."""
        if split is not None and split not in self.splits:
            raise ValueError(f"split: {self.name} has {', '.join(self.splits)}; got {split!r}")
        return split or self.default_split


def key(name: str) -> str:
    """What names of one data set have in common: case and "_" against "-" make no difference."""
    return name.lower().replace("_", "-")


_TABLE: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _info(entry: Mapping[str, Any]) -> DatasetInfo:
    """An entry of the table, completed by what its family shares."""
    name, text = entry["name"], json.dumps(_TABLE["families"].get(entry["family"], {}))
    words = {"name": name, "lower": name.lower(), "upper": name.upper()}
    words |= {"stem": name.replace("-", "_"), "archive": entry.get("archive", "")}
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    known = json.loads(text) | dict(entry)
    known.pop("archive", None)
    known["counts"] = list(known.get("counts", {}).items())
    for part, value in known.items():
        known[part] = tuple(value) if isinstance(value, list) else value
    return DatasetInfo(**known)


_ALL = [_info(entry) for entry in _TABLE["sets"]]
_IMAGES = {key(info.name): info for info in _ALL if info.task == "image"}
_GRAPHS = {key(info.name): info for info in _ALL if info.task != "image"}
EVERY = _GRAPHS | _IMAGES  # by `key`
_ALIASES = {key(alias): key(info.name) for info in _ALL for alias in info.aliases}


def names(task: str | None = None) -> list[str]:
    """Names of all data sets of a task, of all but images without one, the embedded ones first.

    Example:
        >>> names()[:3]
        ['digits', 'karate', 'core-neighborhood']
    """
    known = _IMAGES if task == "image" else _GRAPHS
    return [info.name for info in known.values() if task in (None, info.task)]


def describe(name: str, root: Root = None, *, task: str | None = None) -> DatasetInfo:
    """What is known about a data set, without opening its files.

    Args:
        name: One of `names()`, or the name of a folder TUDataset/<name>/raw below `root`; case and
            "_" against "-" make no difference.
        root: Folder with the raw files, to find TUDatasets that `names()` does not list.
        task: "image" for an image set; "digits" is also the name of a graph of the same images.

    Example:
        >>> describe("cora").default_split
        'public'
        >>> describe("MNIST", task="image").folder
        'MNIST/raw'
    """
    known = _IMAGES if task == "image" else _GRAPHS
    wanted = key(name) if task == "image" else _ALIASES.get(key(name), key(name))
    unknown = wanted not in known and root is not None and task != "image"
    for folder in sorted(Path(root or "", "TUDataset").glob("*/raw")) if unknown else ():
        if key(there := folder.parent.name) == wanted:
            entry: dict[str, Any] = {"name": there, "family": "tudataset"}
            real = f"{there}_graph_attributes.txt"
            if not (folder / f"{there}_graph_labels.txt").is_file() and (folder / real).is_file():
                files = [f"{there}_A.txt", f"{there}_graph_indicator.txt", real]
                entry |= {"files": files, "splits": ["random-80-10-10"]}
                entry |= {"kind": "regression", "metric": "mae"}
            return _info(entry)
    return lookup(wanted if wanted in known else name, known)


def lookup(name: str, known: Mapping[str, DatasetInfo]) -> DatasetInfo:
    """The entry of that name by `key`; ValueError with the nearest name, else with all names."""
    if key(name) in known:
        return known[key(name)]
    near = difflib.get_close_matches(key(name), known, n=1)
    if near:
        hint = f"a name that `graphtheory datasets` lists; did you mean {known[near[0]].name!r}?"
    else:
        hint = f"one of {', '.join(info.name for info in known.values())}"
    raise ValueError(f"name: unknown data set {name!r}, expected {hint}")


def known_seed(seed: int) -> int:
    """The seed itself; ValueError where it is no whole number or negative."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: got {seed!r}, expected a whole number, 0 or more, below 2^63")
    return seed
