"""Sets of labeled graphs in memory: PyG data sets that know their task and their split.

They are stored as one array per attribute, all graphs one after the other, with the bounds of each
graph under "slices/" and facts that are no tensors, `notes`, as JSON in a tensor of bytes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.data.collate import collate
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE, Compose
from torch_geometric.utils import is_undirected

from graphtheory.data.transforms import AddDistances, AddPaths, AddResistance
from graphtheory.lab.datasets.catalogue import Kind
from graphtheory.lab.datasets.splits import Split

SLICES = "slices/"  # what tells the bounds of graphs from their tensors
_NOTES = "notes"
Stored = dict[str, Tensor]
Transform = Callable[[Data], Data]


@dataclass(frozen=True)
class SetFacts:
    """What a set of graphs is about."""

    name: str
    kind: Kind
    level: str  # "graph" or "node": what carries a label
    num_outputs: int  # classes, labels or values
    metric: str  # "accuracy", "f1" (mean over the classes), "rocauc", "ap", "mae" or "rmse"
    x_categories: tuple[int, ...] | None = None  # how many values each column of categories takes
    edge_categories: tuple[int, ...] | None = None
    smiles: list[str] | None = None  # of molecules
    left_out: tuple[str, ...] = ()  # rows of the raw file that are no labeled molecule, and why


class GraphSet(InMemoryDataset):
    """A PyG dataset of graphs that knows its task and its split.

    Index it with `train_index`, `val_index` or `test_index` for the three parts; every fact is an
    attribute of the same name. A graph has x, float [n, F] or categories int64 [n, C]; edge_index
    int64 [2, E]; perhaps edge_attr, float [E, D] or categories int64 [E, K]; and y: of classes
    int64 [1], of labels and values float [1, T] with NaN for a missing one, of classes of nodes
    int64 [n] with -1 for a node that has none.
    """

    def __init__(
        self, stored: Mapping[str, Tensor], facts: SetFacts, parts: Split, split: str
    ) -> None:
        super().__init__()
        self.slices = bounds_of(stored)
        self.data = Data(**{name: stored[name] for name in self.slices})
        self.facts, self.split = facts, split
        self.__dict__.update(vars(facts))
        self.train_index, self.val_index, self.test_index = parts

    @property
    def num_classes(self) -> int:
        """Classes of a multi-class set, else labels or values."""
        return self.num_outputs


def packed(graphs: Sequence[Data], **notes: Any) -> Stored:
    """All graphs one after the other, under "slices/" where each begins, and `with_notes`."""
    data, slices, _ = collate(Data, list(graphs), increment=False, add_batch=False)
    stored = {name: value for name, value in data if isinstance(value, Tensor)}
    bounds = {SLICES + name: value for name, value in slices.items() if name in stored}
    return with_notes(stored | bounds, **notes)


def with_notes(stored: Mapping[str, Tensor], **notes: Any) -> Stored:
    """The store with more notes: `categories` of columns, `split` by name, `smiles`, `left_out`."""
    content = json.dumps(notes_of(stored) | notes, default=Tensor.tolist).encode()
    return {**stored, _NOTES: torch.frombuffer(bytearray(content), dtype=torch.uint8)}


def notes_of(stored: Mapping[str, Tensor]) -> dict[str, Any]:
    """What `with_notes` stored, by name."""
    return json.loads(stored[_NOTES].numpy().tobytes()) if _NOTES in stored else {}


def bounds_of(stored: Mapping[str, Tensor]) -> Stored:
    """Where each graph begins, by attribute."""
    found = {name: value for name, value in stored.items() if name.startswith(SLICES)}
    return {name.removeprefix(SLICES): value for name, value in found.items()}


def categories_of(stored: Mapping[str, Tensor], part: str) -> tuple[int, ...] | None:
    """How many values each column of "x" or "edge_attr" takes; None where they are real."""
    if part not in stored or stored[part].is_floating_point():
        return None
    found = tuple(stored[part].amax(0).add(1).tolist()) if len(stored[part]) else ()
    known = tuple(notes_of(stored).get("categories", {}).get(part, found))
    fits = len(found) == len(known) and all(f <= k for f, k in zip(found, known, strict=True))
    if found and not fits:
        raise ValueError(f"{part}: categories up to {found}, its columns have {known}")
    return known


def check(stored: Mapping[str, Tensor]) -> None:
    """Raise ValueError, with the position of the graph, where parts do not fit together."""
    bounds = bounds_of(stored)
    nodes, edges = bounds["x"].diff(), bounds["edge_index"].diff()
    if len(nodes) != len(edges):
        raise ValueError(f"x of {len(nodes)} graphs, edge_index of {len(edges)}")
    if empty := (nodes == 0).nonzero().flatten().tolist():
        raise ValueError(f"graph {empty[0]} has no nodes, expected one or more")
    graph = torch.arange(len(edges)).repeat_interleave(edges)
    index = stored["edge_index"]
    outside = ((index < 0) | (index >= nodes[graph])).any(0).nonzero().flatten()
    if len(outside):
        at, edge = int(graph[outside[0]]), index[:, outside[0]].tolist()
        raise ValueError(
            f"graph {at}: edge {edge} in edge_index, expected ids in 0..{int(nodes[at]) - 1}"
        )
    for part in [name for name in ("x", "edge_attr") if name in stored]:
        values, real = stored[part], stored[part].is_floating_point()
        wrong = ~values.isfinite() if real else values < 0
        if bool(wrong.any()):
            row = int(wrong.flatten(1).any(1).nonzero()[0])
            found = values[row].flatten()[wrong[row].flatten()][0].item()
            wanted = "finite numbers" if real else "categories from 0; numbers have to be float"
            at = int(torch.searchsorted(bounds[part], row, right=True)) - 1
            raise ValueError(f"graph {at}: {part} holds {found}, expected {wanted}")
    for name, parts in notes_of(stored).get("split", {}).items():
        listed = [position for part in parts for position in part]
        if len(set(listed)) < len(listed) or not set(listed) <= set(range(len(nodes))):
            raise ValueError(f"split {name}: expected positions of {len(nodes)} graphs, each once")


def with_transforms(graphs: GraphSet, transforms: Sequence[Transform]) -> GraphSet:
    """The same set with what the transforms add or change, computed once and kept in memory.

    What no transform replaces is shared with the given set, which does not change.

    Example:
        >>> from graphtheory.lab.datasets.graphs import load_graphs
        >>> from graphtheory.data.transforms import AddDistances
        >>> with_transforms(load_graphs("csl"), [AddDistances()])[0].distance.shape  # of 41 nodes
        torch.Size([1681])
    """
    if not transforms:
        return graphs
    if graphs._indices is not None:
        raise ValueError(f"graphs: {len(graphs)} indexed graphs, expected the whole set")
    changed: list[Data] = []
    for position in range(len(graphs)):
        given = graphs.get(position).clone()
        after = Compose(list(transforms))(copy(given))
        in_place = {n for n, value in given if isinstance(value, Tensor) and value._version}
        new = {n: value for n, value in after if value is not given.get(n) or n in in_place}
        changed.append(Data(**new))
        if odd := set(changed[0].keys()) ^ set(new):
            raise ValueError(
                f"transforms: {', '.join(sorted(odd))} is stored on some graphs and not on others, "
                f"such as 0 and {position}"
            )
    whole = {name: graphs._data[name] for name in graphs.slices}
    whole |= {SLICES + name: bounds for name, bounds in graphs.slices.items()}
    parts = Split(graphs.train_index, graphs.val_index, graphs.test_index)
    return GraphSet(whole | packed(changed), graphs.facts, parts, graphs.split)


def precomputed(
    graphs: GraphSet, *, distance: int = 0, walk: int = 0, laplacian: int = 0, paths: int = 0,
    resistance: int = 0,
) -> GraphSet:  # fmt: skip
    """The set with these encodings on each graph, as `zoo.graph_models.precomputed` names them.

    `laplacian` is of I - D^-1/2 W D^-1/2 without self-loops, W symmetric weights of 0 or more;
    `walk` is diag((D^-1 A)^k), of edges of weight 1, each once. The others read no weights.
    """
    steps: list[tuple[int, Callable[[], Transform]]] = [
        (distance, AddDistances),
        (walk, lambda: partial(_add_walk, steps=walk)),
        (laplacian, lambda: partial(_add_eigenvectors, count=laplacian)),
        (paths, lambda: AddPaths(paths)),
        (resistance, AddResistance),
    ]
    return with_transforms(graphs, [make() for wanted, make in steps if wanted])


def _add_walk(data: Data, steps: int) -> Data:
    """PyG's return probabilities, of graphs in which they are those of the definition."""
    index, weight = data.edge_index, data.get("edge_weight")
    if weight is not None and bool((weight != 1).any()):
        what = "expected 1 or none, since PyG's AddRandomWalkPE leaves W out of D^-1 W; take it off"
        raise ValueError(f"walk: edge_weight holds {weight[weight != 1][0].item()}, {what}")
    if index.unique(dim=1).size(1) < index.size(1):
        raise ValueError(
            "walk: an edge occurs twice in edge_index, expected once, as of Data.coalesce"
        )
    return AddRandomWalkPE(steps)(data)


def _add_eigenvectors(data: Data, count: int) -> Data:
    """PyG's Laplacian encoding, zeros where eigenvectors lack, the same signs at every call."""
    weight = data.get("edge_weight")
    if weight is not None and not bool((weight >= 0).all()):
        raise ValueError("laplacian: edge_weight is negative or NaN, expected 0 or more")
    if not is_undirected(data.edge_index, weight, data.num_nodes):
        what = "an edge has one direction, or two weights, expected both alike, as of ToUndirected"
        raise ValueError(f"laplacian: {what}")
    vectors = torch.zeros(data.num_nodes, count)
    if (kept := min(count, data.num_nodes - 1)) > 0:
        start = np.random.default_rng(0).uniform(-1, 1, data.num_nodes)
        add = AddLaplacianEigenvectorPE(kept, "found", v0=start)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            vectors[:, :kept] = add(data.clone()).found
    data.laplacian_eigenvector_pe = vectors
    return data
