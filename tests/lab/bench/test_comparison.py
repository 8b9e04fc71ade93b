"""`graphtheory.bench` and the command of that name, which go by one code path."""

import json
import re
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graphtheory
from graphtheory.lab import progress
from graphtheory.lab.bench import benchmark
from graphtheory.lab.bench.side_by_side import bench
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.cli import main
from graphtheory.lab.cli.bench import Bench


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


def test_the_same_words_in_python_and_on_the_command_line() -> None:
    page = Path(__file__).parents[3] / "docs/commands.md"
    section = page.read_text(encoding="utf-8").partition("## `bench` in Python")[2]
    rows = re.findall(r"(?m)^\| (.*?) ?\| (.*--.*?) \|", section.partition("\n## ")[0])
    both = [[re.findall(r"`(?:--)?([\w-]+)`", cell) for cell in row] for row in rows]
    assert [name for names, _ in both for name in names] and len(both) > 10
    listed = {name for names, _ in both for name in names}
    options = {option.replace("-", "_") for _, found in both for option in found}
    assert listed == set(signature(graphtheory.bench).parameters)
    assert options == {one.name for one in fields(Bench)} - {"output"} | {"json", "quiet"}
    other = {"data": ["dataset", "data"], "options": ["set"], "progress": ["quiet"]}
    for (name,), found in both[:-1]:
        assert found == other.get(name, [name.replace("_", "-")])


def test_precision_and_accumulation_are_those_of_the_command(mine: str) -> None:
    how: dict[str, Any] = {"seeds": 1, "epochs": 3, "progress": False}
    found = graphtheory.bench(mine, ["gcn"], precision="bf16-mixed", accumulate=2, out="p", **how)
    words = ["bench", "--data", mine, "--models", "gcn", "--seeds", "1", "--epochs", "3"]
    assert main([*words, "--precision", "bf16-mixed", "--accumulate", "2", "--out", "c"]) == 0
    told = json.loads(Path("c/results.json").read_text())["runs"][0]["history"]
    losses = [[row["val_loss"] for row in rows] for rows in (found.runs[0].history, told)]
    assert losses[0] == losses[1]
    plain = graphtheory.bench(mine, ["gcn"], **how)
    assert losses[0] != [row["val_loss"] for row in plain.runs[0].history]


def test_progress_is_told_of_alike(
    mine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch_sparse", reason="PyG's sampler needs torch-sparse")
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    graphtheory.bench("mine.pt", ("gcn", "mlp"), seeds=1, epochs=2, options={"batch_size": 6})
    python = capsys.readouterr().err
    words = ("--models", "gcn,mlp", "--seeds", "1", "--epochs", "2", "--set", "batch_size=6")
    assert main(["bench", "--data", mine, *words]) == 0
    times = r"\d+\.\d s|  \(.* left.*\)"
    command = re.sub("(?m)^report.*\n", "", capsys.readouterr().err)  # said if it takes seconds
    lines = [re.sub(times, "", said) for said in (python, command)]
    assert lines[0] == lines[1]
    assert "run 1/2  gcn, epoch 1 of at most 2 (33% of it)\n" in lines[0]  # 18 labels in threes
    assert re.search(r"run 1/2  gcn, seed 0: test .*, validation .* after 2 epochs", lines[0])


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
    assert python == [(threads, 2)] * 7  # two candidates on three splits each, and the run
    words = [f"--{name}={value}" for name, value in options.items()]
    assert main(["bench", "--data", mine, "--models", "gcn", *words]) == 0
    assert seen == python * 2 and torch.get_num_threads() == 2


def test_only_a_search_imports_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "graphtheory.lab.bench.search", raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    quick: dict[str, Any] = {"seeds": 1, "epochs": 1, "progress": False}
    assert bench(ring(), ("mlp",), **quick).runs
    with pytest.raises(ImportError, match="optuna"):
        bench(ring(), ("mlp",), budget="5s", **quick)
