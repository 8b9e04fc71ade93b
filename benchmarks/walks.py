"""Python functions that one call of a layer passes, beside PyG's layer: how much a reader has to follow.

    python benchmarks/walks.py --out benchmarks/results/walks.csv

Counted with `sys.setprofile`, after a first call that compiles and imports: calls of Python functions of this package and of PyG (torch's
and C functions are not counted), the files that they stand in, and how often the walk comes back to a file that it has left. One thread;
the counts do not depend on the machine, but on the version of PyG.
"""  # noqa: E501

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
import torch_geometric
import torch_geometric.nn as pyg
import tyro
from _rows import save, show
from torch import Tensor, nn

import graphtheory
from graphtheory.lab.bench.rows import Row
from graphtheory.nn import SPDTransformerConv

COUNTED = tuple(str(Path(package.__file__).parent) for package in (graphtheory, torch_geometric))


class Walk(NamedTuple):
    """What a call passes on its way.

    Attributes:
        calls: Of Python functions.
        files: In which these stand.
        returns: To a file that was left before.
    """

    calls: int
    files: int
    returns: int


def walk(work: Callable[[], object]) -> Walk:
    """What a call of `work` passes, itself left out."""
    files: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(COUNTED):
            files.append(file)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    changes = [*files[:1], *(b for a, b in pairwise(files) if a != b)]
    return Walk(len(files), len(set(files)), len(changes) - len(set(files)))


def graph(seed: int = 0, nodes: int = 600, links: int = 1300) -> tuple[Tensor, Tensor]:
    """Features and edges of a random graph of the size of some molecules."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(nodes, (2, links), generator=generator)
    return torch.randn(nodes, 16, generator=generator), edges


class TwoLayers(nn.Module):
    """A GAT of two layers, as in PyG's examples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GATConv(16, 8, heads=4), pyg.GATConv(32, 7)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def walks() -> dict[str, Walk]:
    """The walks of layers, each after a first call."""
    found: dict[str, Walk] = {}

    def forward_and_backward(name: str, model: nn.Module, x: Tensor, edges: Tensor) -> None:
        model(x, edges).sum().backward()
        found[f"{name}, forward"] = walk(lambda: model(x, edges))
        out = model(x, edges).sum()
        found[f"{name}, backward"] = walk(out.backward)

    x, edges = graph()
    ours = SPDTransformerConv(16, 8, heads=4, num_buckets=5)
    hops = torch.ones(edges.size(1), dtype=torch.long)

    class WithHops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = ours

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layer(x, edge_index, hops)

    model = WithHops()
    forward_and_backward("SPDTransformerConv, known edges", model, x, edges)
    new = graph(seed=1)[1]
    found["SPDTransformerConv, new edges, forward"] = walk(lambda: model(x, new))
    forward_and_backward("TransformerConv of PyG", pyg.TransformerConv(16, 8, heads=4), x, edges)
    forward_and_backward("two layers of GAT, PyG", TwoLayers(), x, edges)
    accelerated = TwoLayers()
    graphtheory.accelerate(accelerated)
    accelerated(x, edges)  # as PyG's, since these few edges are new
    forward_and_backward("two layers of GAT, accelerated", accelerated, x, edges)
    return found


def modules_of(command: str) -> int:
    """Modules of this package that a command has imported when it ends."""
    code = (
        "import sys; from graphtheory.lab.cli import main; main(sys.argv[1:]); "
        "print(sum(name.partition('.')[0] == 'graphtheory' for name in sys.modules), "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()], capture_output=True, text=True, check=True
    )
    return int(done.stderr.split()[-1])


def main(commands: bool = True, out: Path | None = None) -> None:
    """Count the functions, print the counts and write rows.

    Args:
        commands: Whether to run `reproduce` in its quick form and count the modules it imports.
        out: File of rows.
    """
    torch.set_num_threads(1)
    rows = []
    for name, one in walks().items():
        for what, count in one._asdict().items():
            rows.append(Row.of(f"{what} of Python functions", count, "1", walk=name))
    if commands:
        words = "reproduce fig-7-3a --quick --out runs/walks"
        rows.append(Row.of("modules imported", modules_of(words), "1", command=words))
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
