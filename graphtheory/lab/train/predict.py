"""What a trained task predicts for every node, graph or image, and a table of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphtheory.disk import replace_file
from graphtheory.lab.train.contract import LabelTask, Source
from graphtheory.modes import evaluating


@torch.no_grad()
def predict(task: LabelTask, data: Source) -> Tensor:
    """Predict all samples of the data, in their order, with or without a label.

    Args:
        task: Trained by `fit`, or with the parameters that `load_parameters` gave it.
        data: `FullGraph`, `GraphSets`, `ImageData` and the others that the task trains on.

    Returns:
        A row for each node, graph or image, on the CPU: probabilities [N, C] of classes or [N, T]
        of labels that are true, or values [N, T] of a regression, in their own unit.

    Example:
        >>> from graphtheory.lab.datasets import graphs
        >>> from graphtheory.lab.train import FullGraph, NodeTask
        >>> from graphtheory.models import GraphTransformer
        >>> task = NodeTask(GraphTransformer(34, 16, 2, num_layers=1, heads=2), num_classes=2)
        >>> predict(task, FullGraph(graphs.load("karate"))).shape
        torch.Size([34, 2])
    """
    with evaluating(task):
        found = [task.pairs(batch)[0][0] for batch in data.every_batch()]
        return task.probabilities(torch.cat(found)).cpu()


def write_predictions(
    path: str | PathLike[str],
    kind: str,
    found: Tensor,
    names: Mapping[str, Sequence[Any]],
    parts: Mapping[str, Tensor],
) -> None:
    """Write a CSV file of predictions, a row each: names, part, the class, probabilities or values.

    Args:
        path: The file, which is replaced.
        kind: "multiclass", "multilabel" or "regression".
        found: What `predict` returned.
        names: Heads of columns -> what names each row, such as {"node": range(34)}.
        parts: "train", "val" and "test" -> positions of rows, as `Source.parts` gives them.
    """
    part = [""] * len(found)
    for name, positions in parts.items():
        for row in positions.tolist():
            part[row] = name
    columns = [f"{'value' if kind == 'regression' else 'p'}{i}" for i in range(found.size(1))]
    head, table = [*names, "part"], [*names.values(), part]
    if kind == "multiclass":
        head, table = [*head, "class"], [*table, found.argmax(1).tolist()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *columns])
    writer.writerows([*row[:-1], *row[-1]] for row in zip(*table, found.tolist(), strict=True))
    replace_file(Path(path), text.getvalue().encode())
