"""PyG's `NodeLoader` for samplers that draw layer by layer: batches with an `edge_index`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, SamplerOutput

from graphtheory.data.loaders.seeds import Order, Resumable, check_numbers, handed_out, seeds_of
from graphtheory.data.loaders.sets import check_layers
from graphtheory.data.loaders.source import Draws, source_of
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import distinct_ids
from graphtheory.patterns import Compose, Pattern, on_rows
from graphtheory.patterns.base import apply_fixed
from graphtheory.patterns.draw import derive, edge_weight


class LayerWiseLoader(Resumable, NodeLoader):
    r"""PyG's `NodeLoader` with one of our samplers: batches for PyG's own layers.

    ==================  =============  ======================================================
    of a batch          shape          content
    ==================  =============  ======================================================
    `edge_index`        int64 [2, E]   edges into the seeds first, then edges into those
                                       sources, and so on
    `edge_weight`       [E]            the weights of the draw, whose mean is A* in every layer
    `n_id`, `e_id`      [n], [E]       nodes and edges in the whole graph, seeds first
    `loss_weight`       float          as in `SeedLoader`
    `num_sampled_...`   lists          nodes and edges of each hop, as `trim_to_layer` takes them
    ==================  =============  ======================================================

    Every hop has copies of the nodes that it reached, with rows of their own draw, so that a node
    may come several times in `n_id`: one list of edges then holds a draw for each layer, and layer
    k of ``conv(x, edge_index, edge_weight)`` computes for the seeds what the k-th of
    `NodeSetLoader`'s neighborhoods does, with `trim_to_layer` or without. Layers must take the
    weights and make none of their own: ``GCNConv(normalize=False)``, ``GraphConv(aggr="add")``.
    A norm over the nodes of a batch sees copies.

    A batch is a function of (seed, epoch, its seeds), the same for any number of workers, and a run
    goes on within an epoch by `state_dict` and `load_state_dict`. `persistent_workers` outlive the
    epoch: with them each draw follows the random state of its worker, and a state within an epoch
    is refused, as beside a `sampler` of your own.

    Args:
        data: `Data` with `edge_index`, its `edge_weight` (or ones) A:
            ``torch_geometric.transforms.GCNNorm()(data)`` for a GCN.
        pattern: A sampler that draws among these edges and adds none.
        num_layers: At least 1.
        input_nodes: The seeds, ids (which may come again) or a Bool mask; None is all nodes.
        rank: Which of `world_size` processes this one is; None as in `SeedLoader`.
        world_size: Processes that share the seeds as those of a `SeedLoader` do. None as there.
        seed: Of order and draws, 0 or more; None is 0 of several processes, and of one a number
            from torch's global random state, which `state_dict` tells and `load_state_dict` takes.
        options: Those of PyG's `NodeLoader`, such as `transform`, and of torch's loader.

    Raises:
        TypeError: Other data, no pattern, or `transform_sampler_output`, which could change edges
            that have their weights.
        ValueError: A pattern that adds edges, fewer than one layer, or an attribute that cannot be
            cut.

    Source: Zou et al. (2019), algorithm 1, for the samplers here.

    Example:
        >>> from graphtheory.patterns import FastGCN
        >>> path = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = LayerWiseLoader(path, FastGCN(4, replace=False), 2, input_nodes=[3])
        >>> batch = next(iter(loader))
        >>> batch.n_id.tolist(), batch.edge_index.tolist(), batch.num_sampled_nodes
        ([3, 2, 1], [[1, 2], [0, 1]], [1, 1, 1])
    """

    def __init__(
        self,
        data: Data,
        pattern: Pattern,
        num_layers: int,
        *,
        input_nodes: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        given = (rank, world_size)
        if not isinstance(data, Data) or "edge_index" not in data:
            kind = type(data).__name__
            raise TypeError(f"data: got {kind}, expected Data with edge_index")
        check_layers(pattern, num_layers)
        if options.get("transform_sampler_output") is not None:
            raise TypeError("transform_sampler_output: edges have weights here, expected None")
        self._then = options.pop("transform", None)
        graph = source_of(data, None).own
        seeds, input_id = seeds_of(input_nodes, graph.num_dst, repeated=True)
        drawn = _LayerWise(pattern, data, graph, num_layers)
        check_numbers(batch_size=(size := options.get("batch_size") or 1, 1), seed=(seed or 0, 0))
        names = ("sampler", "batch_sampler")
        self._own = [name for name in names if options.get(name) is not None]
        if self._own and given != (None, None):
            raise TypeError(f"{self._own[0]}: shares the seeds itself, expected none beside rank")
        self._order: _Nodes = _Nodes(
            torch.ones_like(seeds), size, options.get("shuffle") or False,
            options.get("drop_last", False), seed or 0, (0, 1) if self._own else given,
            (0, 1) if self._own else None,
        )  # fmt: skip
        self._any_seed = seed is None and self._order.world == 1
        if self._any_seed:
            self._order.seed = _number()
        if not self._own:
            options |= {"sampler": self._order, "shuffle": None}
        super().__init__(data, drawn, seeds, input_id=input_id, **options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("step") and (self._own or self.persistent_workers):
            raise ValueError(
                f"state_dict: step {state_dict['step']} of an epoch whose draws follow "
                f"{'a sampler of your own' if self._own else 'persistent_workers'}, expected the "
                "state at the end of an epoch"
            )
        if self._any_seed:
            self._order.seed = state_dict.get("seed", self._order.seed)
        super().load_state_dict(state_dict)

    def __iter__(self) -> Iterator[Any]:
        """An epoch, with draws of its own."""
        order = self._order
        order.begin()
        keyed = not self.persistent_workers
        self.node_sampler.epoch = derive(order.seed, order.epoch) if keyed else None
        found = super().__iter__()
        found = found if self._own else _weighed(found, order.weights())
        return handed_out(found, order, *order.at)

    def filter_fn(self, out: SamplerOutput) -> Any:
        """The batch of a draw, with its weights."""
        batch = super().filter_fn(out)
        batch.edge_weight = out.metadata[2]
        return batch if self._then is None else self._then(batch)


def _weighed(batches: Iterator[Any], weights: list[float]) -> Iterator[Any]:
    """The same, and what is still a batch after its transform has a weight."""
    for batch, weight in zip(batches, weights, strict=True):
        if isinstance(batch, Data):
            batch.loss_weight = weight
        yield batch


class _Nodes(Order):
    """The seeds of this process one by one, which torch's loader puts together to batches."""

    def weights(self) -> list[float]:
        """The `loss_weight` of each batch of the epoch."""
        return [weight for *_, weight in super().__iter__()]

    def __len__(self) -> int:
        last = self.seeds - (super().__len__() - 1) * self.size
        of_all = range(self.rank, min(last, self.size), self.world)
        return (super().__len__() - 1) * (self.size // self.world) + len(of_all)

    def __iter__(self) -> Iterator[Any]:
        keys = super().__iter__()
        return (node for positions, *_ in keys for node in positions.tolist())


class _LayerWise(Draws, BaseSampler):
    """Draws for `LayerWiseLoader`; the weights are the third part of the metadata."""

    def __init__(self, pattern: Pattern, data: Data, graph: Neighborhood, num_layers: int) -> None:
        self.pattern, self.edge_index, self.num_layers = pattern, data.edge_index, num_layers
        self.epoch: int | None = None
        base, sampler = apply_fixed(pattern, graph)
        self.base = base._changed()._seal()
        self.sampler = sampler or Compose()
        everyone, generator = torch.arange(graph.num_dst), torch.Generator()
        self._check(unrolled(self.sampler, self.base, everyone, 1, generator=generator)[0])

    def sample_from_nodes(self, index: Any, **_: Any) -> SamplerOutput:
        epoch = self.epoch
        seed = _number() if epoch is None else derive(epoch, *index.input_id.tolist())
        generator = torch.Generator().manual_seed(seed)
        out, weight = unrolled(
            self.sampler, self.base, index.node, self.num_layers, generator=generator
        )
        self._check(out)
        out.metadata = (index.input_id, index.time, weight)
        return out

    def sample_from_edges(self, *_: Any, **__: Any) -> SamplerOutput:
        raise NotImplementedError("LayerWiseLoader: seeds are nodes, expected no edges")

    def _check(self, out: SamplerOutput) -> None:
        """Raise unless these are edges of the data: others have no ids in it."""
        drawn = out.node[torch.stack([out.row, out.col])]
        known = (out.edge >= 0) & (out.edge < self.edge_index.size(1))
        if (
            self.base.perm is None
            or not bool(known.all())
            or not torch.equal(self.edge_index[:, out.edge].long(), drawn)
        ):
            raise ValueError(
                f"pattern: {self.pattern} adds edges, expected one that draws among those of data; "
                "give data the others first, as transforms.GCNNorm does self-loops"
            )


def _number() -> int:
    """A seed that torch's global random state gives."""
    return int(torch.randint(2**62, ()))


def unrolled(
    sampler: Pattern,
    graph: Neighborhood,
    seeds: Tensor,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[SamplerOutput, Tensor]:
    """A draw for each layer, hop by hop from the seeds, and the weight of each edge."""
    nodes, parts, first = [seeds], [], 0
    for _ in range(num_layers):
        rows = on_rows(sampler, graph, nodes[-1], generator=generator)
        sources, place = distinct_ids(rows.indices, rows.num_src)
        after = first + len(nodes[-1])
        edge = torch.full_like(place, -1) if rows.perm is None else rows.perm
        parts.append((place + after, rows.targets() + first, edge, edge_weight(rows)))
        nodes.append(sources)
        first = after
    row, col, edge, weight = (torch.cat(part) for part in zip(*parts, strict=True))
    counts = [len(part[0]) for part in parts]
    node = torch.cat(nodes)
    return SamplerOutput(node, row, col, edge, None, [len(n) for n in nodes], counts), weight
