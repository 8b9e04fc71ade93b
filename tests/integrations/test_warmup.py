"""Kernels are compiled ahead of time, and whoever waits for a compiler is told so, once."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from numba.core import event

import graphtheory
from graphtheory import nn
from graphtheory.graph import compiling

STEP = """
import logging, sys, torch
from graphtheory.nn import GCNConv
logging.getLogger("graphtheory").setLevel(sys.argv[1])
edge_index, x = torch.tensor([[0, 1], [1, 2]]), torch.ones(3, 4, requires_grad=True)
for _ in range(2):
    GCNConv(4, 4)(x, edge_index).sum().backward()
"""


def test_a_process_that_compiles_says_so_once_unless_its_logger_is_silent(tmp_path: Path) -> None:
    def told(cache: str, level: str = "WARNING") -> list[str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / cache)}
        command = [sys.executable, "-c", STEP, level]
        ran = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
        return ran.stderr.splitlines()

    (line,) = told("new")
    assert line.startswith("graphtheory is compiling its CPU kernels") and "warmup" in line
    assert told("new") == []  # what is on the disk is read
    assert told("other", "ERROR") == []


def test_what_takes_no_time_or_is_not_ours_is_not_announced(caplog, monkeypatch) -> None:
    clock = iter([0.0, 0.4, 10.0, 10.4, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0])
    monkeypatch.setattr(compiling, "perf_counter", lambda: next(clock))
    notice = compiling._Notice()

    def compiled(module: str) -> None:
        dispatcher = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
        found = SimpleNamespace(data={"dispatcher": dispatcher})
        notice.on_start(found), notice.on_end(found)

    counts = []
    for module in (
        "graphtheory.ops",
        "graphtheory.ops",
        "mine",
        "graphtheory.ops",
        "graphtheory.ops",
    ):
        compiled(module)
        counts.append(len(caplog.records))
        if module == "mine":
            next(clock)
    assert counts == [0, 0, 0, 1, 1]


@pytest.mark.timeout(400)
def test_after_a_warmup_no_usual_layer_compiles() -> None:
    folder = graphtheory.warmup()
    assert folder.is_dir() and list(folder.rglob("launch.take_chunk*.nbi"))
    with event.install_recorder("numba:compile") as recorder:
        for nodes, edges in ((50, 300), (2_000, 40_000)):
            edge_index = torch.randint(nodes, (2, edges))
            for kind in (nn.GATConv, nn.TransformerConv):
                x = torch.randn(nodes, 20, requires_grad=True)
                kind(20, 32, heads=4)(x, edge_index).sum().backward()
    assert recorder.buffer == []
