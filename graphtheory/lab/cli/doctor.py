"""`graphtheory doctor` and `warmup`: what is installed and works here, and kernels made ready."""

from dataclasses import dataclass
from importlib.metadata import requires
from typing import Any

import torch

from graphtheory.graph import Neighborhood, cliques
from graphtheory.lab.bench.rows import Environment, Table, installed, pairs
from graphtheory.lab.cli.show import Command, Screen

_OTHER = """
Another project, graphtheory {}, is installed too. Its files have the names of ours and may have
replaced them. Run pip uninstall graphtheory pyg-graphtheory, then pip install . in your clone.
"""


@dataclass(frozen=True)
class Doctor(Command):
    """`graphtheory doctor`, which has no options of its own."""

    def run(self, screen: Screen) -> None:
        from graphtheory.ops.backends.cpu.openmp import rest

        here, backends, extras = Environment.here(), _backends(), dict[str, dict[str, Any]]()
        there = installed("pyg-graphtheory")  # not in a bare checkout
        for line in (requires("pyg-graphtheory") or []) if there else []:
            name, _, marker = line.partition(";")
            package = name.partition(">")[0].strip()
            extra = marker.partition("==")[2].strip(" \"'")
            if extra and extra not in ("all", "lab", "test", "docs", "dev"):
                extras.setdefault(extra, {})[package] = installed(package)
        threads = {"threads": str(torch.get_num_threads()), "idle threads": str(rest)}
        found = {"device": here.device, "versions": here.versions, "backends": backends}
        screen.result(found | {"threads": threads, "optional": extras})
        screen.table(pairs("Installed", [("device", here.device), *here.versions.items()]))
        if other := installed("graphtheory"):
            screen.say(_OTHER.format(other))
        screen.table(Table("Attention", ("backend", "here"), list(backends.items()), words=2))
        screen.table(pairs("Threads on the CPU", list(threads.items())))
        rows = [
            (name, extra, version or "missing")
            for extra, packages in extras.items()
            for name, version in packages.items()
        ]
        note = "To add a missing package, run pip install '.[EXTRA]' in your clone."
        screen.table(Table("Optional", ("package", "extra", "version"), rows, 3, note))


@dataclass(frozen=True)
class Warmup(Command):
    """`graphtheory warmup`, which has no options of its own."""

    needs = ("torch_geometric.nn",)

    def run(self, screen: Screen) -> None:
        from graphtheory.integrations.warmup import warmup

        with screen.working("compiling kernels"):
            folder = str(warmup())
        screen.result({"folder": folder})
        screen.say(f"Kernels for float32 are compiled; their machine code lies in {folder}")


def _backends() -> dict[str, str]:
    """What each backend says to small calls of attention on this machine's fastest device."""
    from graphtheory import ops

    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    x = torch.zeros(2, 1, 4, device=device)
    on_edges, on_sets = (
        ops.explain(ops.attention, x, x, x, neighborhood.to(device)).reasons
        for neighborhood in (graph, cliques([2]))
    )
    only_sets = "runs attention on complete and causal sets of tokens, not on edge lists"
    out = {}
    for name in ops.backend_names():
        edges = on_edges.get(name, "runs attention on edge lists")
        refuses, takes = edges.startswith("cannot"), "cannot" not in on_sets.get(name, "")
        out[name] = only_sets if refuses and takes else edges
    return out
