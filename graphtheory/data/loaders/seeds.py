"""Seeds in mini-batches, each batch a function of (seed, epoch, place in the epoch)."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch_geometric.data import Data

from graphtheory.data.loaders.source import NodeSource, source_of
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index
from graphtheory.patterns.draw import derive

_ORDER, _DRAW, _TRANSFORM = 0, 1, 2  # streams of randomness
_OURS = ("dataset", "sampler", "batch_sampler", "collate_fn", "generator")
Key = tuple[Tensor, int, int, float]  # positions among the seeds, epoch, place in it, weight


class SeedBatches(Dataset[Data]):
    """Batches by key; this is all that a worker gets."""

    def __init__(self, source: NodeSource, input_nodes: Any) -> None:
        self.source, self.seed = source, 0
        self.transform: Callable[[Data], Any] | None = None
        self.nodes, self.input_id = seeds_of(input_nodes, source.graph.num_dst)
        self.counts = torch.ones_like(self.nodes)  # the seeds of each position

    @abstractmethod
    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        """(nodes needed [n], the seeds first; what the batch says of them)."""

    def of_seeds(self, position: Tensor) -> dict[str, Any]:
        """What the batch says of its seeds."""
        return {"input_id": self.input_id[position], "batch_size": len(position)}

    def of_layers(
        self, nodes: Tensor, layers: Sequence[Neighborhood], given: Sequence[Tensor | None]
    ) -> dict[str, list[Tensor]]:
        """Attributes of the edges of each layer."""
        found = [self.source.of_edges(nodes, *one) for one in zip(layers, given, strict=True)]
        return {name: [edges[name] for edges in found] for name in self.source.edge}

    def __getitem__(self, key: Key) -> Data:
        position, epoch, place, weight = key
        generator = torch.Generator().manual_seed(derive(self.seed, _DRAW, epoch, place))
        nodes, drawn = self.draw(self.nodes[position], generator)
        original = self.source.original_id
        if original is not None:
            drawn["original_id"] = original[nodes]
        batch = Data.from_dict(
            self.source.of_nodes(nodes) | drawn | {
                "num_nodes": len(nodes), "n_id": nodes, "loss_weight": weight,
            } | self.of_seeds(position)
        )  # fmt: skip
        if self.transform is None:
            return batch
        with torch.random.fork_rng(devices=[]):  # transforms draw from global state
            torch.manual_seed(derive(self.seed, _TRANSFORM, epoch, place))
            return self.transform(batch)


class Resumable:
    """Epochs of a loader and its place in one, by PyTorch's protocol of stateful loaders."""

    _order: Order

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration, 0 or more."""
        check_numbers(epoch=(epoch, 0))
        self._order.go_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: behind the last batch that was handed out, by plain numbers.

        All processes have the same. Lightning keeps it in its checkpoints.
        """
        epoch, step = self._order.at
        over = step == len(self)  # type: ignore[arg-type]
        place = {"epoch": epoch + 1, "step": 0} if over else {"epoch": epoch, "step": step}
        return place | self._order.facts()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next iteration begin there, with the same batches; those before are not made.

        Args:
            state_dict: What `state_dict` of a loader made with the same arguments returned.

        Raises:
            ValueError: The state of another loader, or a step that the epoch does not have.
        """
        names = ("epoch", "step", *(facts := self._order.facts()))
        if missing := [name for name in names if name not in state_dict]:
            raise ValueError(f"state_dict: has no {missing[0]}, expected what state_dict returned")
        for name, value in facts.items():
            if state_dict[name] != value:
                told = f"{name}={state_dict[name]} in a loader with {name}={value}"
                raise ValueError(f"state_dict: got {told}, expected the same")
        epoch, step = state_dict["epoch"], state_dict["step"]
        check_numbers(epoch=(epoch, 0), step=(step, 0))
        if step and step >= (steps := len(self)):  # type: ignore[arg-type]
            raise ValueError(f"state_dict: step {step}, expected below the {steps} of an epoch")
        self._order.go_to(epoch, step)


class SeedLoader(Resumable, DataLoader[Data]):
    """What the loaders of seeds share: a batch of seeds, order, epochs, processes and workers.

    ================  ==============  ======================================================
    of every batch    shape           content
    ================  ==============  ======================================================
    `n_id`            int64 [n]       the nodes in the whole graph, seeds first
    `input_id`        int64 [S]       the seeds' places in `input_nodes`
    `batch_size`      int             S
    `loss_weight`     float           world_size * S / (the seeds of all processes in this step)
    `x`, `y`, ...     [n, ...]        the rows of these n nodes, and no others
    ================  ==============  ======================================================

    Where processes average their gradients, each multiplies its mean over the S seeds by
    `loss_weight`: that is the mean over all seeds of the step. One process has 1.

    Patterns read `edge_weight`. Other attributes of edges stay behind, but for those that
    `attributes` names: a batch then has their rows in the order of the edges of `neighborhood`, or
    a list of them, as `neighborhoods`; a pattern that makes edges of its own is refused. Numbers
    and strings are in every batch. An attribute that may speak of pairs is refused, which its name
    and shape tell: node ids *in* an attribute with a row for each node stay those of the whole
    graph, which `n_id` translates.

    A batch is a function of (seed, epoch, place in the epoch): the same bits for any number of
    workers, whichever makes it, and for a run that begins at a later epoch or, by `state_dict` and
    `load_state_dict`, within one. Every iteration is an epoch of its own, from 0; `set_epoch` says
    which one comes next, so ``set_epoch(0)`` before each evaluation gives it the same draws. The
    global random state is neither read nor changed.

    Args:
        data: `Data`, `HeteroData` with `edge_type`, a `GraphFolder`, or a pair (FeatureStore,
            GraphStore) of one node type and without weights.
        make: What draws a batch, made of the graph and of `input_nodes`.
        input_nodes: The seeds, ids or a Bool mask; None is all nodes.
        node_order: Of a `GraphFolder` whose nodes were moved into parts, which nodes `input_nodes`
            and `part` mean: "original" is those of the data that was written, "folder" those of
            the folder, as `n_id`. Has to be said unless they are tensors of `folder.node` or
            `folder.part` themselves. Changes nothing for other data.
        edge_type: Of `HeteroData` the relation to take, such as ("paper", "cites", "paper"), with
            its one type of nodes, whose ids all ids then are. None for other data.
        attributes: Names of what travels with nodes and edges; None is all of nodes that can.
        transform: Called on each finished batch, by the process that made it: a worker where there
            are any, to which it must pickle unless they are forked. What it draws from torch's
            global state is a function of (seed, epoch, place), too. None changes nothing.
        batch_size: Seeds in a batch, at least 1.
        shuffle: Put the seeds into another order in every epoch.
        drop_last: Leave a last batch of fewer seeds out.
        seed: Of order and draws, 0 or more.
        rank: Which of `world_size` processes this one is, from 0. None for both takes those of
            torch's process group, or one process where none is initialized.
        world_size: Processes that share the seeds, each with a loader like this one but for `rank`.
            Together they hold world_size * batch_size seeds at a time, which they part evenly: all
            have the same number of batches, and no seed comes twice. A process with
            world_size = 1 that takes the same seeds in as many batches draws the same. The sampler
            is a `DistributedSampler`, which Lightning and Ray leave as it is.
        options: `num_workers`, `prefetch_factor`, `persistent_workers`, `pin_memory`, `timeout`,
            `worker_init_fn`, `multiprocessing_context`: see `torch.utils.data.DataLoader`.

    Raises:
        TypeError: `HeteroData` without a relation or no graph at all, seeds that are no node ids, a
            transform that cannot be called, an option that the loader decides itself, or one that
            torch does not know.
        ValueError: An attribute that cannot be cut (it is named), no nodes, no seeds, a seed that
            comes twice, a number out of its range, or a last batch with fewer seeds than processes.
        IndexError: A seed that does not exist.
    """

    def __init__(
        self, data: Any, make: Callable[[NodeSource, Any], SeedBatches], *,
        input_nodes: Any = None, node_order: Literal["original", "folder"] | None = None,
        edge_type: tuple[str, str, str] | None = None, attributes: Sequence[str] | None = None,
        transform: Callable[[Data], Any] | None = None, batch_size: int = 1, shuffle: bool = False,
        drop_last: bool = False, seed: int = 0, rank: int | None = None,
        world_size: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        source = source_of(data, attributes, edge_type)
        if source.is_original("input_nodes", input_nodes, node_order):
            before = seeds_of(input_nodes, source.graph.num_dst)
            input_nodes = before._replace(nodes=source.ids(before.nodes))
        batches = make(source, input_nodes)
        check_numbers(batch_size=(batch_size, 1), seed=(seed, 0))
        for name in _OURS:
            if name in options:
                raise TypeError(f"{name}: the loader decides it itself, expected no such option")
        if transform is not None and not callable(transform):
            kind = type(transform).__name__
            raise TypeError(f"transform: got {kind}, expected a function of a batch, or None")
        batches.seed, batches.transform = seed, transform
        # A pattern that does not fit says so here and not in a worker; and what is computed once a
        # graph is there before workers are forked.
        batches.draw(batches.nodes[:1], torch.Generator())
        given = (rank, world_size)
        self._order = Order(batches.counts, batch_size, shuffle, drop_last, seed, given)
        super().__init__(
            batches, sampler=self._order, batch_size=None, collate_fn=_unchanged,
            generator=torch.Generator(),  # otherwise it draws from global state
            **options,
        )  # fmt: skip

    def __iter__(self) -> Any:
        """Yield the batches of one epoch."""
        # Not in the sampler's __iter__, which DataLoader calls twice an epoch with workers.
        self._order.begin()
        source: NodeSource = self.dataset.source  # type: ignore[attr-defined]
        if source.held:
            source.graph.check_unchanged()
        return handed_out(super().__iter__(), self._order, *self._order.at)


def handed_out(found: Iterator[Any], order: Order, epoch: int, step: int) -> Iterator[Any]:
    """The same, and the order knows how many were; the death of a worker is named."""
    try:
        for place, batch in enumerate(found, step + 1):
            order.at = epoch, place
            yield batch
    except (EOFError, ConnectionError) as error:
        raise RuntimeError(
            "num_workers: a worker of the loader died as it sent a batch, for want of memory "
            "perhaps; expected workers that live, so take fewer or num_workers=0"
        ) from error


def place_of_process(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank of this process among how many: as given, else as in torch's process group.

    Raises:
        ValueError: If one is given without the other, or if the rank is not below `world_size`.
    """
    group = distributed.is_available() and distributed.is_initialized()
    known = (distributed.get_rank(), distributed.get_world_size()) if group else (0, 1)
    if rank is None and world_size in (None, known[1]):
        return known
    if rank is None and world_size == 1:
        rank = 0
    if rank is None or world_size is None:
        raise ValueError(
            f"rank: got {rank} with world_size={world_size}, expected both or none of them"
        )
    check_numbers(rank=(rank, 0), world_size=(world_size, 1))
    if rank >= world_size:
        raise ValueError(f"rank: got {rank}, expected below world_size={world_size}")
    if world_size == 1 < known[1]:
        warnings.warn(
            f"world_size: got 1 in a process group of {known[1]}, so each process takes all seeds; "
            "leave rank and world_size out to share them",
            stacklevel=3,
        )
    return rank, world_size


def check_numbers(**numbers: tuple[Any, int]) -> None:
    """Raise for what is no whole number from its least value on."""
    for name, (value, least) in numbers.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: got {value!r}, expected a whole number from {least} on")


class Order(DistributedSampler[Any]):
    """The seeds of each batch of a process; the loader counts the epochs."""

    def __init__(
        self, counts: Tensor, batch_size: int, shuffle: bool, drop: bool, seed: int,
        given: tuple[int | None, int | None], place: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        (rank, world_size), seeds = place or place_of_process(*given), len(counts)
        super().__init__(cast(Any, range(seeds)), world_size, rank, shuffle, seed, drop)
        self.counts, self.given, self.seeds, self.drop = counts, given, seeds, drop
        self.world, self.size = world_size, batch_size * world_size
        self.go_to(0)
        left = 0 if drop else seeds % self.size
        if 0 < left < world_size:
            raise ValueError(
                f"world_size: got {world_size} processes for a last batch of {left} seeds, "
                "expected at least one seed for each; drop_last=True leaves that batch out"
            )

    def go_to(self, epoch: int, step: int = 0) -> None:
        """Where the next iteration begins."""
        self.at = self.next = epoch, step

    def facts(self) -> dict[str, Any]:
        """What another loader must have alike for the same batches."""
        numbers = {"seeds": self.seeds, "batch_size": self.size // self.world, "seed": self.seed}
        return numbers | {
            "world_size": self.world, "shuffle": self.shuffle, "drop_last": self.drop,
        }  # fmt: skip

    def set_epoch(self, epoch: int) -> None:
        """Nothing: frameworks call this, and every iteration is an epoch of its own."""

    def begin(self) -> None:
        """The next epoch; raises where a process group came to be after the loader."""
        if self.given == (None, None):
            rank, world = place_of_process(None, None)
            if world != self.world or rank != self.rank:
                raise RuntimeError(
                    f"rank: the loader was made for process {self.rank} of {self.world} and runs "
                    f"in process {rank} of {world}, expected the same; make it after "
                    "init_process_group, or give rank and world_size"
                )
        self.at, self.next = self.next, (self.next[0] + 1, 0)
        self.epoch, self.first = self.at

    def __len__(self) -> int:
        return self.seeds // self.size if self.drop else math.ceil(self.seeds / self.size)

    def __iter__(self) -> Iterator[Any]:  # of keys
        return self._keys(self.epoch, self.first)  # of this epoch, even if the next one begins

    def _keys(self, epoch: int, first: int) -> Iterator[Key]:
        order = torch.arange(self.seeds)
        if self.shuffle:
            generator = torch.Generator().manual_seed(derive(self.seed, _ORDER, epoch))
            order = torch.randperm(self.seeds, generator=generator)
        shared = order.split(self.size)[: len(self)]
        for step, positions in enumerate(shared[first:], first):
            mine = positions.tensor_split(self.world)[self.rank]
            weight = self.world * int(self.counts[mine].sum()) / int(self.counts[positions].sum())
            yield mine, epoch, step * self.world + self.rank, weight


def _unchanged(batch: Data) -> Data:
    return batch


class Seeds(NamedTuple):
    """Node ids [S], and what PyG calls their `input_id` [S]."""

    nodes: Tensor
    input_id: Tensor


def seeds_of(input_nodes: Any, num_nodes: int, *, repeated: bool = False) -> Seeds:
    """The seeds that were given; None is all nodes."""
    everyone = torch.arange(num_nodes)
    if isinstance(input_nodes, Seeds):
        return input_nodes
    if input_nodes is None:
        return Seeds(everyone, everyone)
    if isinstance(input_nodes, (list, range, np.ndarray)) and len(input_nodes):
        with suppress(ValueError, TypeError):  # of what is no number; it is named below
            input_nodes = torch.as_tensor(input_nodes)
    if not isinstance(input_nodes, Tensor) or input_nodes.dim() != 1:
        shape = tuple(input_nodes.shape) if isinstance(input_nodes, Tensor) else repr(input_nodes)
        raise TypeError(f"input_nodes: got {shape}, expected ids [S], a Bool mask [N], or None")
    if input_nodes.dtype == torch.bool and len(input_nodes) != num_nodes:
        raise ValueError(f"input_nodes: mask of {len(input_nodes)}, expected {num_nodes} nodes")
    if input_nodes.dtype == torch.bool:
        nodes = input_id = input_nodes.cpu().nonzero().flatten()
    elif input_nodes.dtype in (torch.int64, torch.int32):
        nodes, input_id = input_nodes.long().cpu(), torch.arange(len(input_nodes))
    else:
        raise TypeError(f"input_nodes: dtype {input_nodes.dtype}, expected int64 ids or a mask")
    check_index("input_nodes", nodes, num_nodes)
    if len(nodes) == 0:
        raise ValueError("input_nodes: empty, expected at least one node")
    if not repeated and bool((twice := torch.bincount(nodes) > 1).any()):
        raise ValueError(
            f"input_nodes: node {int(twice.nonzero()[0])} comes twice, expected each once"
        )
    return Seeds(nodes, input_id)
