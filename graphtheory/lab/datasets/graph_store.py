"""Many graphs as one array per attribute, with the bounds of each graph, checked and with notes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.collate import collate

from graphtheory.lab.datasets.splits import Split

SLICES = "slices/"  # what tells the bounds of graphs from their tensors
_NOTES = "notes"


def packed(graphs: Sequence[Data], **notes: Any) -> dict[str, Tensor]:
    """All graphs one after the other, under "slices/" where each begins, and `with_notes`."""
    data, slices, _ = collate(Data, list(graphs), increment=False, add_batch=False)
    stored = {name: value for name, value in data if isinstance(value, Tensor)}
    bounds = {SLICES + name: value for name, value in slices.items() if name in stored}
    return with_notes(stored | bounds, **notes)


def with_notes(stored: Mapping[str, Tensor], **notes: Any) -> dict[str, Tensor]:
    """The store with facts that are no tensors, as JSON in a tensor of bytes.

    Args:
        stored: All graphs, as `packed` gives them.
        notes: `categories`, by "x" and "edge_attr" how many values each column of categories
            takes; `split`, by name the positions of three parts; `smiles` and `left_out`, lists.
    """
    content = json.dumps(notes_of(stored) | notes, default=Tensor.tolist).encode()
    return {**stored, _NOTES: torch.frombuffer(bytearray(content), dtype=torch.uint8)}


def notes_of(stored: Mapping[str, Tensor]) -> dict[str, Any]:
    """What `with_notes` stored, by name."""
    return json.loads(stored[_NOTES].numpy().tobytes()) if _NOTES in stored else {}


def bounds_of(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Where each graph begins, by attribute."""
    found = {name: value for name, value in stored.items() if name.startswith(SLICES)}
    return {name.removeprefix(SLICES): value for name, value in found.items()}


def categories_of(stored: Mapping[str, Tensor], part: str) -> tuple[int, ...] | None:
    """How many values each column of "x" or "edge_attr" takes; None where they are real."""
    if part not in stored or stored[part].is_floating_point():
        return None
    found = tuple(stored[part].amax(0).add(1).tolist()) if len(stored[part]) else ()
    known = notes_of(stored).get("categories", {}).get(part)
    if known is None:
        return found
    if found and (
        len(found) != len(known) or any(f > k for f, k in zip(found, known, strict=True))
    ):
        raise ValueError(f"{part}: categories up to {found}, its columns have {tuple(known)}")
    return tuple(known)


def split_of(stored: Mapping[str, Tensor], name: str) -> Split | None:
    """The split of that name; None where it is not stored, so that it is drawn."""
    parts = notes_of(stored).get("split", {}).get(name)
    return parts and Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in parts))


def check(stored: Mapping[str, Tensor]) -> None:
    """Refuse graphs whose parts do not fit together.

    Raises:
        ValueError: A graph without nodes, with a node id out of range or with a value that is not
            finite or a negative category; the message has its position. A split of other graphs,
            or with one graph twice.
    """
    bounds = bounds_of(stored)
    nodes, edges = bounds["x"].diff(), bounds["edge_index"].diff()
    if len(nodes) != len(edges):
        raise ValueError(f"x of {len(nodes)} graphs, edge_index of {len(edges)}")
    if bool((nodes == 0).any()):
        empty = int((nodes == 0).nonzero()[0])
        raise ValueError(f"graph {empty} has no nodes, expected one or more")
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
    for name, parts in notes_of(stored).get("split", {}).items():
        listed = [position for part in parts for position in part]
        if len(set(listed)) < len(listed) or not set(listed) <= set(range(len(nodes))):
            raise ValueError(f"split {name}: expected positions of {len(nodes)} graphs, each once")


def _check_values(part: str, values: Tensor, bounds: Tensor) -> None:
    real = values.is_floating_point()
    wrong = ~values.isfinite() if real else values < 0
    if bool(wrong.any()):
        row = int(wrong.flatten(1).any(1).nonzero()[0])
        found = values[row].flatten()[wrong[row].flatten()][0].item()
        wanted = "finite numbers" if real else "categories from 0; numbers have to be float"
        graph = int(torch.searchsorted(bounds, row, right=True)) - 1
        raise ValueError(f"graph {graph}: {part} holds {found}, expected {wanted}")
