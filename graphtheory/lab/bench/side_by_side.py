"""`graphtheory.bench`: models side by side on your own data or a named set, by one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, bench_task, train_all
from graphtheory.lab.bench.comparison import Comparison
from graphtheory.lab.bench.config import Budget
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.progress import steps
from graphtheory.lab.train import TrainerOptions
from graphtheory.lab.train.contract import check_at_least

Model = str | Callable[[int, int], nn.Module]


def bench(
    data: str | PathLike[str] | Data | Iterable[Data] | BenchTask,
    models: Sequence[Model] | Mapping[str, Model] | None = None,
    *,
    kind: str | None = None,
    metric: str | None = None,
    split: Any = None,
    seeds: int = 3,
    epochs: int | None = None,
    patience: int | None = None,
    budget: int | str = 0,
    options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    device: str | None = None,
    precision: str = "32-true",
    accumulate: int = 1,
    out: str | PathLike[str] | None = None,
    root: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train models side by side on the same splits and seeds, and compare them.

    Args:
        data: A PyG `Data` (its nodes, by masks or a random split), a list of `Data` or a PyG
            dataset (its graphs), a file of either, such as "mine.pt", or the name of a data set.
        models: Names; the others are compared with the first. None is those that fit the data. Your
            own network is a function that makes one for each seed, or "FILE.py:NAME" of one, and
            a mapping names it: {"mine": lambda in_channels, out_channels: MyNet(...), "gt": "gt"}.
            It has forward(x, edge_index), of sets of graphs with batch, or forward(data).
        kind: "node", "graph", "multiclass", "multilabel" or "regression"; None takes it from the
            data.
        metric: Of the user's own data; None is the first that the task has.
        split: Kind of split of a named set; for own graphs three fractions or lists of positions.
        seeds: How many; a seed draws the split, the weights and everything else.
        epochs: At most this many; None is the data's own number.
        patience: Epochs without a better validation score that end a run; None is the data's own
            number.
        budget: Candidates of a search on validation that runs first, for each model without
            options from an earlier search, or the time for all of them, such as "30m"; 0 takes
            defaults there, and the table says so.
        options: Set by hand, such as {"walk": 16, "readout": "token"}, in the place of those of
            every model that reads them; not with a search. "batch_size" counts the labeled nodes
            or, of a set, the graphs of a step.
        threads: How many compute; None is 1 on a graph of at most 5,000 nodes, where more are
            slower, and torch's own number on a larger one.
        device: "cpu", "cuda", "cuda:1" or "mps"; None is a GPU if there is one.
        precision: "32-true", "bf16-mixed" or "16-mixed", for training and evaluation.
        accumulate: Number of batches whose gradients make one step.
        out: Folder where finished runs are kept and taken up again, and results are written.
        root: Folder with the raw files of a named set; None is that of $GRAPHTHEORY_DATA.
        progress: Show runs and epochs on the error stream, in a file as lines.

    Returns:
        What was found: printed a table, with `runs`, `rows()` and `save(folder)`.

    Raises:
        TypeError, ValueError: If the data, a model or a number cannot be used; the message says
            what was expected.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> ring = torch.arange(8)
        >>> edges = torch.stack([ring, (ring + 1) % 8])
        >>> both = torch.cat([edges, edges.flip(0)], 1)
        >>> data = Data(x=torch.eye(8), y=ring // 4, edge_index=both)
        >>> import graphtheory
        >>> found = graphtheory.bench(data, ("gt", "mlp"), seeds=1, epochs=2, progress=False)
        >>> print(str(found).splitlines()[0])
        graph, split random-60-20-20
    """
    counts = {
        "seeds": seeds, "epochs": epochs, "patience": patience, "threads": threads,
        "accumulate": accumulate,
    }  # fmt: skip
    for name, value in counts.items():
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"{name}: got {value!r}, expected a whole number")
    check_at_least(1, **counts)
    if isinstance(models, str):
        raise TypeError(f"models: got {models!r}, expected a list of names, such as [{models!r}]")
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options: got {options!r}, expected a dict such as {{'lr': 0.01}}")
    if budget == 1:
        raise ValueError("budget: got 1, expected 0 or 2 and more: the first are the defaults")
    if budget and options:
        raise ValueError(f"budget: got {budget}, expected 0 beside options set by hand")
    length = Budget.of(budget) if budget else None
    where = None if out is None else Path(out)
    if where is not None and where.exists() and not where.is_dir():
        raise ValueError(f"out: {where} is a file, expected a folder")
    folder = root or os.environ.get("GRAPHTHEORY_DATA")
    given = bench_task(data, kind=kind, metric=metric, split=split, root=folder)
    given.trainer = TrainerOptions(device=device, precision=precision, accumulate=accumulate)
    chosen = given.take_models(given.compared if models is None else models)
    if not chosen:
        raise ValueError("models: got none, expected one or more names")
    benchmark = Benchmark(
        given, chosen, seeds, epochs, patience,
        record=None if where is None else FinishedRuns(where / "runs.jsonl"),
        options=options or {}, threads=threads,
    )  # fmt: skip
    command = f"graphtheory.bench({data if isinstance(data, str) else given.name!r}, ...)"
    screen = Console(stderr=True)

    if length is not None:
        from graphtheory.lab.bench.search import choose  # which imports Optuna

        log, showing = where and where / "search.log", steps(screen, "candidate", progress)
        benchmark, _ = choose(benchmark, length, log, showing)
    with benchmark.computing():
        runs = train_all(benchmark, steps(screen, "run", progress))
        found = Comparison(benchmark, runs, command, Environment.here())
    if where is not None:
        found.save(where)
    return found
