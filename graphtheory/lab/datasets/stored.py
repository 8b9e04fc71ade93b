"""Transforms applied once to every graph of a set, their results stored with the graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

from torch_geometric.data import Data

from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.datasets.graph_store import SLICES, packed
from graphtheory.lab.datasets.splits import Split

Transform = Callable[[Data], Data]


def with_transforms(
    graphs: GraphSet,
    transforms: Sequence[Transform],
    progress: Callable[[int, int], None] | None = None,
) -> GraphSet:
    """The same set with what the transforms add or change, computed once and kept in memory.

    What no transform replaces is shared with the given set, which does not change. A transform
    must leave the labels and the same attributes on every graph.

    Args:
        graphs: A whole set, not an indexed part of it.
        transforms: Applied one after the other to each graph.
        progress: Called after each graph with (how many are done, how many there are).

    Raises:
        ValueError: If part of a set is given, or an attribute is there on some graphs alone.

    Example:
        >>> import torch
        >>> from graphtheory.lab.datasets.own_graphs import graph_set
        >>> from graphtheory.data.transforms import AddDistances
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> graphs = graph_set(
        ...     [Data(x=torch.ones(2, 1), edge_index=edge, y=torch.tensor([i])) for i in range(3)],
        ...     split=([0], [1], [2]),
        ... )
        >>> with_transforms(graphs, [AddDistances()])[0].distance.tolist()
        [0, 1, 1, 0]
    """
    if not transforms:
        return graphs
    if graphs._indices is not None:
        raise ValueError(f"graphs: {len(graphs)} indexed graphs, expected the whole set")
    changed: list[Data] = []
    for position in range(len(graphs)):
        before = graphs.get(position)
        after = copy(before)
        for transform in transforms:
            after = transform(after)
        new = {name: value for name, value in after if value is not before.get(name)}
        changed.append(Data(**new))
        if progress is not None:
            progress(position + 1, len(graphs))
    _check_same(changed)
    whole = {name: graphs._data[name] for name in graphs.slices}
    whole |= {SLICES + name: bounds for name, bounds in graphs.slices.items()}
    parts = Split(graphs.train_index, graphs.val_index, graphs.test_index)
    return GraphSet(whole | packed(changed), graphs.facts, parts, graphs.split)


def _check_same(graphs: Sequence[Data]) -> None:
    first = set(graphs[0].keys())
    for position, graph in enumerate(graphs):
        if odd := first ^ set(graph.keys()):
            raise ValueError(
                f"transforms: {', '.join(sorted(odd))} is stored on some graphs and not on others, "
                f"such as 0 and {position}"
            )
