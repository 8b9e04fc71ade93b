"""Many graphs as one array per attribute, with the bounds of each graph: packed, checked, named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.collate import collate

from graphtheory.lab.datasets.splits import Split

SLICES = "slices/"  # what tells the bounds of graphs from their tensors
_TEXT = "text/"
_PARTS = "split/"
_CATEGORIES = "categories/"


def packed(graphs: Sequence[Data]) -> dict[str, Tensor]:
    """All graphs one after the other, and under "slices/" where each begins.

    Args:
        graphs: At least one, all with the same attributes.
    """
    data, slices, _ = collate(Data, list(graphs), increment=False, add_batch=False)
    stored = {name: value for name, value in data if isinstance(value, Tensor)}
    return stored | {SLICES + name: bounds for name, bounds in slices.items() if name in stored}


def bounds_of(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Where each graph begins, by attribute."""
    return {
        name.removeprefix(SLICES): value
        for name, value in stored.items()
        if name.startswith(SLICES)
    }


def with_text(name: str, lines: Sequence[str]) -> dict[str, Tensor]:
    """Lines of text as an entry of the store."""
    content = np.frombuffer("\n".join(lines).encode(), np.uint8).copy()
    return {_TEXT + name: torch.from_numpy(content)}


def text_of(stored: Mapping[str, Tensor], name: str) -> list[str] | None:
    """The lines that `with_text` stored; None where there are none."""
    if _TEXT + name not in stored:
        return None
    content = stored[_TEXT + name].numpy().tobytes().decode()
    return content.split("\n") if content else []


def with_categories(
    x: Sequence[int] | None = None, edge_attr: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """How many values the columns of categorical features take, as entries of the store."""
    sizes = {"x": x, "edge_attr": edge_attr}
    return {_CATEGORIES + part: torch.tensor(size) for part, size in sizes.items() if size}


def categories_of(stored: Mapping[str, Tensor], part: str) -> tuple[int, ...] | None:
    """How many values each column of a categorical feature takes; None of real ones.

    Args:
        stored: The store.
        part: "x" or "edge_attr".
    """
    if part not in stored or stored[part].is_floating_point():
        return None
    found = tuple(stored[part].amax(0).add(1).tolist()) if len(stored[part]) else ()
    known = stored.get(_CATEGORIES + part)
    if known is None:
        return found
    sizes = tuple(known.tolist())
    if found and (
        len(found) != len(sizes) or any(f > s for f, s in zip(found, sizes, strict=True))
    ):
        raise ValueError(f"{part}: categories up to {found}, its columns have {sizes}")
    return sizes


def with_split(name: str, parts: Split, graphs: int) -> dict[str, Tensor]:
    """A split as an entry of the store: 0, 1, 2 for the parts of each graph, -1 for none."""
    member = torch.full((graphs,), -1, dtype=torch.int8)
    for number, positions in enumerate(parts):
        member[positions] = number
    return {_PARTS + name: member}


def split_of(stored: Mapping[str, Tensor], name: str) -> Split | None:
    """The split of that name; None where it is not stored, so that it is drawn."""
    member = stored.get(_PARTS + name)
    if member is None:
        return None
    return Split(*((member == number).nonzero().view(-1) for number in range(3)))


def check(stored: Mapping[str, Tensor]) -> None:
    """Refuse graphs that do not hold together.

    Args:
        stored: x, edge_index and perhaps edge_attr, with their bounds.

    Raises:
        ValueError: A graph without nodes, with a node id out of range or with a value that is not
            finite or a negative category; the message has its position.
    """
    bounds = bounds_of(stored)
    nodes, edges = bounds["x"].diff(), bounds["edge_index"].diff()
    if len(nodes) != len(edges):
        raise ValueError(f"x of {len(nodes)} graphs, edge_index of {len(edges)}")
    if bool((nodes == 0).any()):
        raise ValueError(
            f"graph {int((nodes == 0).nonzero()[0])} has no nodes, expected one or more"
        )
    graph = torch.arange(len(edges)).repeat_interleave(edges)
    index = stored["edge_index"]
    outside = ((index < 0) | (index >= nodes[graph])).any(0)
    if bool(outside.any()):
        first = int(outside.nonzero()[0])
        at = int(graph[first])
        raise ValueError(
            f"graph {at}: edge {index[:, first].tolist()} in edge_index, expected ids in "
            f"0..{int(nodes[at]) - 1}"
        )
    for part in ("x", "edge_attr"):
        if part in stored:
            _check_values(part, stored[part], bounds[part])


def _check_values(part: str, values: Tensor, bounds: Tensor) -> None:
    real = values.is_floating_point()
    wrong = ~values.isfinite() if real else values < 0
    if bool(wrong.any()):
        row = int(wrong.flatten(1).any(1).nonzero()[0])
        found = values[row].flatten()[wrong[row].flatten()][0].item()
        wanted = "finite numbers" if real else "categories from 0; numbers have to be float"
        raise ValueError(f"graph {graph_at(bounds, row)}: {part} holds {found}, expected {wanted}")


def graph_at(bounds: Tensor, row: int) -> int:
    """The graph that a row belongs to."""
    return int(torch.searchsorted(bounds, row, right=True)) - 1
