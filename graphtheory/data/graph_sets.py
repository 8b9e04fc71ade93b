"""Sets of labeled graphs (TUDataset), split by class."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from torch import Generator, Tensor
from torch_geometric.data import Data, InMemoryDataset

from graphtheory.data.catalogue import DatasetInfo, describe, known_seed
from graphtheory.data.files import verify_counts
from graphtheory.data.processed import processed
from graphtheory.data.sources import read_tudataset
from graphtheory.data.splits import Split, stratified

_SLICES = "slices/"  # what tells slice bounds from tensors in the cache


class GraphSet(InMemoryDataset):
    """A PyG dataset of graphs that knows its split.

    Index it with `train_index`, `val_index` or `test_index` for the three parts.

    Args:
        stored: All graphs one after the other, and under "slices/" where each begins.
        info: What the set is.
        parts: Positions of the graphs of each part.
        split: Name of the split.
    """

    def __init__(
        self, stored: dict[str, Tensor], info: DatasetInfo, parts: Split, split: str
    ) -> None:
        super().__init__()
        self.data = Data(**{k: v for k, v in stored.items() if not k.startswith(_SLICES)})
        self.slices = {
            name.removeprefix(_SLICES): bounds
            for name, bounds in stored.items()
            if name.startswith(_SLICES)
        }
        self.name, self.split, self.metric = info.name, split, info.metric
        self.train_index, self.val_index, self.test_index = parts


def load_graphs(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    cache: str | PathLike[str] | None = None,
) -> GraphSet:
    """A set of graphs with one label each, and a split that keeps the share of each class.

    Node features are the published attributes followed by the one-hot node labels. The raw files
    have no pinned hashes, since they are in circulation in several packings: what is checked is
    that they fit together and that the known counts come out.

    Args:
        name: One of `names("graph")`; case does not matter.
        root: Folder with the raw files in PyG's layout (`describe(name).folder`).
        split: "random-80-10-10", the only one; None means the same.
        seed: Draws the split, 0 or more.
        cache: Folder for processed arrays; None for $GRAPHTHEORY_CACHE or ~/.cache/graphtheory.

    Returns:
        A PyG dataset with train_index, val_index, test_index (int64 positions), name, split,
        metric and num_classes.

    Raises:
        ValueError: Unknown name or split; the message lists the known ones.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.
        DamagedFileError: The raw files do not fit together, or the counts are not the known ones.
    """
    info = describe(name)
    if info.task != "graph":
        raise ValueError(f"name: {info.name} is one graph; load({name!r}) has it")
    chosen = info.known_split(split)
    generator = Generator().manual_seed(known_seed(seed))

    def read(private: Path) -> dict[str, Tensor]:
        dataset = read_tudataset(private, info)
        stored = {key: value for key, value in dataset._data if isinstance(value, Tensor)}
        _verify(info, dataset, stored)
        return stored | {_SLICES + key: bounds for key, bounds in dataset.slices.items()}

    stored = processed(info, root, cache, read)
    parts = stratified(stored["y"], val=0.1, test=0.1, generator=generator)
    return GraphSet(stored, info, parts, chosen)


def _verify(info: DatasetInfo, dataset: InMemoryDataset, stored: dict[str, Tensor]) -> None:
    verify_counts(
        info,
        {
            "graphs": len(stored["y"]),
            "nodes": len(stored["x"]),
            "edges": stored["edge_index"].size(1),
            "classes": dataset.num_classes,
        },
    )
    for part, bounds in dataset.slices.items():
        dim = 1 if part == "edge_index" else 0
        if int(bounds[-1]) != stored[part].size(dim):
            raise ValueError(
                f"{part} has {stored[part].size(dim)} entries, the graphs need {int(bounds[-1])}"
            )
