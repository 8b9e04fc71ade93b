import hashlib
import io
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from graphtheory.lab.cli.main import main
from graphtheory.lab.datasets import files, graphs
from graphtheory.lab.datasets.catalogue import DatasetInfo, describe, names
from graphtheory.lab.datasets.files import DamagedFileError
from graphtheory.lab.datasets.graphs import load_graphs

INFO = DatasetInfo("toy", "webkb", folder="Toy/raw", files=("a.txt",), optional_files=("b.txt",))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/a.txt").write_text("1.00000")
    return tmp_path


def test_optional_files_are_taken_and_a_folder_is_no_file(toy: Path) -> None:
    assert list(files.locate(INFO, toy)) == ["Toy/raw/a.txt"]
    (toy / "Toy/raw/b.txt").write_text("more")
    assert list(files.locate(INFO, toy)) == ["Toy/raw/a.txt", "Toy/raw/b.txt"]
    (toy / "Toy/raw/a.txt").unlink()
    (toy / "Toy/raw/a.txt").mkdir()
    with pytest.raises(FileNotFoundError, match="toy: 1 of 1 raw files are missing"):
        files.locate(INFO, toy)


def test_pins_are_enforced_by_content(toy: Path) -> None:
    blob = "abcdcad948ea622cc4f4d97c80349c1ace037f72"  # printf 1.00000 | git hash-object --stdin
    info = replace(INFO, sha256={"a.txt": (7, "0" * 64)}, git_blob={"a.txt": blob})
    assert list(files.digests(info, files.locate(INFO, toy), all_pinned=True)) == ["Toy/raw/a.txt"]
    with pytest.raises(DamagedFileError, match=r"a.txt: no SHA-256 is known for it"):
        files.digests(INFO, files.locate(INFO, toy), all_pinned=True)
    found = files.locate(INFO, toy)
    digest = files.digests(INFO, found)["Toy/raw/a.txt"]
    info = replace(INFO, sha256={"a.txt": (7, digest)})
    assert files.digests(info, found, all_pinned=True) == {"Toy/raw/a.txt": digest}
    (toy / "Toy/raw/a.txt").write_text("1.0.000")
    with pytest.raises(DamagedFileError) as caught:
        files.digests(info, found)
    message = str(caught.value)
    assert str(toy / "Toy/raw/a.txt") in message and "truncated or altered" in message
    assert f"expected 7 bytes with SHA-256 {digest}, found 7 bytes with SHA-256" in message


def test_staged_copies_are_private_and_of_the_checked_content(toy: Path) -> None:
    found = files.locate(INFO, toy)
    with files.staged(found, files.digests(INFO, found)) as private:
        copy = private / "Toy/raw/a.txt"
        assert copy.read_text() == "1.00000" and not copy.is_symlink()
        assert private.stat().st_mode & 0o077 == 0
    assert not private.exists()
    checked = files.digests(INFO, found)
    (toy / "Toy/raw/a.txt").write_text("2.00000")
    with pytest.raises(DamagedFileError, match="changed while it was being read"):  # noqa: SIM117
        with files.staged(found, checked):
            pytest.fail("the altered file was handed out")


def test_counts_name_what_differs() -> None:
    counts = {"nodes": 34, "edges": 156, "features": 34, "classes": 2}
    files.verify_counts(describe("karate"), counts)
    with pytest.raises(DamagedFileError, match="karate: expected 156 edges, found 155"):
        files.verify_counts(describe("karate"), {"nodes": 34, "edges": 155})


@pytest.mark.parametrize(("name", "file"), [
    ("Cora", "ind.cora.graph"), ("Actor", "out1_graph_edges.txt"), ("reed98", "data.mat"),
    ("Cornell", "cornell_split_0.6_0.2_3.npz"), ("minesweeper", "minesweeper.npz"),
    ("facebook", "facebook_pagepage.npz"),
])  # fmt: skip
def test_every_family_finds_damage(name: str, file: str, data_root: Path, tmp_path: Path) -> None:
    folder = graphs.describe(name).folder
    shutil.copytree(data_root / folder, tmp_path / folder)
    content = (tmp_path / folder / file).read_bytes()
    one_bit = bytearray(content)
    one_bit[len(content) // 2] ^= 1
    for damaged in (content[:-1], one_bit, b"", b"<html>"):
        (tmp_path / folder / file).write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=f"{file}: expected [0-9,]+ bytes with SHA-256"):
            graphs.load(name, tmp_path)


def test_every_pin_is_a_hash_of_a_file_that_a_set_reads() -> None:
    images = [describe(name, task="image") for name in names("image")]
    for info in (*map(describe, names()), *images):
        for file, (size, digest) in info.sha256.items():
            assert file in info.files and size > 0 and re.fullmatch("[0-9a-f]{64}", digest)
        assert info.sha256.keys() >= info.git_blob.keys()
    for info in map(describe, ("Cora", "CiteSeer", "PubMed")):  # whose files are pickles
        assert info.sha256.keys() == set(info.files)


def test_pins_are_those_of_the_files_at_hand(data_root: Path) -> None:
    checked = 0
    for info in map(describe, names()):
        if info.sha256 and all((data_root / info.folder / f).is_file() for f in info.files):
            checked += len(files.digests(info, files.locate(info, data_root), all_pinned=True))
    assert checked >= 8 + 12 + 24 + 3 + 3 + 1


ARRAYS = {"x": np.arange(400, dtype=np.float32).reshape(20, 20), "y": np.arange(3)}


def test_arrays_return_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "folder/set.arrays"
    assert files.read_arrays(path) is None
    for arrays in (ARRAYS, {"x": np.zeros(0)}):  # the second takes the place of the first
        files.write_arrays(path, arrays)
        stored = files.read_arrays(path)
        assert stored is not None and stored.keys() == arrays.keys()
        for name, array in arrays.items():
            assert stored[name].dtype == array.dtype and np.array_equal(stored[name], array)
    assert [p.name for p in path.parent.iterdir()] == ["set.arrays"]


def test_every_damage_is_found(tmp_path: Path) -> None:
    path, draw = tmp_path / "set.arrays", random.Random(0)
    files.write_arrays(path, ARRAYS)
    good = path.read_bytes()
    damaged = [good[:length] for length in draw.sample(range(len(good)), 100)]
    for position in draw.sample(range(len(good)), 300):
        flipped = bytearray(good)
        flipped[position] ^= 1 << draw.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="set.arrays: damaged, made again from the raw files"):
            assert files.read_arrays(path) is None


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{"an": "object"}], dtype=object))
    path = tmp_path / "set.arrays"
    path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        files.read_arrays(path)


def test_a_failed_write_leaves_what_was_there_and_a_folder_that_cannot_be_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.arrays"
    files.write_arrays(path, ARRAYS)
    good = path.read_bytes()
    with pytest.raises(OSError, match="give another folder in GRAPHTHEORY_CACHE"):
        files.write_arrays(path / "set.arrays", ARRAYS)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"cache: .*set.arrays cannot be written \(No space left"):
        files.write_arrays(path, {"x": np.zeros(1000)})
    assert path.read_bytes() == good and list(tmp_path.iterdir()) == [path]


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path))
    assert files.cache_folder() == tmp_path
    monkeypatch.delenv("GRAPHTHEORY_CACHE")
    assert files.cache_folder() == Path.home() / ".cache/graphtheory"


def test_read_once_for_each_content_again_where_the_cache_is_damaged_and_named_if_not_at_all(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, raw = [], toy / "Toy/raw/a.txt"
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(toy / "cache"))

    def read(private: Path) -> dict[str, Tensor]:
        calls.append(private)
        (private / "Toy/processed").mkdir()  # as PyG does
        return {"x": torch.tensor([float((private / "Toy/raw/a.txt").read_text())])}

    def value() -> float:
        return files.processed(INFO, toy, read)["x"].item()

    assert (value(), value(), len(calls)) == (1.0, 1.0, 1)
    (entry,) = (toy / "cache").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="damaged"):
        assert value() == 1.0
    assert (value(), len(calls)) == (1.0, 2)
    raw.write_text("2")
    assert (value(), len(calls)) == (2.0, 3)
    monkeypatch.setattr("torch_geometric.__version__", "0.0")
    assert (value(), len(calls)) == (2.0, 4)
    assert [path.name for path in (toy / "Toy").iterdir()] == ["raw"]
    raw.write_text("one")
    told = r"toy: the raw files of Toy/raw \(a.txt\) cannot be read.*'one'"
    with pytest.raises(DamagedFileError, match=told):
        value()


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
    info = DatasetInfo("toy", "webkb", files=("a.txt",))

    def read() -> Tensor:
        return files.processed(info, tmp_path, lambda private: {"x": Toy(private)[0].x})["x"]

    assert printed(read) == ("", "")
    assert torch.equal(read(), Toy(tmp_path / "theirs")[0].x)


@pytest.mark.parametrize(
    "name", ["Cora", "Actor", "Cornell", "minesweeper", "reed98", "Photo", "ENZYMES"]
)
def test_every_family_is_read_without_a_word(printed: Printed, data_root: Path, name: str) -> None:
    read = load_graphs if name == "ENZYMES" else graphs.load
    assert printed(lambda: read(name, data_root)) == ("", "")


def test_quiet_bench_writes_nothing_to_the_error_stream(
    printed: Printed, data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path / "cache"))
    words = ("bench", "-q", "--dataset", "Cornell", "--models", "mlp", "--seeds", "1")
    where = ("--root", str(data_root), "--out", str(tmp_path / "run"))
    out, err = printed(lambda: main([*words, *where, "--epochs", "2", "--distances", "0"]))
    assert err == "" and "mlp" in out
