"""`graphtheory doctor`, which says what is installed and what runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from graphtheory.lab.cli.show import Command, Screen


@dataclass(frozen=True)
class Doctor(Command):
    """Say what is installed, which backends run attention here, and why others do not.

    Try:  graphtheory doctor
          graphtheory doctor --json
    """

    needs = ("torch",)

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.bench.rows import Environment
        from graphtheory.lab.bench.table import Table, pairs

        here, backends, extras = Environment.here(), _backends(), _optional()
        found = {"device": here.device, "versions": here.versions, "backends": backends}
        screen.result(found | {"optional": extras})
        screen.table(pairs("Installed", [("device", here.device), *here.versions.items()]))
        screen.table(Table("Attention", ("backend", "here"), list(backends.items()), words=2))
        rows = [(name, extra, found or "missing") for (name, extra, found) in _listed(extras)]
        note = "To add a missing package, run pip install '.[EXTRA]' in your clone."
        screen.table(Table("Optional", ("package", "extra", "version"), rows, 3, note))


def _backends() -> dict[str, str]:
    """What each backend says to small calls of attention on this machine's fastest device."""
    import torch

    from graphtheory import ops
    from graphtheory.graph import Neighborhood, cliques

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


def _optional() -> dict[str, dict[str, Any]]:
    """Extra -> package -> its version, None where it is missing; tools of developers aside."""
    out: dict[str, dict[str, Any]] = {}
    for line in requires("graphtheory") or ():
        name, _, marker = line.partition(";")
        package = name.partition(">")[0].strip()
        extra = marker.partition("==")[2].strip(" \"'")
        if extra and extra not in ("all", "lab", "test", "docs", "dev"):
            out.setdefault(extra, {})[package] = _version(package)
    return out


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _listed(extras: dict[str, dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(name, extra, v) for extra, found in extras.items() for name, v in found.items()]
