"""Files that are whole or absent; the rest of it is in tests/train/test_checkpoint.py."""

import os
import time
from pathlib import Path

from graphtheory.disk import replace_file


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
