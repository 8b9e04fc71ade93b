"""Which default options of a graph pay: what the kept search logs say, and runs on validation.

    python benchmarks/default_options.py                                         # the logs; trains nothing
    python benchmarks/default_options.py --sets Cornell minesweeper --variants before now --seeds 3
    python benchmarks/default_options.py --sets Actor Cora --part 240

Without `--sets` it reads benchmarks/results/search-*.jsonl: of each option the value that did best on
the other graphs, and what it is worth on the one that was left out, where the other graphs are all of
them, those on the same side of homophily, those with as many columns of features, or as many labels of
a class. A candidate's worth is its validation score, standardized over the candidates of one model and
graph; a value's the mean over its candidates, then over the models.

With `--sets` it trains with default options, and with others in their place (`VARIANTS`), on graphs
that have many labels or on parts of them. No test score is read. `--root` is the folder of raw files, without it that of $GRAPHTHEORY_DATA.
"""  # noqa: E501

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch
import tyro
from _rows import save, show
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order
from torch_geometric.utils import subgraph

from graphtheory.lab.bench.config import with_options
from graphtheory.lab.bench.node_config import GraphFacts, NodeRunConfig
from graphtheory.lab.bench.node_task import NodeBenchTask, OwnNodes
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.graphs import Data

RESULTS = Path(__file__).parent / "results"
SPLITS = dict.fromkeys(("Photo", "CS"), "random-60-20-20") | dict.fromkeys(
    ("reed98", "johnshopkins55", "cornell5"), "random-50-25-25"
)
_BEFORE = {"layers": 2, "dropout": 0.5, "input_dropout": None, "weight_decay": 5e-4}
VARIANTS: dict[str, dict[str, Any]] = {
    "now": {},
    "before": _BEFORE,
    "degree": _BEFORE | {"degree": True},
    "weight decay": _BEFORE | {"weight_decay": 5e-3},
}
"""Options in the place of the defaults; "before" had them of every graph with many labels."""
KINDS = ("all", "homophily", "columns", "labels")
_HOMOPHILOUS, _CLIPPED = 0.5, 2.5
_STACK = {"residual": "residual", "batch_norm": "batch norm", "layer_norm": "layer norm"}


def homophily(data: Data) -> float:
    """Adjusted homophily of the edges between two training nodes (Platonov et al., 2023).

    (h - p) / (1 - p), with h the share of these edges within a class and p the share that edges
    between the same nodes, drawn at random by degree, would have.
    """
    source, target = data.edge_index
    train = data.train_mask[source] & data.train_mask[target] & (source != target)
    ends = torch.stack([data.y[source[train]], data.y[target[train]]])
    within = float((ends[0] == ends[1]).float().mean())
    share = ends.flatten().bincount().double() / ends.numel()
    chance = float((share**2).sum())
    return (within - chance) / (1 - chance)


@dataclass(frozen=True)
class Tried:
    """One candidate of a search: its options, and its standardized validation score."""

    dataset: str
    model: str
    options: dict[str, Any]
    score: float


def options_of(trial: NodeRunConfig) -> dict[str, Any]:
    """The options that are looked at, as far as the model reads them."""
    network, optimizer = trial.network, trial.optimizer
    stack = next((told for name, told in _STACK.items() if getattr(network, name)), "classic")
    found = {"stack": stack, "layers": network.layers, "hidden": network.hidden}
    found |= {"dropout": network.dropout, "input_dropout": network.input_dropout}
    found |= {"lr": optimizer.lr, "weight_decay": optimizer.weight_decay}
    found |= {"degree": trial.degree, "row_scale": trial.row_scale}
    if trial.model in ("gt", "gt-plain", "gat", "gat-res"):
        found |= {"heads": network.heads, "attention_dropout": network.attention_dropout}
    if trial.model in ("gt", "gt-plain"):
        found |= {"root_weight": network.root_weight, "neighbors": network.neighbors}
    return found


def tried() -> list[Tried]:
    """The candidates of every log of a single graph."""
    groups = defaultdict(list)
    for file in sorted(RESULTS.glob("search-*.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            if "degree" in line["trial"]:  # of the nodes of a graph
                groups[line["dataset"], line["trial"]["model"], line["seeds"]].append(line)
    found = []
    for (dataset, model, _), ones in groups.items():
        mean, spread = fmean(o["val"] for o in ones), pstdev(o["val"] for o in ones) or 1.0
        for one in ones:
            score = max(-_CLIPPED, min(_CLIPPED, (one["val"] - mean) / spread))
            config = NodeRunConfig.from_dict(one["trial"])
            found.append(Tried(dataset, model, options_of(config), score))
    return found


Worth = dict[str, dict[Any, float]]
"""By graph: value of an option -> mean standardized score."""


def worth(candidates: Iterable[Tried], option: str) -> Worth:
    """Of each value of an option on each graph that tried several."""
    scores: dict[str, dict[Any, dict[str, list[float]]]] = {}
    for one in candidates:
        if option in one.options:
            values = scores.setdefault(one.dataset, {})
            values.setdefault(one.options[option], {}).setdefault(one.model, []).append(one.score)
    return {
        graph: {v: fmean(map(fmean, models.values())) for v, models in values.items()}
        for graph, values in scores.items()
        if len(values) > 1
    }


def left_out(found: Worth, kinds: Mapping[str, Any]) -> dict[str, tuple[Any, float]]:
    """On each graph the value that did best on the others of its kind, and its worth there."""
    out = {}
    for graph, values in found.items():
        others = [o for o in found if o != graph and kinds[o] == kinds[graph]]
        means = {v: fmean(found[o][v] for o in others if v in found[o])
                 for v in values if any(v in found[o] for o in others)}  # fmt: skip
        if means:
            best = max(means, key=lambda value: means[value])
            out[graph] = (best, values[best])
    return out


def of_logs(root: str | None) -> list[Row]:
    """Facts of the graphs, and what options are worth that the other graphs chose."""
    candidates, rows = tried(), []
    kinds: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for name in sorted({one.dataset for one in candidates}):
        data = graphs.load(name, root, split=SPLITS.get(graphs.describe(name).name))
        facts, adjusted = GraphFacts.of(data), homophily(data)
        rows.append(Row.of("adjusted homophily of training edges", adjusted, "1", dataset=name))
        rows.append(Row.of("columns of features", facts.features, "1", dataset=name))
        rows.append(Row.of("training labels a class", facts.labels_per_class, "1", dataset=name))
        side = (0, adjusted >= _HOMOPHILOUS, facts.has_few_features, facts.few_of_a_class)
        for kind, of in zip(KINDS, side, strict=True):
            kinds[kind][name] = of
    for option in sorted({name for one in candidates for name in one.options}):
        found = worth(candidates, option)
        chosen = {kind: left_out(found, of) for kind, of in kinds.items()}
        common = sorted(set.intersection(*(set(one) for one in chosen.values())))
        for kind, one in chosen.items():
            if common:
                values = [one[graph][1] for graph in common]
                rows.append(Row.of("worth left out", values, "1", option=option, chosen_by=kind))
    return rows


def nearest(data: Data, nodes: int, seed: int) -> Data:
    """A part of a graph with several classes of ten nodes or more: those nearest to a random one.

    Nodes of other classes are without a label.
    """
    both = graphs.both_ways(data).edge_index.numpy()
    matrix = csr_matrix((np.ones(both.shape[1]), both), (data.num_nodes,) * 2)
    for start in np.random.default_rng(seed).permutation(data.num_nodes):
        order = breadth_first_order(matrix, start, return_predecessors=False)
        part = torch.from_numpy(order[:nodes].astype(np.int64))
        y = data.y[part]
        kept = (y[y >= 0].bincount() >= 10).nonzero().flatten()
        if len(part) == nodes and len(kept) > 1:
            break
    label = torch.full_like(y, -1)
    for number, old in enumerate(kept.tolist()):
        label[y == old] = number
    edges, _ = subgraph(part, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    return Data(x=data.x.to_dense()[part], edge_index=edges, y=label)


@cache
def node_task_of(name: str, part: int | None, seed: int, root: str | None) -> NodeBenchTask:
    """A graph, or a part of it that follows from the seed; options that a search kept are not."""
    split = SPLITS.get(name)
    if part is not None:
        return OwnNodes(nearest(graphs.load(name, root, split=split), part, seed))
    task = NodeBenchTask(name, split, root)
    task.kept = False
    return task


def validation(name: str, part: int | None, seed: int, model: str, variant: str,
               root: str | None) -> float:  # fmt: skip
    """Validation score of one training."""
    task = node_task_of(name, part, 0 if part is None else seed, root)
    trial, epochs, patience = task.config(model)
    trial = with_options(trial, VARIANTS[variant])
    return task.run(trial, seed=seed, epochs=epochs, patience=patience).fit.val


def rows_of(name: str, model: str, scores: Mapping[str, list[float]]) -> list[Row]:
    """Those of one graph and model: the scores, and what each variant is ahead of "before"."""
    about = {"dataset": name, "model": model}
    rows = [Row.of("validation score", v, "1", **about, options=k) for k, v in scores.items()]
    for variant, values in scores.items():
        if variant != "before" and "before" in scores:
            gained = [a - b for a, b in zip(values, scores["before"], strict=True)]
            rows.append(Row.of("gain on validation", gained, "1", **about, options=variant))
    return rows


def main(
    sets: tuple[str, ...] = (),
    models: tuple[str, ...] = ("gt", "gcn", "gat-res", "mlp"),
    variants: tuple[str, ...] = ("before", "now"),
    seeds: int = 3,
    part: int | None = None,
    root: str | None = None,
    out: Path | None = None,
) -> None:
    """Read the logs, or train on some graphs.

    Args:
        sets: Names of graphs.
        models: Names of networks.
        variants: Names of `VARIANTS`.
        seeds: Splits of each graph, and parts.
        part: Nodes of a part of the graph, another one for each seed; None is the graph.
        root: Folder with the raw files.
        out: CSV file to put the rows in.
    """
    torch.set_num_threads(1)
    root = root or os.environ.get("GRAPHTHEORY_DATA")
    rows = [] if sets else of_logs(root)
    for name, model in product(sets, models):
        scores = {
            variant: [validation(name, part, seed, model, variant, root) for seed in range(seeds)]
            for variant in variants
        }
        rows += rows_of(name if part is None else f"{name}, {part} nodes", model, scores)
    show(rows)
    if out is not None:
        save(rows, out, tested=True)


if __name__ == "__main__":
    tyro.cli(main)
