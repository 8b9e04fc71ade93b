from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphtheory.lab.datasets.cache import processed
from graphtheory.lab.datasets.catalogue import DatasetInfo
from graphtheory.lab.datasets.files import DamagedFileError

INFO = DatasetInfo("toy", "webkb", folder="Toy/raw", files=("a.txt",))


class _Reader:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, private: Path) -> Mapping[str, Tensor]:
        self.calls += 1
        (private / "Toy/processed").mkdir()  # as PyG does
        return {"x": torch.tensor([float((private / "Toy/raw/a.txt").read_text())])}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/a.txt").write_text("1")
    return tmp_path


def test_read_once_for_each_content(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, cache = _Reader(), toy / "cache"
    values = [processed(INFO, toy, cache, read)["x"].item() for _ in range(2)]
    assert values == [1.0, 1.0] and read.calls == 1
    (toy / "Toy/raw/a.txt").write_text("2")
    assert processed(INFO, toy, cache, read)["x"].item() == 2.0 and read.calls == 2
    monkeypatch.setattr("torch_geometric.__version__", "0.0")
    processed(INFO, toy, cache, read)
    assert read.calls == 3
    assert sorted(p.name for p in (toy / "Toy").iterdir()) == ["raw"]


def test_a_damaged_cache_is_made_again(toy: Path) -> None:
    read, cache = _Reader(), toy / "cache"
    processed(INFO, toy, cache, read)
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged"):
        assert processed(INFO, toy, cache, read)["x"].item() == 1.0
    assert read.calls == 2
    assert processed(INFO, toy, cache, read)["x"].item() == 1.0 and read.calls == 2


def test_what_a_reader_stumbles_over_names_the_folder(toy: Path) -> None:
    (toy / "Toy/raw/a.txt").write_text("one")
    with pytest.raises(
        DamagedFileError, match=r"toy: the raw files of Toy/raw cannot be read.*'one'"
    ):
        processed(INFO, toy, toy / "cache", _Reader())
    assert not (toy / "cache").exists()
