import hashlib
import io
import random
from pathlib import Path

import numpy as np
import pytest

from graphtheory.lab.datasets import cache as storage

ARRAYS = {"x": np.arange(400, dtype=np.float32).reshape(20, 20), "y": np.arange(3)}


def test_arrays_return_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "folder/set.arrays"
    assert storage.read(path) is None
    for arrays in (ARRAYS, {"x": np.zeros(0)}):  # the second takes the place of the first
        storage.write(path, arrays)
        stored = storage.read(path)
        assert stored is not None and stored.keys() == arrays.keys()
        for name, array in arrays.items():
            assert stored[name].dtype == array.dtype and np.array_equal(stored[name], array)
    assert [p.name for p in path.parent.iterdir()] == ["set.arrays"]


def test_every_damage_is_found(tmp_path: Path) -> None:
    path, draw = tmp_path / "set.arrays", random.Random(0)
    storage.write(path, ARRAYS)
    good = path.read_bytes()
    damaged = [good[:length] for length in draw.sample(range(len(good)), 100)]
    for position in draw.sample(range(len(good)), 300):
        flipped = bytearray(good)
        flipped[position] ^= 1 << draw.randrange(8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="set.arrays: damaged, made again from the raw files"):
            assert storage.read(path) is None


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{"an": "object"}], dtype=object))
    path = tmp_path / "set.arrays"
    path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    with pytest.raises(ValueError, match="allow_pickle=False"):
        storage.read(path)


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "set.arrays"
    storage.write(path, ARRAYS)
    good = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"cache: .*set.arrays cannot be written \(No space left"):
        storage.write(path, {"x": np.zeros(1000)})
    assert path.read_bytes() == good and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="give another folder as cache= or in GRAPHTHEORY_CACHE"):
        storage.write(tmp_path / "file/set.arrays", ARRAYS)


def test_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRAPHTHEORY_CACHE", str(tmp_path))
    assert storage.default_folder() == tmp_path
    monkeypatch.delenv("GRAPHTHEORY_CACHE")
    assert storage.default_folder() == Path.home() / ".cache/graphtheory"
