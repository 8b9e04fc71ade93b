"""What a trained task predicts, a layer at a time where a graph is large, and a table of it."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphtheory import ops
from graphtheory.disk import replace_file
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import take_rows
from graphtheory.lab.train.contract import LabelTask, Source
from graphtheory.modes import evaluating
from graphtheory.patterns.base import relabel


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


class _Rows(Neighborhood):
    """Stands for the edges of some nodes, which a model hands to its layers unread."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("num_src", "num_dst"):
            return object.__getattribute__(self, name)
        raise ValueError(f"evaluation_rows: the model itself reads {name!r} of the graph, {_NEEDS}")


class _Reached(Exception):
    """A layer that nothing is known of was called."""


_NEEDS = "expected one whose layers alone do, each a row of one hop by the graph that it is given"


@torch.no_grad()
def by_layers(
    model: nn.Module, x: Tensor, graph: Neighborhood,
    *, rows: int, device: torch.device, trainer: Trainer | None = None,
) -> Tensor:  # fmt: skip
    r"""Compute the outputs of a model for all nodes, a layer at a time and some rows at a time.

    Layers are PyG's and ours, which a model calls as ``layer(x, graph)``; what it does between them
    is done for each node alone. Of each layer the outputs of all nodes are kept on the CPU, N times
    its width. Each computation is repeated for half a batch: where rows depend on their batch, as
    they do with a mean over nodes or degrees of sources, it raises.

    Args:
        model: ``model(x, graph)``, in evaluation mode; `SampledGCN` too.
        x: Features [N, F], on the CPU.
        graph: Who aggregates from whom, on the CPU.
        rows: Nodes at a time, at least 2.
        device: Where the model is.
        trainer: Whose processes share the batches; None is this one alone.

    Returns:
        The outputs [N, C], on the CPU.

    Raises:
        ValueError: A model that does otherwise.

    Source: Hamilton et al. (2017), algorithm 1, as PyG's example of inference does it.
    """
    of_all = partial(_of_all, len(x), rows, trainer)

    def aggregated(of: Callable[..., Tensor], x: Tensor, nodes: Tensor) -> Tensor:
        sources, edges = relabel(nodes, graph.rows(nodes))
        pair = take_rows(x, sources).to(device), take_rows(x, nodes).to(device)
        return of(pair, edges.to(device))

    if any(kind.__name__ == "SampledGCN" for kind in type(model).__mro__):  # without modules
        for layer in range(1, int(model.num_layers)):  # type: ignore[arg-type]
            weight = getattr(model, {1: "W", 2: "V"}.get(layer, f"W{layer}"))
            bias = getattr(model, f"B{layer}")
            x = of_all(partial(aggregated, partial(_affine, weight, bias), x))
        return of_all(partial(aggregated, partial(_affine, model.C, None), x))
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    handed, known = object.__new__(_Rows), list[Tensor]()
    reached = list[Any]()  # the layer, and whether it gets the features themselves

    def between(nodes: Tensor) -> Tensor:
        """The input of the first layer that is not known, or the outputs."""
        for name in ("num_src", "num_dst"):
            object.__setattr__(handed, name, len(nodes))
        place, entered = count(), take_rows(x, nodes).to(device)
        own = [(layer, vars(layer).get("forward")) for layer in layers]

        def stand_in(layer: nn.Module, *given: Any, **more: Any) -> Tensor:
            if len(given) != 2 or more or given[1] is not handed:
                raise ValueError(
                    f"evaluation_rows: {type(layer).__name__} gets another graph, {_NEEDS}"
                )
            if (here := next(place)) < len(known):
                return known[here][nodes].to(device)
            reached[:] = layer, given[0] is entered
            raise _Reached(torch.zeros(len(nodes), 0) if given[0] is entered else given[0])

        try:
            for layer in layers:
                vars(layer)["forward"] = partial(stand_in, layer)
            return model(entered, handed)
        except _Reached as found:
            return found.args[0]
        finally:
            for layer, forward in own:
                vars(layer).pop("forward")
                if forward is not None:
                    vars(layer)["forward"] = forward

    while True:
        reached.clear()
        found = of_all(between)
        if not reached:
            return found
        known.append(of_all(partial(aggregated, reached[0], x if reached[1] else found)))


def _affine(weight: Any, bias: Any, given: tuple[Tensor, Tensor], nb: Neighborhood) -> Tensor:
    """A layer of `SampledGCN`, which has no module; the last is without bias."""
    out = ops.aggregate(None, (given[0] @ weight)[:, None], nb)[:, 0]
    return out if bias is None else torch.relu(out + bias)


def _of_all(
    nodes: int, rows: int, trainer: Trainer | None, of: Callable[[Tensor], Tensor]
) -> Tensor:
    """What `of` says of all nodes, by batches that the processes share; on the CPU."""
    batches, found = torch.arange(nodes).split(rows), list[Tensor]()
    rank, world = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
    for first in range(0, len(batches), world):
        some = batches[first : first + world]
        mine = some[min(rank, len(some) - 1)]
        value = of(mine)
        if first == 0:
            _check_rows(value, of(mine[: len(mine) // 2 or 1]))
        if trainer is None or world == 1:
            found.append(value.cpu())
            continue
        padded = value.new_zeros(rows, *value.shape[1:])
        padded[: len(value)] = value
        every = trainer.strategy.all_gather(padded)
        found += [every[i, : len(batch)].cpu() for i, batch in enumerate(some)]
    return torch.cat(found)


def _check_rows(whole: Tensor, half: Tensor) -> None:
    """Raise where rows differ between a batch and the half of it."""
    same = whole[: len(half)]
    largest = float(same.abs().max()) if same.numel() else 0.0
    if bool(((same - half).abs() > torch.finfo(whole.dtype).eps ** 0.5 * largest).any()):
        raise ValueError(f"evaluation_rows: a row depends on the others of its batch, {_NEEDS}")
