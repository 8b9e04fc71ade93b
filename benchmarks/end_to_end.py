"""Training PyG's own example models, as they are, compiled, and after `graphtheory.accelerate`.

    GRAPHTHEORY_DATA=<folder> python benchmarks/end_to_end.py --threads 1
    python benchmarks/end_to_end.py --nodes 169343 --edges 2315598  # as many as ogbn-arxiv has
    python benchmarks/end_to_end.py --only reddit.py pna.py

Graphs are random, with the sizes of those that the examples load (`_pyg_jobs.py`), and Cora and
ENZYMES where GRAPHTHEORY_DATA names a folder that holds them. An epoch is forward, backward and
optimizer of every batch, the loader that samples and collates included; of Reddit and OGB-MAG it is
four batches, on fewer nodes. With one thread times are those of the processor.

The loss curves are compared with the same seeds, without dropout of attention weights and with
features read densely, for whose dropout the library draws other numbers than PyG. Times and memory
are those of the models as they are. "PyG, compiled" is `torch.compile` of the model's forward with
its defaults; it compiles in two untimed epochs, and the row says how many graphs it made then and
how many more while it was timed, each of which takes seconds.

Memory comes from fresh processes as in `memory.py`: the peak of the first epoch above what was
resident before it, after an epoch of a tiny model. The library sorts the edges within that epoch;
later epochs on the same graph, which the times are of, find them sorted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro
from _pyg_examples import GAT
from _pyg_jobs import (
    SAMPLED,
    SAMPLES,
    Job,
    jobs,
    labeled,
    mean_loss,
    whole,
    without_dropout_of_attention,
)
from _rows import clock_of, ratios, save, seconds, show
from memory import MIB, Library, in_a_fresh_process, peak_of
from torch import Tensor
from torch._dynamo.utils import counters

import graphtheory
from graphtheory.lab.bench.rows import Row

Way = Literal["graphtheory", "PyG", "PyG, compiled"]
PROCESSES = 3
OUT = Path(__file__).parent / "results" / "cpu-end-to-end.csv"


def trainer(job: Job, way: Way, *, own_dropout: bool = True) -> Callable[[], float]:
    """What trains for an epoch and returns the mean loss; the seed gives the first weights."""
    torch.manual_seed(0)
    model = job.model(job.given)
    if not own_dropout:
        without_dropout_of_attention(model.to(job.dtype))
    if way == "graphtheory":
        report = graphtheory.accelerate(model, sparse_features=own_dropout)
        assert report.swapped and not report.kept, report
    if way == "PyG, compiled":
        model.compile()
    optimizer = model.optimizer()
    return lambda: mean_loss(job, model, optimizer)


def losses(job: Job, library: Library, epochs: int) -> Tensor:
    """The loss of each epoch [epochs], with the random numbers of PyG."""
    epoch = trainer(job, library, own_dropout=False)
    torch.manual_seed(1)
    return torch.tensor([epoch() for _ in range(epochs)], dtype=torch.float64)


def extra_peak(job: Job, library: Library) -> int:
    """Bytes that the first epoch needs on top of graph and model."""
    trainer(whole(GAT, labeled(100, 200)), library)()
    epoch = trainer(job, library)
    return peak_of(epoch)


def curve_rows(case: str, job: Job, epochs: int, **about: object) -> list[Row]:
    """How far the loss curves of the two libraries are apart at most."""
    ours, theirs = (losses(job, library, epochs) for library in get_args(Library))
    apart = (ours - theirs).abs()
    about |= {"epochs": epochs, "first": f"{theirs[0]:.4f}", "last": f"{theirs[-1]:.4f}"}
    about |= {} if job.dtype is torch.float32 else {"dtype": "float64"}
    found = {"difference": apart.max(), "relative difference": (apart / theirs.abs()).max()}
    return [
        Row.of(f"largest {n} of the loss, {case}", float(f), "1", **about) for n, f in found.items()
    ]


def time_rows(case: str, job: Job, repeats: int, compiled: bool, **about: object) -> list[Row]:
    """Time of an epoch in either library, and how many times as long PyG takes."""
    ways: tuple[Way, ...] = ("graphtheory", "PyG")
    trainers, rows = {way: trainer(job, way) for way in ways}, []
    torch._dynamo.reset()
    counters.clear()
    if compiled:
        try:
            epoch = trainer(job, "PyG, compiled")
            epoch(), epoch()
            trainers["PyG, compiled"] = epoch
        except Exception as error:  # of whatever kind: that it fails is what is reported
            why = type(error).__name__
            print(f"{case}: torch.compile fails\n{error}")
            rows.append(Row.of(f"torch.compile fails, {case}", 1, "1", **about, error=why))
    before = counters["stats"]["unique_graphs"]
    times = seconds(trainers, repeats, clock=clock_of(torch.get_num_threads()))
    rows += [Row.of(f"time of an epoch, {case}, {w}", t, "s", **about) for w, t in times.items()]
    for way in ("PyG", "PyG, compiled"):
        if way in times:
            faster = ratios(times[way], times["graphtheory"])
            rows.append(Row.of(f"times faster than {way}: {case}", faster, "1", **about))
    if "PyG, compiled" in times:
        more = counters["stats"]["unique_graphs"] - before
        made = {"graphs compiled": before, "graphs compiled while timed": more}
        rows += [Row.of(f"{what}, {case}", count, "1", **about) for what, count in made.items()]
    return rows


def memory_rows(case: str, sizes: dict[str, int], **about: object) -> list[Row]:
    """Extra peak memory of an epoch in either library, and the share of PyG's."""
    peaks = {
        lib: [in_a_fresh_process(__file__, case, lib, **sizes) for _ in range(PROCESSES)]
        for lib in get_args(Library)
    }
    name = f"extra peak memory of an epoch, {case}"
    share = ratios(peaks["graphtheory"], peaks["PyG"])
    mib = {lib: [peak / MIB for peak in of] for lib, of in peaks.items()}
    return [
        *(Row.of(f"{name}, {lib}", of, "MiB", **about) for lib, of in mib.items()),
        Row.of(f"{name}, as a share of PyG's", share, "1", **about),
    ]


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    epochs: int = 50,
    threads: int = 2,
    repeats: int = 15,
    quick: bool = False,
    only: tuple[str, ...] = (),
    compiled: bool = True,
    tested: bool = False,
    out: Path = OUT,
    measure: tuple[str, Library] | None = None,
) -> None:
    """Train PyG's example models in float32, as they are and accelerated: losses, time, memory.

    Args:
        nodes: Nodes of the uniform random graph.
        edges: Its edges.
        epochs: Of the loss curves; a tenth of them where an epoch has batches.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round trains every model for an epoch.
        quick: Small random graphs, few epochs, no memory; nothing is written.
        only: Examples whose names begin so; none is all of them.
        compiled: Whether to time `torch.compile`.
        tested: The conformance tests passed on this machine already.
        out: CSV file to put the rows in, after the conformance tests.
        measure: Measure only the memory of this case and library, in this process, and print bytes.
    """
    warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
    torch.set_num_threads(threads)
    if quick:
        nodes, edges, epochs, repeats = 50, 200, 3, 2
    known = jobs(nodes, edges, quick)
    if measure is not None:
        print(extra_peak(known[measure[0]](), measure[1]))
        return
    if not SAMPLES:
        print(f"Left out, for want of torch-sparse or pyg-lib: {', '.join(SAMPLED)}")
    for case, make in known.items():
        if only and not case.startswith(only):
            continue
        job = make()
        about = {**job.about, "threads": threads}
        count = epochs if len(job.batches()) == 1 else max(1, epochs // 10)
        rows = curve_rows(case, job, count, **about)
        rows += time_rows(case, job, repeats, compiled and not quick, **about)
        if not quick:
            sizes = {"nodes": nodes, "edges": edges, "threads": threads}
            rows += memory_rows(case, sizes, **about)
        show(rows)
        if not quick:
            save(rows, out, tested=tested)
    print(
        "Losses without attention dropout, features read densely: random numbers differ by design."
    )


if __name__ == "__main__":
    tyro.cli(main)
