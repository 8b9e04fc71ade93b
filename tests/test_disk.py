"""Files that are whole or absent; the rest of it is in tests/train/test_checkpoint.py."""

import io
import os
import time
import zipfile
from pathlib import Path

import pytest
import torch

from graphtheory.disk import load_tensors, replace_file


def test_drafts_of_killed_writers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"
    old, young, other = (
        tmp_path / f".{name}.draft" for name in ("a[1].json.7", "a[1].json.8", "a1.json.7")
    )
    for draft in (old, young, other):
        draft.touch()
    for draft in (old, other):
        os.utime(draft, (time.time() - 7_200,) * 2)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert sorted(tmp_path.iterdir()) == sorted([path, young, other])


def test_compressed_parts_are_refused_before_they_fill_the_memory() -> None:
    stored, packed = io.BytesIO(), io.BytesIO()
    torch.save(torch.zeros(1_000), stored)
    assert load_tensors(stored.getvalue()).numel() == 1_000
    with zipfile.ZipFile(stored) as given, zipfile.ZipFile(packed, "w") as made:
        for part in given.infolist():
            how = zipfile.ZIP_DEFLATED if "data/" in part.filename else zipfile.ZIP_STORED
            made.writestr(part.filename, given.read(part), how)
    with pytest.raises(ValueError, match="compressed parts"):
        load_tensors(packed.getvalue())
