"""`graphtheory.bench` and the command of that name, which go by one code path."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graphtheory
from graphtheory.lab.bench import benchmark
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.cli import main


def ring(nodes: int = 30) -> Data:
    """A ring in two classes, which the features tell."""
    here = torch.arange(nodes)
    edges = torch.stack([here, (here + 1) % nodes])
    return Data(x=torch.eye(nodes), y=here * 2 // nodes, edge_index=edges)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of the user's own in the working folder."""
    monkeypatch.chdir(tmp_path)
    torch.save(ring(), "mine.pt")
    return "mine.pt"


@pytest.mark.usefixtures("two_threads", "small_space")
@pytest.mark.parametrize(("asked", "small", "threads"), [(None, 30, 1), (None, 29, 2), (2, 30, 2)])
def test_python_and_the_command_search_and_train_alike(
    mine: str, monkeypatch: pytest.MonkeyPatch, asked: int | None, small: int, threads: int
) -> None:
    seen: list[tuple[int, int]] = []
    train = BenchTask.run

    def heard(*given: Any, epochs: int, **options: Any) -> Any:
        seen.append((torch.get_num_threads(), epochs))
        return train(*given, epochs=epochs, **options)

    monkeypatch.setattr(BenchTask, "run", heard)
    monkeypatch.setattr(benchmark, "SMALL", small)
    options = {"seeds": 1, "epochs": 2, "budget": 2} | ({"threads": asked} if asked else {})
    graphtheory.bench(ring(), ("gcn",), **options, progress=False)
    python = seen.copy()
    assert python == [(threads, 2)] * 5  # two candidates on two splits each, whose space has 3
    words = [f"--{name}={value}" for name, value in options.items()]
    assert main(["bench", "--data", mine, "--models", "gcn", *words]) == 0
    assert seen == python * 2 and torch.get_num_threads() == 2
