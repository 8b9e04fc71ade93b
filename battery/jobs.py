"""Commands of the library in processes of their own, which can be ended or kept from writing."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from battery.forked import start
from graphtheory.data.loaders import GraphFolder
from graphtheory.lab.bench.benchmark import FinishedRuns
from graphtheory.lab.cli.main import main
from graphtheory.lab.datasets.files import read_arrays, write_arrays
from graphtheory.lab.train import checkpoint, read_checkpoint, watch
from graphtheory.lab.train.contract import digest

MODELS = ("gat", "mlp", "sage")
_SECONDS = 120.0  # after which a process hangs


@dataclass(frozen=True)
class Fault:
    """What befalls a process while it runs.

    Attributes:
        kill_after: Seconds until a signal.
        signal: Which.
        most_bytes: Of one file; a write beyond is refused by the system as on a full disk.
        unsafe: Checkpoints are written over the old file, and the process ends half way.
    """

    kill_after: float | None = None
    signal: int = signal.SIGKILL
    most_bytes: int | None = None
    unsafe: bool = False


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it printed.

    Attributes:
        code: Exit code; minus the signal's number; None if it hung.
        said: Output and error stream; "" if it was killed.
        seconds: From the fault's signal, or else the start, to the end.
    """

    code: int | None
    said: str
    seconds: float


@dataclass(frozen=True)
class Job:
    """A command and what it leaves.

    Attributes:
        run: (folder, number of the variant) -> exit code; does the work or goes on with it.
        facts: (folder, number) -> digest of what must be the same however often it was stopped.
        check: Reads whatever lies in the folder; raises only what a damaged file does.
    """

    run: Callable[[Path, int], int]
    facts: Callable[[Path, int], str]
    check: Callable[[Path], None] = field(default=lambda out: None)


def run_facts(out: Path) -> dict[str, Any]:
    """Of a folder that `fit` left: parameters, optimizer, best, and the history without clock."""
    found, best = (read_checkpoint(out / f"{name}.ckpt") for name in ("last", "best"))
    states = torch.utils._pytree.tree_leaves(found["optimizer_states"])
    lines = (out / "history.csv").read_text().splitlines()
    return {
        "parameters": digest(found["state_dict"].values()),
        "optimizer": digest(one for one in states if isinstance(one, torch.Tensor)),
        "best": (digest(best["state_dict"].values()), best["epoch"]),
        "history": [line.rsplit(",", 1)[0] for line in lines],
    }


def _train(out: Path, number: int) -> int:
    model, seed = MODELS[number % 3], str(number // 3)
    words = ["--dataset", "karate", "--model", model, "--seed", seed, "--epochs", "8"]
    return main(["train", *words, "--out", str(out), "--resume", "--quiet"])


def _train_facts(out: Path, number: int) -> str:
    result = json.loads((out / "result.json").read_text())["result"]
    return str((run_facts(out), result["test"], result["val"], result["best_epoch"]))


def _checkpoints(out: Path) -> None:
    for path in out.glob("*.ckpt"):
        read_checkpoint(path)


def _bench(out: Path, number: int) -> int:
    words = ["--dataset", "karate", "--models", f"gat,{MODELS[1 + number % 2]}", "--epochs", "4"]
    seeds = str(2 + number // 2 % 2)
    return main(["bench", *words, "--seeds", seeds, "--out", str(out), "--resume", "--quiet"])


def _bench_facts(out: Path, number: int) -> str:
    runs = [(r.model, r.seed, r.test, r.val, r.epochs) for r in FinishedRuns(out / "runs.jsonl")]
    json.loads((out / "results.json").read_text())
    return str(sorted(runs))


def graph(number: int) -> Data:
    """A graph of some hundred kilobytes."""
    generator = torch.Generator().manual_seed(number)
    edges = torch.randint(2_000, (2, 20_000), generator=generator)
    return Data(x=torch.randn(2_000, 16, generator=generator), edge_index=edges)


def _write_graph(out: Path, number: int) -> int:
    """Written anew, as the messages say, where an earlier process did not end."""
    if not (out / "graph.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        GraphFolder.write(graph(number), out)
    GraphFolder(out).verify()
    return 0


def _graph_facts(out: Path, number: int) -> str:
    found = GraphFolder(out)
    found.verify()
    return digest([*found.node.values(), found.graph.indptr, found.graph.indices])


def _verify_graph(out: Path) -> None:
    if (out / "graph.json").exists():  # the last file: without it there is none
        GraphFolder(out).verify()


def _write_cache(out: Path, number: int) -> int:
    path = out / "arrays.npz"
    for turn in range(20):
        write_arrays(path, {"x": np.random.default_rng([number, turn]).random(20_000)})
    return 0


def _cache_facts(out: Path, number: int) -> str:
    found = read_arrays(out / "arrays.npz")
    assert found is not None
    return str(found["x"].sum())


JOBS = {
    "train": Job(_train, _train_facts, _checkpoints),
    "bench": Job(_bench, _bench_facts, lambda out: [*FinishedRuns(out / "runs.jsonl")] and None),
    "graph folder": Job(_write_graph, _graph_facts, _verify_graph),
    "cache": Job(_write_cache, _cache_facts, lambda out: read_arrays(out / "arrays.npz") and None),
}


def _in_child(name: str, number: int, out: Path, fault: Fault, said: Any) -> None:
    os.setpgid(0, 0)
    torch.set_num_threads(1)
    if fault.most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.most_bytes, resource.RLIM_INFINITY))
    if fault.unsafe:
        checkpoint.replace_file = watch.replace_file = _half_a_file
    text = io.StringIO()
    code = 1
    with redirect_stdout(text), redirect_stderr(text):
        try:
            code = JOBS[name].run(out, number)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # told to whoever started it
            traceback.print_exc()
    said.send(text.getvalue()[-4_000:])
    sys.exit(code)


def _half_a_file(path: Path, content: bytes | bytearray) -> None:
    path.write_bytes(content[: len(content) // 2])
    if path.name == "last.ckpt":
        os.kill(os.getpid(), signal.SIGKILL)


def ended(name: str, number: int, out: Path, fault: Fault = Fault()) -> Ended:
    """Run a job until it ends by itself or by its fault."""
    hears, said = Pipe(duplex=False)
    process = start(_in_child, name, number, out, fault, said)
    said.close()
    begin = time.monotonic()
    if fault.kill_after is not None:
        process.join(fault.kill_after)
        if process.is_alive() and process.pid is not None:
            begin = time.monotonic()
            os.kill(process.pid, fault.signal)
    process.join(_SECONDS)
    seconds, code = time.monotonic() - begin, process.exitcode
    process.kill()
    process.join()
    try:
        text = hears.recv() if hears.poll() else ""
    except EOFError:
        text = ""
    hears.close()
    process.close()
    return Ended(code, text, seconds)
