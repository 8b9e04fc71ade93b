"""Benchmarks as commands: both sides give the same, rows are printed, unknown names are refused."""

import re
import runpy
from pathlib import Path

import pytest
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from tests.benchmarks.conftest import BENCHMARKS, run

EXAMPLES = [
    "gcn.py", "gat.py", "unimp_arxiv.py", "pna.py", "rgcn.py, FastRGCNConv", "rgcn.py, RGCNConv",
    "hgt_dblp.py", "han_imdb.py",
]  # fmt: skip
SAMPLED = ["graph_sage_unsup.py", "reddit.py", "to_hetero_mag.py"]


def printed_by(script: str, *options: str) -> str:
    result = run(script, *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_example_models_have_the_same_losses_in_both_libraries() -> None:
    printed = printed_by("end_to_end", "--threads", "1", "--quick")
    samples = WITH_PYG_LIB or WITH_TORCH_SPARSE
    assert samples or f"for want of torch-sparse or pyg-lib: {', '.join(SAMPLED)}" in printed
    for example in EXAMPLES + SAMPLED * samples:
        gap = re.search(rf"relative difference of the loss, {example}.*? ([\d.e+-]+) 1 ", printed)
        assert gap is not None
        assert float(gap[1]) < 1e-5  # dropout of features from other numbers differs by 1e-1
        assert f"times faster than PyG: {example}" in printed
    assert "without attention dropout" in printed


def test_small_graphs_have_the_same_gradients_in_both_libraries() -> None:
    printed = printed_by("molecules", "--threads", "1", "--quick")
    gap = re.search(r"largest relative difference of the gradients +(\S+)", printed)
    assert gap is not None and float(gap[1]) < 1e-10
    assert "step, GPSConv, PyG over GPSConv, ours, distances" in printed


@pytest.mark.slow  # six processes that each import torch
def test_a_conversion_that_is_killed_twice_gives_the_same_files() -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    printed = printed_by("parquet", "--quick")
    assert "files equal after two kills" in printed and "100 steps" in printed


SMALL = "--nodes 50 --edges 200"


@pytest.mark.parametrize(("script", "options", "expected"), [
    ("ops", "--graphs molecules --shapes 2x4 --no-compiled", "times faster than PyG: graphtheory"),
    ("parts", f"--layer GINEConv {SMALL} --channels 4", "loop mapped_sum_loop.*the rest: torch"),
    ("first_call", "--measure GCNConv graphtheory 50 200 0", r"\A\S+\s*\Z"),
    ("first_call", "--measure-together float32 50 200 0", r"\A\S+\s*\Z"),
    ("memory", f"{SMALL} --heads 2 --measure graphtheory", r"\A\d+\s*\Z"),
])  # fmt: skip
def test_a_small_run_prints_its_rows(script: str, options: str, expected: str) -> None:
    printed = printed_by(script, "--repeats", "1", *options.split())
    assert re.search(expected, printed, re.DOTALL)
    assert script != "first_call" or float(printed) > 0


def test_memory_of_one_example_is_a_number_of_bytes() -> None:
    options = ["--threads", "1", *SMALL.split()]
    case = ["--measure", "unimp_arxiv.py on 50 nodes", "graphtheory"]
    assert int(printed_by("end_to_end", *options, *case)) >= 0


@pytest.mark.parametrize(("script", "arguments", "word"), [
    ("predicted", ("--graphs", "pubmad"), "pubmad"),
    ("predicted", ("--shapes", "8y16"), "8x16"), ("thresholds", ("--constants", "FAAR"), "FAR"),
    ("parts", ("--layer", "PyG GATv2Conv"), "GATv2Conv"),
])  # fmt: skip
def test_unknown_names_are_refused(script: str, arguments: tuple[str, ...], word: str) -> None:
    told = run(script, *arguments)
    assert told.returncode == 2
    assert word in told.stdout + told.stderr and "Traceback" not in told.stderr


@pytest.mark.parametrize("script", ["ops", "gpu", "indices", "sets", "flex", "predicted"])
def test_no_list_of_names_is_any_text(script: str) -> None:
    text = (BENCHMARKS / f"{script}.py").read_text().partition("def main(")[2]
    assert "Shape" in text and "tuple[str, ...]" not in text


def test_an_installation_weighs_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    size = runpy.run_path(str(BENCHMARKS / "install.py"))["size"]
    (tmp_path / "inner").mkdir()
    (tmp_path / "one").write_bytes(bytes(1_000_000))
    (tmp_path / "inner" / "two").write_bytes(bytes(500_000))
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert size(tmp_path) == pytest.approx(1.5)
