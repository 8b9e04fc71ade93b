"""The user's own network beside ours: any module with forward(x, edge_index) or forward(data)."""

import hashlib
import inspect
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.lab.bench.config import RunConfig
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.train import AdamOptions


@dataclass(frozen=True)
class OwnRunConfig(RunConfig):
    """How a network of the user's learns; its own options stay as they are."""

    source: str = ""  # digest of the network's source
    optimizer: AdamOptions = field(default_factory=AdamOptions)
    nodes_per_batch: int | None = None  # of sets of graphs


_SET = {"x", "edge_index", "edge_attr", "batch"}  # what a batch of graphs has
_HIDDEN = {"x", "y", "train_mask", "val_mask", "test_mask"}  # x comes with each call
_STORED = "stored_"  # before the names of buffers
# Weights that are in training or were, by their ids, while they are alive.
_given: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


@dataclass(frozen=True)
class OwnModel:
    """A function from the numbers of input and output channels to a network, and its source."""

    name: str
    build: Callable[[int, int], nn.Module]
    source: str  # a run is resumed with the same one only

    def network(self, in_channels: int, out_channels: int, graph: Data | None = None) -> nn.Module:
        """Build the network so that it takes the inputs of ours, on one graph the rest of it."""
        found = self.build(in_channels, out_channels)
        if not isinstance(found, nn.Module):
            kind = type(found).__name__
            raise ValueError(f"model {self.name}: got {kind}, expected a torch.nn.Module")
        weights = {id(weight): weight for weight in found.parameters() if weight.requires_grad}
        if not weights:
            raise ValueError(f"model {self.name}: got no trainable weights, expected one or more")
        if weights.keys() & _given.keys():
            raise ValueError(
                f"model {self.name}: got a network with weights that it gave before, expected a "
                "new network at each call: each seed trains its own"
            )
        _given.update(weights)
        return Adapted(found, self.name, graph)

    def config(self, like: Any) -> OwnRunConfig:
        """How it learns: as one of ours does."""
        source = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        same = ("optimizer", "nodes_per_batch")
        how = {name: getattr(like, name) for name in same if hasattr(like, name)}
        return OwnRunConfig(self.name, source, **how)


class Adapted(nn.Module):
    """A network of PyG's form that takes (x, neighborhood) of one graph, or a batch of graphs.

    Of one graph it gets the tensors as they are stored, but for labels and masks.
    """

    def __init__(self, network: nn.Module, name: str, graph: Data | None = None) -> None:
        super().__init__()
        self.network = network
        given = inspect.signature(network.forward).parameters.values()
        fixed = [p for p in given if p.kind == p.POSITIONAL_OR_KEYWORD]
        self.names = [p.name for p in fixed] or ["x", "edge_index", "batch"]  # PyG's Sequential
        needed = {p.name for p in fixed if p.default is p.empty}
        stored = {} if graph is None else {k: v for k, v in graph if k not in _HIDDEN}
        self.stored = [key for key, value in stored.items() if isinstance(value, Tensor)]
        known = _SET if graph is None else {"x", *self.stored}
        self.takes_data = len(needed) == 1 and not needed <= {"x", "edge_index"}
        if not (self.takes_data or needed <= known):
            lacking = f", and the data has no {', '.join(sorted(needed - known))}" if graph else ""
            raise ValueError(
                f"model {name}: got forward({', '.join(self.names)}){lacking}, expected forward(x, "
                "edge_index) by these names, of sets of graphs with batch, or forward(data)"
            )
        for key in self.stored:
            self.register_buffer(_STORED + key, stored[key], persistent=False)

    def forward(self, first: Any, neighborhood: Neighborhood | None = None) -> Tensor:
        data = first
        if neighborhood is not None:
            x = first.to_dense() if first.layout == torch.sparse_csr else first
            data = Data(x=x, **{key: getattr(self, _STORED + key) for key in self.stored})
        if self.takes_data:
            return self.network(data)
        there = (name for name in self.names if name in data and data[name] is not None)
        return self.network(**{name: data[name] for name in there})


def read_models(models: Iterable[Any] | Mapping[str, Any]) -> dict[str, OwnModel | None]:
    """Names of models, in order, with the user's own ones; None stands for one of ours.

    An entry is a name, "FILE.py:NAME", or a function (in_channels, out_channels) -> module; a
    mapping gives the user's own a name.
    """
    pairs = models.items() if isinstance(models, Mapping) else ((None, one) for one in models)
    found: dict[str, OwnModel | None] = {}
    for given, model in pairs:
        ours = isinstance(model, str) and ":" not in model
        own = None if ours else _own(model)
        name = model if own is None else given or own.name
        if name != (given or name) or name in found:
            raise ValueError(
                f"models: got {given or name!r} for {name}, expected names that differ, in a "
                "mapping for your own, and those of ours unchanged"
            )
        found[name] = own and replace(own, name=name)
    return found


def _own(model: Any) -> OwnModel:
    if isinstance(model, str):
        path, _, name = model.rpartition(":")
        if not Path(path).is_file():
            raise FileNotFoundError(f"models: there is no file {path}, expected FILE.py:NAME")
        if (folder := str(Path(path).parent.resolve())) not in sys.path:
            sys.path.insert(0, folder)  # as Python does for a script
        try:
            module = runpy.run_path(path)
        except Exception as error:
            raise ValueError(f"models: {path} raises {type(error).__name__}: {error}") from error
        if not callable(build := module.get(name)):
            own = (n for n, v in module.items() if getattr(v, "__module__", "") == "<run_path>")
            there = ", ".join(own) or "no class or function"
            raise ValueError(f"models: {path} has no {name}; expected one of {there}")
        return OwnModel(name, build, Path(path).read_text(encoding="utf-8"))
    if isinstance(model, nn.Module) or not callable(model):
        raise TypeError(
            f"models: got {type(model).__name__}, expected a name, FILE.py:NAME or a function that "
            "makes a network for each seed: lambda in_channels, out_channels: MyNet(...)"
        )
    name = getattr(model, "__name__", type(model).__name__)
    try:
        return OwnModel(name, model, inspect.getsource(model))
    except (OSError, TypeError):  # typed at a prompt, or compiled
        return OwnModel(name, model, name)
