"""`graphtheory train --explorer`: what the trained network attends to, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphtheory.lab.cli.show import RefusedError, Screen, refusing

if TYPE_CHECKING:
    from torch import Tensor

    from graphtheory.graph import Neighborhood
    from graphtheory.lab.train import Source, Task

NAME = "explorer.html"


def refuse_explorer(model: str, task: Task, num_nodes: int) -> None:
    """Refuse, before anything is trained, what the page could not show.

    Raises:
        RefusedError: A network without attention weights, or too many nodes.
    """
    from graphtheory.lab.report.explorer import MOST_NODES
    from graphtheory.nn.attention import attends

    if not any(map(attends, task.model.modules())):
        raise RefusedError(f"--explorer: {model} has no attention weights; gt and gat have some")
    if num_nodes > MOST_NODES:
        raise RefusedError(
            f"--explorer: the graph has {num_nodes:,} nodes, expected {MOST_NODES:,} or fewer"
        )


def write_explorer(screen: Screen, task: Task, data: Source, out: Path, title: str) -> None:
    """Write the page: of one graph all of it, of a set the first graphs of validation."""
    from graphtheory.lab.report import attention_explorer
    from graphtheory.nn import attention_maps

    inputs, graph, labels = _evaluated(data)
    with screen.working("the page of attention"), refusing():
        maps = attention_maps(task.model, *inputs)
        attention_explorer(maps, graph, labels=labels, title=title).save(out / NAME)


def _evaluated(data: Source) -> tuple[tuple[object, ...], Neighborhood | None, Tensor | None]:
    """What the network reads, the edges to draw, and classes of nodes."""
    from graphtheory.lab.train import FullGraph

    if not isinstance(data, FullGraph):
        return (data.evaluation_batch().val[0],), None, None
    batch = data.evaluation_batch()
    labels = batch.y if batch.y.dim() == 1 else None
    return (batch.x, batch.neighborhood), data.graph, labels
