"""Graphs that outgrow the machine: training at ogbn-arxiv's size, ten times that, cost per node.

    python benchmarks/scale.py train --out benchmarks/results/scale.csv
    python benchmarks/scale.py large --out benchmarks/results/scale.csv
    python benchmarks/scale.py flat --out benchmarks/results/scale.csv --picture FILE.png

`train`: one network after the other, each in a fresh process: CPU time of an epoch without its
evaluation, peak memory, and test accuracy at the epoch of best validation. No option was tuned.
`large`: peak memory and CPU time of one sampled epoch on a graph of 1.7 million nodes and 40
million edges, each loader in a fresh process. `flat`: CPU time and memory of a training step for
each seed, for graphs of growing size and one degree distribution; the sizes take turns, batch by
batch. CPU time is that of all threads together: it does not hang on what else the machine does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

import numpy as np
import torch
import tyro
from _rows import ratios, save, show
from _scale_jobs import (
    Job,
    Network,
    SeedTransformer,
    attention_sets,
    job_of,
    sampled_gcn,
)
from memory import MIB, forget_peak, resident
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.embedded import PowerLawGraph
from graphtheory.lab.plot.style import look, panels, styled

Part = Literal["train", "large", "flat"]
Loader = Literal["gcn, LADIES", "gt, attention sets"]
LARGE = {"num_nodes": 1_700_000, "num_links": 20_000_000}
SIZES = (10_000, 31_623, 100_000, 316_228, 1_000_000, 3_162_278)
EPOCHS: dict[Network, int] = {
    "gt, attention sets": 2, "gcn, LADIES": 4, "gat, full": 25, "gcn, full": 25, "mlp, full": 25,
    "gt, full, 3 x 256": 5, "gcn, full, 3 x 256": 5,
}  # fmt: skip
GIB = 2**30
RETURNED = {  # what making the graph has freed goes back, or steps would live on it unseen
    "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536",
}  # fmt: skip


def load(dataset: str, root: Path | None) -> Data:
    """A graph of `lab.datasets.graphs`, both directions of each edge."""
    data = graphs.load(dataset, root)
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    return data


def drawn(share: float, **sizes: int) -> Data:
    """A power-law graph of which a share of the nodes is labeled for training."""
    generator = torch.Generator().manual_seed(0)
    data = PowerLawGraph(**sizes).sample(generator)
    data.train_mask = torch.rand(data.num_nodes, generator=generator) < share
    data.num_classes = 40
    return data


def step_of(job: Job) -> Callable[[Any], float]:
    """What learns from a batch and tells its loss."""
    optimizer = torch.optim.Adam(job.model.parameters(), lr=job.lr)

    def step(batch: Any) -> float:
        optimizer.zero_grad()
        loss = cross_entropy(job.logits(batch), job.labels(batch))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def trained(
    data: Data, network: Network, epochs: int, batch_size: int, seed: int
) -> dict[str, Any]:
    """Seconds of CPU of each epoch, extra peak memory in MiB, accuracy in per cent."""
    before = forget_peak()
    job = job_of(network, data, batch_size=batch_size, seed=seed)
    step, seconds, best = step_of(job), [], (-1.0, -1.0)
    for epoch in range(epochs):
        job.model.train()
        start = time.process_time()
        for batch in job.batches(epoch):
            step(batch)
        seconds.append(time.process_time() - start)
        job.model.eval()
        with torch.no_grad():
            hit = job.predict().argmax(1) == data.y
        best = max(
            best, tuple(float(hit[m].float().mean()) for m in (data.val_mask, data.test_mask))
        )
    peak = (resident("VmHWM") - before) / MIB
    return {"seconds": median(seconds), "peak": peak, "val": 100 * best[0], "test": 100 * best[1]}


def sampled_job(loader: Loader, data: Data, batch_size: int) -> Job:
    """A loader's batches and their network, without evaluation."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}
    model: torch.nn.Module
    if loader == "gcn, LADIES":
        batches, model = sampled_gcn(data, options)
        field = "neighborhoods"
    else:
        batches, field = attention_sets(data, options), "neighborhood"
        model = SeedTransformer(data.x.size(1), data.num_classes)
    return Job(
        model, 0.003, lambda epoch: batches, lambda batch: model(batch.x, batch[field]),
        lambda batch: batch.y[: batch.batch_size], lambda: data.x,
    )  # fmt: skip


def one_epoch(
    loader: Loader, share: float, batch_size: int, sizes: dict[str, int]
) -> dict[str, Any]:
    """Peaks in GiB of making the graph, of the loader and of an epoch, and its CPU seconds."""
    data = drawn(share, **sizes)
    found: dict[str, Any] = {"drawing": resident("VmHWM") / GIB, "at rest": resident("VmRSS") / GIB}
    forget_peak()
    job = sampled_job(loader, data, batch_size)
    found["loader"] = resident("VmHWM") / GIB
    found["loader at rest"] = resident("VmRSS") / GIB
    forget_peak()
    step, start = step_of(job), time.process_time()
    for batch in job.batches(0):
        step(batch)
    found["seconds"] = time.process_time() - start
    found["seeds"] = int(data.train_mask.sum())
    return found | {"epoch": resident("VmHWM") / GIB}


def flat_graph(num_nodes: int) -> Data:
    """Average degree 14 and no expected degree above 500, whatever the size."""
    return drawn(0.6, num_nodes=num_nodes, num_links=7 * num_nodes, max_degree=500)


def step_memory(loader: Loader, num_nodes: int, batch_size: int, steps: int) -> float:
    """KiB a seed that steps need on top of the graph and its loader."""
    job = sampled_job(loader, flat_graph(num_nodes), batch_size)
    step, batches = step_of(job), iter(job.batches(0))
    before = forget_peak()
    for _ in range(steps):
        step(next(batches))
    return (resident("VmHWM") - before) / 1024 / batch_size


def step_times(
    sizes: tuple[int, ...], batch_size: int, steps: int
) -> dict[tuple[Loader, int], tuple[list[float], list[float]]]:
    """Microseconds of CPU, and nodes, a seed; a round has a batch of every loader and size."""
    drawn_once = {size: flat_graph(size) for size in sizes}
    jobs = {
        (loader, size): sampled_job(loader, drawn_once[size], batch_size)
        for loader in get_args(Loader)
        for size in sizes
    }
    steps_of = {key: step_of(job) for key, job in jobs.items()}
    batches = {key: iter(job.batches(0)) for key, job in jobs.items()}
    found: dict[tuple[Loader, int], tuple[list[float], list[float]]]
    found = {key: ([], []) for key in jobs}
    for round_ in range(-2, steps):
        for key, step in steps_of.items():
            start = time.process_time()
            batch = next(batches[key], None)
            if batch is None or batch.batch_size < batch_size:  # the epoch is over
                batches[key] = iter(jobs[key].batches(0))
                start, batch = time.process_time(), next(batches[key])
            step(batch)
            if round_ >= 0:
                found[key][0].append(1e6 * (time.process_time() - start) / batch_size)
                found[key][1].append(batch.num_nodes / batch_size)
    return found


def fresh(what: str, **options: Any) -> Any:
    """What a call of this script with `--measure` prints, in a process of its own."""
    command = [sys.executable, __file__, "train", "--measure", what]
    command += ["--options", json.dumps(options)]
    environment = os.environ | (RETURNED if what == "flat" else {})
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measured(what: str, options: dict[str, Any]) -> Any:
    """One measurement in this process."""
    torch.set_num_threads(options.pop("threads"))
    if what == "train":
        root = options.pop("root")
        return trained(load(options.pop("dataset"), root and Path(root)), **options)
    if what == "large":
        return one_epoch(**options)
    return step_memory(**options)


def train_rows(about: dict[str, Any], seeds: int, epochs: int | None) -> list[Row]:
    """Time, memory and accuracy of each network."""
    found: dict[Network, list[dict[str, Any]]] = {name: [] for name in get_args(Network)}
    for seed in range(seeds):
        for name, done in found.items():
            own = {"network": name, "epochs": epochs or EPOCHS[name], "seed": seed}
            done.append(fresh("train", **own, **about))
            print(name, seed, done[-1], file=sys.stderr, flush=True)
    rows = []
    shown = {key: about[key] for key in ("dataset", "threads", "batch_size")}
    for name, done in found.items():
        own = {"network": name.replace(",", ":"), "epochs": epochs or EPOCHS[name]} | shown
        column = {key: [one[key] for one in done] for key in done[0]}
        against = ratios(column["seconds"], [one["seconds"] for one in found["gcn, full"]])
        rows += [
            Row.of("scale, test accuracy at best validation", column["test"], "%", **own),
            Row.of("scale, validation accuracy", column["val"], "%", **own),
            Row.of("scale, CPU time of an epoch", column["seconds"], "s", **own),
            Row.of("scale, CPU time of an epoch over the full GCN's", against, "1", **own),
            Row.of("scale, peak memory on top of the data", column["peak"], "MiB", **own),
        ]
    return rows


def large_rows(about: dict[str, Any], share: float) -> list[Row]:
    """One epoch of either loader on a graph ten times as large."""
    rows = []
    for loader in get_args(Loader):
        found = fresh("large", loader=loader, share=share, sizes=LARGE, **about)
        print(loader, found, file=sys.stderr, flush=True)
        own = {"loader": loader.replace(",", ":"), "nodes": LARGE["num_nodes"]}
        own |= {"edges": 2 * LARGE["num_links"], "seeds": found["seeds"]} | about
        for name in ("drawing", "at rest", "loader", "loader at rest", "epoch"):
            rows.append(Row.of(f"scale, resident memory, {name}", found[name], "GiB", **own))
        rows.append(Row.of("scale, CPU time of a sampled epoch", found["seconds"], "s", **own))
    return rows


def flat_rows(about: dict[str, Any], steps: int, repeats: int) -> list[Row]:
    """Time, nodes and memory a seed over the number of nodes."""
    rows = []
    times = step_times(SIZES, about["batch_size"], steps)
    for loader in get_args(Loader):
        sizes = {"loader": loader.replace(",", ":")} | about
        for size in SIZES:
            memory = [
                fresh("flat", loader=loader, num_nodes=size, steps=5, **about)
                for _ in range(repeats)
            ]
            own = sizes | {"nodes": size}
            spent, nodes = times[loader, size]
            rows += [
                Row.of("scale, CPU time of a step for a seed", spent, "us", **own),
                Row.of("scale, nodes of a batch for a seed", nodes, "1", **own),
                Row.of("scale, memory of a step for a seed", memory, "KiB", **own),
            ]
            print(loader, size, rows[-3].median, memory, file=sys.stderr, flush=True)
    return rows


@styled
def drawing(rows: list[Row], path: Path) -> None:
    """Cost a seed over the number of nodes, on log scales."""
    figure, axes = panels(2)
    what = ("scale, CPU time of a step for a seed", "scale, memory of a step for a seed")
    for ax, name, label in zip(axes, what, ("CPU time (µs)", "memory (KiB)"), strict=True):
        chosen = [row for row in rows if row.name == name]
        for index, loader in enumerate(dict.fromkeys(r.parameters["loader"] for r in chosen)):
            own = [row for row in chosen if row.parameters["loader"] == loader]
            sizes = [row.parameters["nodes"] for row in own]
            ax.plot(sizes, [row.median for row in own], label=loader, **look(index))
            ax.fill_between(
                sizes, [r.q20 for r in own], [r.q80 for r in own],
                color=look(index)["color"], alpha=0.2, linewidth=0,
            )  # fmt: skip
        middle = np.median([row.median for row in chosen])
        ax.set(xscale="log", yscale="log", xlabel="nodes of the graph", ylabel=f"{label} a seed")
        ax.set_ylim(middle / 20, middle * 20)
        ax.grid(True)
    axes[0].legend()
    plot.save(figure, path)


def main(
    part: Part = "flat",
    /,
    dataset: str = "power-law",
    root: Path | None = None,
    batch_size: int = 1024,
    seeds: int = 2,
    epochs: int | None = None,
    share: float = 0.08,
    steps: int = 15,
    repeats: int = 1,
    threads: int = 1,
    out: Path | None = None,
    picture: Path | None = None,
    measure: str | None = None,
    options: str = "{}",
) -> None:
    """Measure one part and print its rows.

    Args:
        part: train, large or flat.
        dataset: A name of `lab.datasets.graphs`, such as ogbn-arxiv with `root`; for train.
        root: Folder with its raw files.
        batch_size: Seeds of a sampled batch.
        seeds: Runs of each network; for train.
        epochs: Of every network; None for those of the module. For train.
        share: Of the nodes that are seeds; for large.
        steps: Of each size; for flat.
        repeats: Processes for each figure of memory; for flat.
        threads: Of torch and of the kernels.
        out: CSV file to put the rows in, after the conformance tests.
        picture: File for the picture; for flat.
        measure: Measure only this, in this process, and print JSON.
        options: Of that measurement, JSON.
    """
    if measure is not None:
        print(json.dumps(measured(measure, json.loads(options))))
        return
    torch.set_num_threads(threads)
    about = {"batch_size": batch_size, "threads": threads}
    if part == "train":
        try:
            graphs.describe(dataset)
        except ValueError as error:
            sys.exit(str(error))
        named = {"dataset": dataset, "root": root and str(root)}
        rows = train_rows(about | named, seeds, epochs)
    else:
        rows = large_rows(about, share) if part == "large" else flat_rows(about, steps, repeats)
    show(rows)
    if picture is not None:
        drawing(rows, picture)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
