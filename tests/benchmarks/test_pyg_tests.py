"""The script that runs PyG's tests, on a folder that looks as theirs."""

import csv
from pathlib import Path
from types import ModuleType

import pytest

TESTS = """
import os
import pytest

SWAPPED = "PYG_SWAP" in os.environ

def test_that_passes():
    pass

@pytest.mark.parametrize("k", [1, 2])
def test_with_ours(k):
    assert not SWAPPED or k == 2

class TestOfAClass:
    def test_that_fails(self):
        assert False

@pytest.mark.skip
def test_that_is_skipped():
    pass
"""
BROKEN = (
    "import os\nif 'PYG_SWAP' in os.environ: raise ImportError('with ours')\ndef test(): pass\n"
)


SPAWNED = """
from multiprocessing import get_context

def work():
    pass

def test_that_spawns():
    worker = get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
"""
ENDED = "import os\ndef test():\n    os._exit(3)\n"


def test_each_folder_and_failure_with_ours_has_a_row(module: ModuleType, tmp_path: Path) -> None:
    tests, out = tmp_path / "test", tmp_path / "rows.csv"
    for name, text in {"utils/test_a": TESTS, "nn/pool/test_b": BROKEN, "io/test_c": TESTS}.items():
        (tests / name).parent.mkdir(parents=True)
        (tests / f"{name}.py").write_text(text)
    out.write_text(
        "name,parameters,value\nfolder utils,tests=9,1\nold,of=folder utils; reason=x,0\nb,n=1,2\n"
    )
    module.main(tests, others=True, tested=True, out=out)
    with out.open(newline="") as file:
        found = {line["name"]: (line["parameters"], line["value"]) for line in csv.DictReader(file)}
    for name, parameters, value in (
        ("b", "n=1", "2"),
        ("folder utils", "tests=4; with_layers_of_pyg=3", "2.0"),
        ("folder nn/pool", "tests=1; with_layers_of_pyg=1", "0.0"),
    ):
        assert found.pop(name) == (parameters, value)
    assert sorted(found) == [
        "nn/pool/test_b.py::nn.pool.test_b",
        "utils/test_a.py::test_with_ours[1]",
    ]
    assert found["utils/test_a.py::test_with_ours[1]"][0].startswith(
        "of=folder utils; reason=assert"
    )
    assert found["nn/pool/test_b.py::nn.pool.test_b"][0].endswith("reason=collection failure")


def test_spawned_processes_find_tests_and_none_is_lost(module: ModuleType, tmp_path: Path) -> None:
    file, out = tmp_path / "loader" / "test_d.py", tmp_path / "rows.csv"
    file.parent.mkdir()
    file.write_text(SPAWNED)
    module.main(tmp_path, others=True, tested=True, out=out)
    kept = out.read_text()
    assert "folder loader,tests=1; with_layers_of_pyg=1,1.0" in kept
    file.write_text(SPAWNED + ENDED)
    with pytest.raises(SystemExit, match="pytest with PyG's layers ended with 3"):
        module.main(tmp_path, others=True, tested=True, out=out)
    assert out.read_text() == kept
