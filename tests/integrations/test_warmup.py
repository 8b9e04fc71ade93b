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
from graphtheory import Neighborhood, nn
from graphtheory.graph import compiling
from graphtheory.patterns import AddSelf, Compose, KHop, Sample
from tests.conftest import logged

# Two processes that have nothing compiled, one after the other; a line says where the first ends.
CALLS = """
import os, sys
from itertools import count
import torch
from graphtheory import Neighborhood, ops
from graphtheory.graph import compiling
compiling.perf_counter = count().__next__  # everything takes a second, a small loop too
for end in ("-- compiled\\n", ""):
    if not (child := os.fork()):
        nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
        for _ in range(2):
            ops.edge_softmax(torch.ones(2, 1), nb, backend="numba_csr")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(end, end="", file=sys.stderr, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_process_that_compiles_says_so_once(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", CALLS]
    ran = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    line, *others = ran.stderr.splitlines()
    assert line.startswith("graphtheory is compiling its CPU kernels") and "warmup" in line
    assert others == ["-- compiled"]  # what is on the disk is read


@pytest.mark.parametrize(("level", "records"), [("WARNING", 1), ("ERROR", 0)])
def test_what_takes_no_time_or_is_not_ours_is_not_announced(monkeypatch, level, records) -> None:
    clock = iter([0.0, 0.4, 10.0, 10.4, 20.0, 21.0, 30.0, 31.0, 40.0, 41.0])
    monkeypatch.setattr(compiling, "perf_counter", lambda: next(clock))
    notice = compiling._Notice()

    def compiled(module: str) -> None:
        dispatcher = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
        found = SimpleNamespace(data={"dispatcher": dispatcher})
        notice.on_start(found), notice.on_end(found)

    counts, ours = [], "graphtheory.ops"
    with logged("graphtheory", level) as said:
        for module in (ours, ours, "mine", ours, ours):
            compiled(module)
            counts.append(len(said.getvalue().splitlines()))
            if module == "mine":
                next(clock)
    assert counts == [0, 0, 0, records, records]


@pytest.mark.timeout(400)
def test_after_a_warmup_no_usual_layer_compiles() -> None:
    folder = graphtheory.warmup()
    assert folder.is_dir() and list(folder.rglob("rows.softmax_rows*.nbi"))
    with event.install_recorder("numba:compile") as recorder:
        for nodes, edges in ((50, 300), (2_000, 40_000)):
            edge_index = torch.randint(nodes, (2, edges))
            Compose(KHop(2), Sample(20), AddSelf())(Neighborhood.from_edge_index(edge_index, nodes))
            for kind in (nn.GATConv, nn.TransformerConv):
                x = torch.randn(nodes, 20, requires_grad=True)
                kind(20, 32, heads=4)(x, edge_index).sum().backward()
    assert recorder.buffer == []
