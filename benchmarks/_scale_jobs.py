"""What `scale.py` trains: networks, each with the batches that it learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader
from graphtheory.lab.zoo.node_models import NetworkConfig, build, pattern_of
from graphtheory.models import SampledGCN
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    KHop,
    Pattern,
    Sample,
    SymmetricNormalize,
)

Network = Literal[
    "gt, attention sets", "gcn, LADIES", "gat, full", "gcn, full", "mlp, full",
    "gt, full, 3 x 256", "gcn, full, 3 x 256",
]  # fmt: skip
NORMALIZED = Compose(AddSelf(), SymmetricNormalize())
WIDTH, HEADS = 64, 4
_SMALL = NetworkConfig(hidden=WIDTH, heads=HEADS, layers=2, dropout=0.2)
_WIDE = NetworkConfig(hidden=256, heads=HEADS, layers=3, dropout=0.5, batch_norm=True)
_STEPS = {_SMALL: 0.02, _WIDE: 0.005}


class SeedTransformer(nn.Module):
    """One layer of attention with distance encoding, from each seed to its set, and two maps."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            nn.Linear(in_channels, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Dropout(0.2)
        )
        self.attend = SPDTransformerConv(WIDTH, WIDTH // HEADS, HEADS, num_buckets=5)
        self.leave = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(2 * WIDTH, out_channels),
        )  # fmt: skip

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Scores of the seeds, which come first in x."""
        hidden = self.enter(x)
        seeds = hidden[: neighborhood.num_dst]
        return self.leave(seeds + self.attend((hidden, seeds), neighborhood))


@dataclass(frozen=True)
class Job:
    """A network, and how it is fed.

    Args:
        model: The network.
        lr: Adam's step size.
        batches: The training batches of an epoch.
        logits: Scores of a batch's labeled nodes.
        labels: Their classes.
        predict: Scores [N, C]; rows of nodes outside validation and test may be zeros.
    """

    model: nn.Module
    lr: float
    batches: Callable[[int], Iterable[Any]]
    logits: Callable[[Any], Tensor]
    labels: Callable[[Any], Tensor]
    predict: Callable[[], Tensor]


def job_of(network: Network, data: Data, *, batch_size: int, seed: int) -> Job:
    """The network with the parameters of `seed`.

    Args:
        network: Which one.
        data: x, y, edge_index, masks and num_classes.
        batch_size: Seeds of a sampled batch.
        seed: Of parameters, order and samples.
    """
    torch.manual_seed(seed)
    options = {"batch_size": batch_size, "shuffle": True, "seed": seed}
    if network == "gcn, LADIES":
        return _node_sets(data, options)
    if network == "gt, attention sets":
        return _attention_sets(data, options)
    return _full(network.partition(",")[0], data, _WIDE if "256" in network else _SMALL)


def sampled_gcn(data: Data, options: dict[str, Any]) -> tuple[NodeSetLoader, SampledGCN]:
    """Three layers, 8 * batch_size sources drawn for each."""
    sampler = Compose(NORMALIZED, LADIES(8 * options["batch_size"]))
    own = {"input_nodes": data.train_mask, "attributes": ["x", "y"]}
    model = SampledGCN(data.x.size(1), WIDTH, data.num_classes)
    return NodeSetLoader(data, sampler, 3, **own, **options), model


def attention_sets(
    data: Data, options: dict[str, Any], nodes: Tensor | None = None
) -> AttentionSetLoader:
    """30 nodes of each seed's ball of two hops, drawn afresh, and the seed itself."""
    pattern: Pattern = Compose(KHop(2), Sample(30), AddSelf())
    seeds = data.train_mask if nodes is None else nodes
    return AttentionSetLoader(data, pattern, input_nodes=seeds, attributes=["x", "y"], **options)


def _labels(batch: Data) -> Tensor:
    return batch.y[: batch.batch_size]


def _epochs_of(loader: Any) -> Callable[[int], Iterable[Data]]:
    def epoch(number: int) -> Iterable[Data]:
        loader.set_epoch(number)
        return loader

    return epoch


def _node_sets(data: Data, options: dict[str, Any]) -> Job:
    data = data.clone("x")
    data.x = normalize(data.x)  # norm 1 is what the network starts from
    loader, model = sampled_gcn(data, options)
    whole = loader.dataset.base
    return Job(
        model, 0.01, _epochs_of(loader),
        lambda batch: model(batch.x, batch.neighborhoods), _labels, lambda: model(data.x, whole),
    )  # fmt: skip


def _attention_sets(data: Data, options: dict[str, Any]) -> Job:
    loader = attention_sets(data, options)
    model = SeedTransformer(data.x.size(1), data.num_classes)
    scored = attention_sets(data, options | {"shuffle": False}, data.val_mask | data.test_mask)

    def predict() -> Tensor:
        found = torch.zeros(data.num_nodes, data.num_classes)
        scored.set_epoch(0)
        for batch in scored:
            found[batch.n_id[: batch.batch_size]] = model(batch.x, batch.neighborhood)
        return found

    return Job(
        model, 0.003, _epochs_of(loader),
        lambda batch: model(batch.x, batch.neighborhood), _labels, predict,
    )  # fmt: skip


def _full(name: str, data: Data, config: NetworkConfig) -> Job:
    sizes = {"num_features": data.x.size(1), "num_classes": data.num_classes}
    model, pattern = build(name, config, **sizes), pattern_of(name, config)
    graph = pattern(Neighborhood.from_edge_index(data.edge_index, data.num_nodes))
    train, labels = data.train_mask, data.y[data.train_mask]
    return Job(
        model, _STEPS[config], lambda epoch: [None],
        lambda batch: model(data.x, graph)[train], lambda batch: labels,
        lambda: model(data.x, graph),
    )  # fmt: skip
