"""One call from data to a table: `graphtheory.bench(data)`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, bench_task
from graphtheory.lab.bench.comparison import Comparison
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.search import Search, best


def bench(
    data: Any,
    models: Sequence[str] | None = None,
    *,
    task: str | None = None,
    metric: str | None = None,
    split: Any = None,
    seeds: int = 3,
    epochs: int | None = None,
    budget: int = 0,
    options: Mapping[str, Any] | None = None,
    out: str | PathLike[str] | None = None,
    root: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train models side by side on the same splits and seeds, and compare them.

    Args:
        data: A PyG `Data` (its nodes, by masks or a random split), a list of `Data` or a PyG
            dataset (its graphs), or the name of a data set.
        models: Names; the others are compared with the first. None is those that fit the data.
        task: "node", "graph", "multiclass", "multilabel" or "regression"; None takes it from the
            data.
        metric: Of the user's own data; None is the first that the task has.
        split: Kind of split of a named set; for own graphs three fractions or lists of positions.
        seeds: How many; a seed draws the split, the weights and everything else.
        epochs: At most this many; None is the data's own number.
        budget: Candidates a model of a search on validation that runs first; 0 takes options that
            are known, or defaults, and the table says so.
        options: Set by hand, such as {"walk": 16, "readout": "token"}, in the place of those of
            every model that reads them; not with a search.
        out: Folder where finished runs are kept and taken up again, and results are written.
        root: Folder with the raw files of a named set; None is that of $GRAPHTHEORY_DATA.
        progress: Print a line for each run to the error stream.

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
    for name, value, least in (("seeds", seeds, 1), ("epochs", epochs, 1), ("budget", budget, 0)):
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"{name}: got {value!r}, expected a whole number")
        if value is not None and value < least:
            raise ValueError(f"{name}: got {value}, expected {least} or more")
    if isinstance(models, str):
        raise TypeError(f"models: got {models!r}, expected a list of names, such as [{models!r}]")
    if budget == 1:
        raise ValueError("budget: got 1, expected 0 or 2 and more: the first are the defaults")
    if budget and options:
        raise ValueError(f"budget: got {budget}, expected 0 beside options set by hand")
    folder = root or os.environ.get("GRAPHTHEORY_DATA")
    given = bench_task(data, task=task, metric=metric, split=split, root=folder)
    chosen = given.compared if models is None else tuple(dict.fromkeys(models))
    if not chosen:
        raise ValueError("models: got none, expected one or more names")
    for model in chosen:
        given.known_model(model)
    where, measure, configs = None if out is None else Path(out), given.measure, {}

    def say(text: str) -> None:
        if progress:
            print(text, file=sys.stderr)

    if budget:
        study = Search(given, chosen, budget, log=where and where / "search.jsonl")
        tried = study.run(lambda model, done, of: say(f"candidate {done + 1}/{of}  {model}"))
        configs = {m: found.config for m, found in best(tried, measure).items()}
    benchmark = Benchmark(
        given, chosen, seeds, given.split, epochs=epochs,
        record=None if where is None else FinishedRuns(where / "runs.jsonl"),
        finished=lambda r: say(f"{r.model}, seed {r.seed}: test {measure.format(r.test)}"),
        chosen=configs, budget=budget or None, options=options or {},
    )  # fmt: skip
    command = f"graphtheory.bench({data if isinstance(data, str) else given.name!r}, ...)"
    how = (str(given.split), measure.name, command, Environment.here())
    found = Comparison(benchmark, benchmark.run(), *how)
    if where is not None:
        found.save(where)
    return found
