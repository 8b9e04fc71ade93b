from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from graphtheory.lab.cli.main import main
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.cache import processed
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.graph_sets import load_graphs

Printed = Callable[[Callable[[], Any]], tuple[str, str]]


class Toy(InMemoryDataset):
    """One graph without files, as PyG's classes make theirs."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self) -> str:
        return "data.pt"

    def process(self) -> None:
        self.save([Data(x=torch.ones(3, 2))], self.processed_paths[0])


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Printed:
    """What a call writes to both streams outside of pytest, in which PyG prints nothing."""

    def call(work: Callable[[], Any]) -> tuple[str, str]:
        with monkeypatch.context() as outside:
            outside.delenv("PYTEST_CURRENT_TEST")
            work()
        return capfd.readouterr()

    return call


def test_nothing_is_printed_and_the_same_is_read(printed: Printed, tmp_path: Path) -> None:
    assert printed(lambda: Toy(tmp_path / "theirs")) == ("", "Processing...\nDone!\n")
    (tmp_path / "a.txt").write_text("")
    info, cache = DatasetInfo("toy", "webkb", files=("a.txt",)), tmp_path / "cache"

    def read() -> Tensor:
        return processed(info, tmp_path, cache, lambda private: {"x": Toy(private)[0].x})["x"]

    assert printed(read) == ("", "")
    assert torch.equal(read(), Toy(tmp_path / "theirs")[0].x)


@pytest.mark.parametrize("name", ["Cora", "Actor", "Cornell", "minesweeper", "reed98", "Photo"])
def test_every_family_of_graphs_is_read_without_a_word(
    printed: Printed, data_root: Path, tmp_path: Path, name: str
) -> None:
    assert printed(lambda: graphs.load(name, data_root, cache=tmp_path)) == ("", "")


def test_a_set_of_graphs_is_read_without_a_word(
    printed: Printed, data_root: Path, tmp_path: Path
) -> None:
    assert printed(lambda: load_graphs("ENZYMES", data_root, cache=tmp_path)) == ("", "")


def test_quiet_bench_writes_nothing_to_the_error_stream(
    printed: Printed, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    words = ("bench", "-q", "--dataset", "Cornell", "--models", "mlp", "--seeds", "1")
    where = ("--root", str(data_root), "--out", str(tmp_path / "run"))
    out, err = printed(lambda: main([*words, *where, "--epochs", "2", "--distances", "0"]))
    assert err == "" and "mlp" in out
