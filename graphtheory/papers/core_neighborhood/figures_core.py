"""Where distance decides: labels that the nodes at distance z give, on the graph of a data set."""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any
from zlib import crc32

from torch import Generator, randperm
from torch_geometric.utils import to_undirected

from graphtheory.lab.bench.node_config import NodeRunConfig, train_nodes
from graphtheory.lab.bench.rows import Row, Table, percent_spread
from graphtheory.lab.bench.task import RunResult
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.embedded import MajorityAtDistance
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.splits import by_fraction
from graphtheory.models import GraphTransformer
from graphtheory.papers.claims import Level, over
from graphtheory.papers.figure import DataSets, Figure, Verdict, verdict_of
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import error_curves
from graphtheory.papers.pivot import Measurements, Shown, groups

TASK = "core-distance"
_HEADS: dict[str, tuple[Any, ...]] = {"heads": (1, 4)}
_SHARED: dict[str, tuple[Any, ...]] = {
    "residual": (True,),
    "hidden": (32,),
    "dropout": (0.0, 0.1),
    "lr": (0.005, 0.01),
    "weight_decay": (0.0, 5e-4),
}
_EXTRA = {"gt": _HEADS | {"bias_lr": (None, 0.05)}, "gt-plain": _HEADS, "gat-res": _HEADS}


def candidates(model: str, budget: int) -> list[NodeRunConfig]:
    """Different draws of the options; depth and neighbors are those of the network.

    An option of n values takes each once in n draws; networks share draw i where both have it.
    """
    found: list[NodeRunConfig] = []
    for i in range(50 * budget):
        draw = {}
        for name, values in (_SHARED | _EXTRA.get(model, {})).items():
            turn, place = divmod(i, len(values))
            generator = Generator().manual_seed(crc32(f"{name} {turn}".encode()))
            draw[name] = values[int(randperm(len(values), generator=generator)[place])]
        if (config := NodeRunConfig.of(model, **draw)) not in found:
            found.append(config)
        if len(found) == budget:
            break
    return found


@dataclass(frozen=True)
class Network:
    """What is trained: one layer on a ball, or z layers of one hop each."""

    name: str  # in tables and pictures
    model: str  # one of `lab.zoo.node_models.NAMES`
    beyond: int | None = None  # the ball has z + `beyond` hops; None for layers of one hop

    def trial(self, chosen: NodeRunConfig, z: int) -> NodeRunConfig:
        """The options of a candidate on this network's neighbors and depth."""
        wide = self.beyond is not None
        network = replace(
            chosen.network, layers=1 if wide else max(z, 2 * (self.model == "mlp")),
            neighbors=str(z + (self.beyond or 0)) if wide else "1",
        )  # fmt: skip
        return replace(chosen, network=network)


BALL, PLAIN = Network("gt, ball of z", "gt", 0), Network("gt-plain, ball of z", "gt-plain", 0)
WIDER = Network("gt, ball of z + 1", "gt", 1)
WIDER_PLAIN = Network("gt-plain, ball of z + 1", "gt-plain", 1)
ONE_HOP = (
    Network("gt, one hop x z", "gt"),
    Network("gat, one hop x z", "gat-res"),
    Network("gcn, one hop x z", "gcn-res"),
    Network("mlp", "mlp"),
)
GAINED: tuple[int, ...] = (2, 3)
"""Values of z at which the encoding is claimed to gain."""
NETWORKS = (BALL, PLAIN, WIDER, WIDER_PLAIN, *ONE_HOP)


@dataclass(frozen=True)
class CoreDistance(Grid):
    """Networks on labels that nodes at distance z decide.

    Edges are taken in both directions. A seed draws patterns, noise, split and weights. All
    networks are residual stacks of the same width; the options that are left are chosen for each of
    them at each z, by the validation score on the first seed, from as many candidates.
    """

    dataset: str = TASK  # a graph, whose edges are taken and nothing else
    root: Path | None = unrecorded(None)
    distances: tuple[int, ...] = axis("z", (1, 2, 3, 4, 5))  # hops
    networks: tuple[Network, ...] = axis("network", NETWORKS)
    farthest: int = 5  # hops of the largest ball; a wider one is left out
    budget: int = 4  # candidates of a network
    epochs: int = 100  # upper bound for each training
    patience: int = 100  # epochs without a better validation score
    seeds: int = axis("seed", 5)


FARTHEST = {"actor": 2, "facebook": 2}
"""Hops within which the balls of a graph have fewer than ten million pairs, where 5 have more."""


def on_dataset(grid: CoreDistance, dataset: str, root: Path | None) -> CoreDistance:
    """The grid on a graph, of distances whose balls are affordable."""
    farthest = FARTHEST.get(key(dataset), grid.farthest)
    distances = tuple(z for z in grid.distances if z <= farthest)
    return replace(grid, dataset=dataset, root=root, farthest=farthest, distances=distances)


def scores(grid: CoreDistance, z: int, network: Network, seed: int) -> list[Measured]:
    """The test accuracy, what has no label, and the learned b at each distance."""
    if z + (network.beyond or 0) > grid.farthest:
        return []
    data = _draw(grid.dataset, grid.root, z, seed)
    trial = chosen(replace(grid, distances=(z,), networks=(network,), seeds=1))
    outcome = _train(grid, trial, data, seed)
    found: Measured = {
        "z": z, "network": network.name, "seed": seed, "test": outcome.fit.test,
        "labeled": int((data.y >= 0).sum()), "ties": int(data.tie.sum()),
        "empty": int(data.empty.sum()), "trial": trial.as_dict(),
    }  # fmt: skip
    model = outcome.model
    if network.beyond is not None and isinstance(model, GraphTransformer) and network.model == "gt":
        learned = model.bucket_bias_table()[0].mean(1)[: z + network.beyond + 1]  # over heads
        found["b"] = (learned - learned.mean()).tolist()  # a constant changes no attention weight
    return [found]


@lru_cache(maxsize=64)
def chosen(cell: CoreDistance) -> NodeRunConfig:
    """The best candidate of the one network of a grid, at its one distance, on its first seed."""
    (z,), (network,) = cell.distances, cell.networks
    data = _draw(cell.dataset, cell.root, z, 0)
    found = [network.trial(candidate, z) for candidate in candidates(network.model, cell.budget)]
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda trial: _train(cell, trial, data, 0).fit.val)


def _train(grid: CoreDistance, trial: NodeRunConfig, data: Data, seed: int) -> RunResult:
    return train_nodes(trial, data, seed=seed, epochs=grid.epochs, patience=grid.patience)


@lru_cache(maxsize=1)
def _draw(dataset: str, root: Path | None, z: int, seed: int) -> Data:
    edges = _edges(dataset, root)
    generator = Generator().manual_seed(seed)
    data = MajorityAtDistance(z).sample(*edges, generator)
    data.train_mask, data.val_mask, data.test_mask = by_fraction(
        data.y, val=0.2, test=0.2, generator=generator
    )
    data.num_classes, data.metric = MajorityAtDistance().num_patterns, "accuracy"
    return data


@lru_cache(maxsize=1)
def _edges(dataset: str, root: Path | None) -> tuple[Any, int]:
    data = graphs.load(dataset, root)
    return to_undirected(data.edge_index, num_nodes=data.num_nodes), int(data.num_nodes)


by_network = partial(over("z", "test", "{network}"), None)
"""Measurements -> name of a network -> z -> the test accuracy of each seed."""


def gains(grid: CoreDistance, measured: Measurements) -> dict[str, dict[int, list[float]]]:
    """Ball -> z of 2 and 3 -> what the encoding gains with each seed, in points."""
    found = by_network(measured)
    out: dict[str, dict[int, list[float]]] = {}
    for ball, other in ((BALL, PLAIN), (WIDER, WIDER_PLAIN)):
        both = found.get(ball.name, {}), found.get(other.name, {})
        paired = {
            z: [100 * (a - b) for a, b in zip(both[0][z], both[1][z], strict=True)]
            for z in GAINED
            if z in both[0] and z in both[1]
        }
        if paired:
            out[ball.name.removeprefix("gt, ")] = paired
    return out


def peaks(grid: CoreDistance, measured: Measurements) -> Verdict:
    """In how many networks b is largest at z, of all distances that they see."""
    told, rows = [], []
    for (name,), mine in groups((one for one in measured if "b" in one), "network").items():
        at = [max(range(len(one["b"])), key=one["b"].__getitem__) == one["z"] for one in mine]
        rows.append(Row.of("b is largest at z", fmean(at), "1", network=name))
        verdict = verdict_of(all(at), grid.seeds)
        told.append(
            f"{name}: b is largest at distance z in {sum(at)} of {len(at)} networks, "
            f"claimed in all: {verdict}."
        )
    return Verdict(" ".join(told), rows)


def _show(grid: CoreDistance, measured: Measurements) -> Shown:
    found = by_network(measured)
    distances = sorted({one["z"] for one in measured})
    lines = [
        [name, *(percent_spread(of[z], ".1f") if z in of else "" for z in distances)]
        for name, of in found.items()
    ]
    about = {"dataset": grid.dataset}
    rows = [
        Row.of("test accuracy", of[z], "1", network=name, z=z, **about)
        for name, of in found.items()
        for z in sorted(of)
    ]
    for ball, of in gains(grid, measured).items():
        rows += [Row.of("gain", values, "points", ball=ball, z=z, **about)
                 for z, values in of.items()]  # fmt: skip
    for (name, z), mine in groups((o for o in measured if "b" in o), "network", "z").items():
        for distance, values in enumerate(zip(*(one["b"] for one in mine), strict=True)):
            about_b = about | {"network": name, "z": z, "distance": distance}
            rows.append(Row.of("learned b", list(values), "1", **about_b))
    first = groups((one for one in measured if one["seed"] == measured[0]["seed"]), "z")
    note = "Nodes without a label, first seed: " + "; ".join(
        f"z = {z}: {of[0]['ties']} ties, {of[0]['empty']} without a node there, "
        f"{of[0]['labeled']} left"
        for (z,), of in first.items()
    )
    heads = ["network", *(f"z = {z}" for z in distances)]
    return Shown(Table("test accuracy %", heads, lines, note=f"{note}."), rows)


def _picture(grid: CoreDistance, measured: Measurements, title: str) -> Any:
    layered = {network.name for network in ONE_HOP}
    scores = [
        {"series": one["network"], "at": one["z"], "error": 100 * one["test"],
         "panel": f"test accuracy (%), {'z layers' if one['network'] in layered else 'one layer'}"}
        for one in measured
    ]  # fmt: skip
    learned = groups((one for one in measured if "b" in one), "z", "network")
    widest = {z: mine for name in (BALL.name, WIDER.name)
              for (z, network), mine in learned.items() if network == name}  # fmt: skip
    bias = [
        {"panel": "learned b, mean removed", "series": f"labels by z = {z}", "at": hops, "error": b}
        for z, mine in sorted(widest.items())
        for one in mine
        for hops, b in enumerate(one["b"])
    ]
    return error_curves([*scores, *bias], xlabel="distance (hops)", title=title, axis=None)


def _quick(grid: CoreDistance) -> CoreDistance:
    networks = tuple(network for network in grid.networks if network.beyond != 1)
    few = tuple(z for z in grid.distances if z == 2) or grid.distances[:1]
    return replace(grid, distances=few, networks=networks, seeds=1, budget=1, epochs=60)


FIGURES = (
    Figure(
        "core-distance", "labels that nodes at distance z decide: distance encoding or depth",
        CoreDistance(), scores, _show,
        (
            Level(what="the gain of the encoding in points", letter="z", read=gains, low=5,
                  digits=".1f"),
            peaks,
        ),
        _picture, _quick, DataSets(TASK), on_dataset,
    ),
)  # fmt: skip
