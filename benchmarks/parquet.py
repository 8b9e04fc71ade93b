"""A generated graph from Parquet files to training, in limited memory, killed and resumed.

    python benchmarks/parquet.py --out benchmarks/results/parquet.csv

DuckDB generates files of nodes and edges, of which nine in ten join nodes whose numbers are near.
`GraphFolder.from_parquet` converts them in a process whose memory the system limits
(`RLIMIT_DATA`): once without a stop, and once killed (SIGKILL) while it writes nodes, killed again
while it writes edges, and resumed. The SHA-256 of all files must be equal. A control asks for as
much memory as the limit, which must be refused. Then `fennel` divides the folder into parts, and a
sampled GCN takes 100 steps, in a process with a limit of its own.

Ends with code 2 where DuckDB is missing.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import tyro
from _rows import save, show
from torch.nn.functional import cross_entropy

from graphtheory.data.loaders import GraphFolder, NodeSetLoader, edge_cut, fennel
from graphtheory.lab.bench.rows import Row
from graphtheory.models import SampledGCN
from graphtheory.patterns import GraphSAGE

GIB, CLASSES, BATCHES, PARTS, NEAR = 2**30, 40, 100, 64, 500
STOPS = ("writing nodes", "writing edges")  # where a conversion is killed


def generate(folder: Path, nodes: int, edges: int) -> None:
    """Write `nodes.parquet` and `edges.parquet`."""
    import duckdb

    step = f"(hash(range * 3) % {2 * NEAR})::BIGINT - {NEAR}"
    near = f"(source + ({step}) + {nodes}) % {nodes}"
    target = (
        f"CASE WHEN hash(range * 3 + 2) % 10 = 0 THEN hash(range * 3) % {nodes} ELSE {near} END"
    )
    tables = {
        "nodes": "SELECT range AS id, (hash(range) % 1000)::FLOAT AS x, "
        f"(hash(range + 7) % {CLASSES})::BIGINT AS y FROM range({nodes})",
        "edges": f"SELECT source, ({target})::BIGINT AS target FROM "
        f"(SELECT range, (hash(range * 3 + 1) % {nodes})::BIGINT AS source FROM range({edges}))",
    }
    with duckdb.connect() as db:
        db.execute("SET memory_limit = '1GB'")
        for name, table in tables.items():
            db.execute(f"COPY ({table}) TO '{folder / name}.parquet' (FORMAT parquet)")


def peak() -> float:
    """Bytes of main memory that this process had at most."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def refused(limit: int) -> bool:
    """Whether the system refuses as much memory as the limit."""
    try:
        bytearray(limit)
    except MemoryError:
        return True
    return False


def convert(folder: str, into: str, limit: int) -> dict[str, Any]:
    """Convert the files in this process; lines say what is written."""
    said, start = "", time.perf_counter()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal said
        if what != said:
            said = what
            print(what, flush=True)

    tables = (f"{folder}/{name}.parquet" for name in ("edges", "nodes"))
    # a quarter of the limit: the map of the edges at the end counts as memory, too
    GraphFolder.from_parquet(*tables, into, x=["x"], memory_limit="500MB", progress=progress)
    found = time.perf_counter() - start
    return {"seconds": found, "peak": peak(), "refused": refused(limit)}


def learn(folder: str, limit: int) -> dict[str, Any]:
    """Divide a folder into parts, and train on it."""
    kept, start = GraphFolder(folder), time.perf_counter()
    cut = edge_cut(kept, fennel(kept, PARTS))
    between = time.perf_counter()
    size = min(1024, kept.graph.num_dst // BATCHES)
    seeds = torch.arange(BATCHES * size)
    network = SampledGCN(1, 32, CLASSES)
    optimizer = torch.optim.Adam(network.parameters())
    count = 0
    for batch in NodeSetLoader(
        kept, GraphSAGE(5), 3, batch_size=size, input_nodes=seeds, node_order="folder", seed=0
    ):
        optimizer.zero_grad()
        scores = network(batch.x, batch.neighborhoods)
        cross_entropy(scores, batch.y[: len(scores)]).backward()
        optimizer.step()
        count += 1
    ended = time.perf_counter()
    return {
        "parting": between - start, "cut": float(cut), "steps": count, "training": ended - between,
        "peak": peak(), "refused": refused(limit),
    }  # fmt: skip


@contextmanager
def started(what: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """This script in a process of its own, with a limit of memory."""
    command = [sys.executable, __file__, "--measure", what, "--options", json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


def measured(what: str, **options: Any) -> Any:
    """What it found."""
    with started(what, **options) as process:
        told, _ = process.communicate()
    if process.returncode:
        sys.exit(f"parquet.py: {what} ended with {process.returncode}")
    return json.loads(told.splitlines()[-1])


def kill(at: str, **options: Any) -> None:
    """Convert until something is being written, and kill the process."""
    with started("convert", **options) as process:
        assert process.stdout is not None
        if not any(line.strip() == at for line in process.stdout):
            sys.exit(f"parquet.py: was over before it was killed at {at!r}")
        process.kill()


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main(
    nodes: int = 10**6,
    edges: int = 10**8,
    limit: float = 2,
    train_limit: float = 3,
    threads: int = 2,
    quick: bool = False,
    out: Path | None = None,
    folder: Path | None = None,
    measure: str | None = None,
    options: str = "{}",
) -> None:
    """Convert a generated graph, kill and resume it, compare, and train on it.

    Args:
        nodes: Of the graph.
        edges: Of the graph.
        limit: Memory of a conversion, GiB.
        train_limit: Memory of the training, GiB.
        threads: Of torch and of the kernels.
        quick: 20,000 nodes and 500,000 edges.
        out: CSV file to put the rows in, after the conformance tests.
        folder: Where the files lie meanwhile; None is a temporary one.
        measure: Do only this, in this process, and print JSON.
        options: Of that, JSON.
    """
    if measure is not None:
        given = json.loads(options)
        torch.set_num_threads(given.pop("threads"))
        resource.setrlimit(resource.RLIMIT_DATA, (given["limit"],) * 2)
        print(json.dumps({"convert": convert, "learn": learn}[measure](**given)))
        return
    if find_spec("duckdb") is None:
        print("parquet.py needs DuckDB: pip install '.[parquet]' in a clone", file=sys.stderr)
        sys.exit(2)
    nodes, edges = (20_000, 500_000) if quick else (nodes, edges)
    about = {"nodes": nodes, "edges": edges, "threads": threads}
    most, more = int(limit * GIB), int(train_limit * GIB)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        files, whole, killed = (Path(name) / part for part in ("files", "whole", "killed"))
        files.mkdir()
        generate(files, nodes, edges)
        given = {"folder": str(files), "limit": most, "threads": threads}
        first = measured("convert", into=str(whole), **given)
        for stop in STOPS:
            kill(stop, into=str(killed), **given)
        last = measured("convert", into=str(killed), **given)
        equal = hashes(whole) == hashes(killed)
        then = measured("learn", folder=str(killed), limit=more, threads=threads)
    if not equal or not (first["refused"] and then["refused"]):
        sys.exit("parquet.py: the files differ, or a limit of memory did not hold")
    limits = {"limit_gib": limit}, {"limit_gib": train_limit}
    rows = [
        Row.of("Parquet to folder: time", first["seconds"], "s", **about, **limits[0]),
        Row.of("Parquet to folder: peak memory", first["peak"], "B", **about, **limits[0]),
        Row.of(
            "Parquet to folder: time after two kills", last["seconds"], "s", **about, **limits[0]
        ),
        Row.of("Parquet to folder: files equal after two kills", float(equal), "1", **about),
        Row.of(f"Fennel, {PARTS} parts: time", then["parting"], "s", **about),
        Row.of(f"Fennel, {PARTS} parts: edges between parts", then["cut"], "1", **about),
        Row.of(f"{then['steps']} steps on the folder: time", then["training"], "s", **about),
        Row.of("steps on the folder: peak memory", then["peak"], "B", **about, **limits[1]),
    ]
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
