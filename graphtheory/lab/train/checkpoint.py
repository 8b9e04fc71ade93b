"""Checkpoint files that are whole or absent and notice one flipped bit, and what a task predicts.

The files are zip archives of `torch.save` whose comment is the SHA-256 of everything before it.
Predictions are made a layer at a time where a graph is large.
"""

import csv
import hashlib
import io
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Generator, Tensor, nn
from torch_geometric.nn import MessagePassing

from graphtheory import ops
from graphtheory.disk import load_tensors, replace_file
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import take_rows
from graphtheory.lab.train.contract import LabelTask, Source, Task, shapes
from graphtheory.modes import evaluating
from graphtheory.patterns.base import relabel

SECONDS = 60.0  # between two writes of a training that keeps its state now and then
_LABEL = b"sha256:"
_COMMENT = len(_LABEL) + 64
_END_OF_ARCHIVE, _END_BYTES = b"PK\x05\x06", 22
_PLACES: ContextVar[Iterator[Path] | None] = ContextVar("places", default=None)


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or not one of this run."""


def write_checkpoint(path: str | PathLike[str], content: dict[str, Any]) -> None:
    """Replace the file at `path` in one step; a crash at any time leaves the old or the new one."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(content, buffer)
    replace_file(Path(path), _sealed(bytearray(buffer.getbuffer())))


def _sealed(archive: bytearray) -> bytearray:
    """Add the digest as the archive's comment, whose length the last two bytes tell."""
    archive[-2:] = _COMMENT.to_bytes(2, "little")
    archive += _LABEL + hashlib.sha256(archive).hexdigest().encode()
    return archive


def read_checkpoint(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the content of a checkpoint, on the CPU; nothing in it can run code.

    Raises:
        FileNotFoundError: No file at `path`.
        CheckpointError: The file is damaged, truncated, or was not written by `fit`.
    """
    raw = Path(path).read_bytes()
    archive, comment = raw[:-_COMMENT], raw[-_COMMENT:]
    if archive[-_END_BYTES:][:4] != _END_OF_ARCHIVE or not comment.startswith(_LABEL):
        origin = "so truncated or not written by graphtheory.lab.train.fit"
        told = f"{len(raw)} bytes without a digest at their end, {origin}"
        raise CheckpointError(f"{path}: {told}; expected one of its checkpoints")
    if hashlib.sha256(archive).hexdigest().encode() != comment[len(_LABEL) :]:
        told = f"damaged, its {len(raw)} bytes do not match their own SHA-256"
        raise CheckpointError(f"{path}: {told}; restore a copy or remove the file and start again")
    try:
        return load_tensors(raw)
    except Exception:  # torch names no class for what its safe loader refuses
        told = "holds more than tensors and plain values"
        origin = "so it was not written by graphtheory.lab.train"
        raise CheckpointError(f"{path}: {told}, {origin}; nothing in it was run") from None


def load_parameters(task: Task, path: str | PathLike[str]) -> None:
    """Put the parameters of a checkpoint into a task whose model has the same shapes.

    Raises:
        FileNotFoundError: No file at `path`.
        CheckpointError: Damaged, or of another model; the message names the first difference.
    """
    state = read_checkpoint(path).get("state_dict")
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: without parameters of a task, expected a checkpoint of fit")
    difference = first_difference(shapes(state), shapes(task.state_dict()))
    if difference:
        model = type(task.model).__name__
        raise CheckpointError(f"{path}: checkpoint of another model than {model}: {difference}")
    task.load_state_dict(state)


def first_difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    """Say in one clause where two descriptions part; '' where they do not."""
    for name in {**expected, **found}:
        here, there = found.get(name, "absent"), expected.get(name, "absent")
        if isinstance(here, dict) and isinstance(there, dict):
            if inner := first_difference(here, there):
                return f"{name}: {inner}"
        elif here != there:
            return f"{name} is {here} there, {there} here"
    return ""


class SafeCheckpointIO(TorchCheckpointIO):
    """Lightning's plugin for the above: atomic, verified, nothing executable."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, *_: Any, **__: Any) -> None:
        write_checkpoint(path, checkpoint)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return read_checkpoint(path)


@contextmanager
def checkpoint_dir(folder: Path) -> Iterator[None]:
    """Let trainings in the block, in order, keep states in `folder`/0, 1 and go on from there."""
    token = _PLACES.set(folder / str(number) for number in count())
    try:
        yield
    finally:
        _PLACES.reset(token)


def next_place() -> Path | None:
    """Take the folder of the next training in a block of `checkpoint_dir`; None outside one."""
    places = _PLACES.get()
    return None if places is None else next(places)


@contextmanager
def warn_if_unwritable() -> Iterator[None]:
    """Turn an error of the disk into a warning, where a training can go on without its file."""
    try:
        yield
    except OSError as error:
        said = "state of a training was not written, after a break it would start anew"
        warnings.warn(f"{said}: {error}", stacklevel=2)


@dataclass
class Clock:
    """Tells when it is time to write again, about once a minute."""

    last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether it is time, from which the next minute counts."""
        over = time.monotonic() - self.last >= SECONDS
        self.last = time.monotonic() if over else self.last
        return over


@dataclass
class TrainingState:
    """The state of a training loop of your own, written to a file about once a minute."""

    path: Path | None  # its folder is made where it is missing; None keeps nothing
    settings: dict[str, Any]  # what has to be the same for a training to go on, as plain values
    generator: Generator  # source of what it draws, beside torch's global one
    parts: dict[str, Any]  # what has a state, "model" among them, in the order of loading
    clock: Clock = field(default_factory=Clock)

    def save(self, losses: list[float], *, last: bool = False) -> None:
        """Write the state after a step if a minute has passed, or if it was the last."""
        if self.path is None or not (self.clock.due() or last):
            return
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"prompts": self.generator.get_state(), "others": torch.get_rng_state()}
        write_checkpoint(self.path, state | {"settings": self.settings, "losses": losses})

    def restore(self) -> list[float]:
        """Put what the file holds into the parts; the losses so far, none without a file."""
        if self.path is None or not self.path.exists():
            return []
        state = read_checkpoint(self.path)
        if "losses" not in state or not self.parts.keys() <= state.keys():
            raise CheckpointError(f"{self.path}: not written by train_in_context or a study")
        there, here = shapes(state["model"]), shapes(self.parts["model"].state_dict())
        known = state["settings"] | {"model": there}
        if difference := first_difference(known, self.settings | {"model": here}):
            raise CheckpointError(f"{self.path}: another training: {difference}")
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["prompts"])
        torch.set_rng_state(state["others"])
        return state["losses"]


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
