import re
from pathlib import Path

import pytest

from graphtheory.lab.datasets.catalogue import GIT_BLOB, SHA256, describe, names
from graphtheory.lab.datasets.files import digests, locate


def test_every_pin_is_a_hash_of_a_file_that_a_set_reads() -> None:
    known: dict[str, set[str]] = {}
    images = [describe(name, task="image") for name in names("image")]
    for info in (*map(describe, names()), *images):
        known.setdefault(info.folder, set()).update(info.files)
    for folder, pins in SHA256.items():
        for file, (size, digest) in pins.items():
            assert file in known[folder] and size > 0 and re.fullmatch("[0-9a-f]{64}", digest)
    assert all(SHA256[folder].keys() >= blobs.keys() for folder, blobs in GIT_BLOB.items())


@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "PubMed"])
def test_all_pickled_files_are_pinned(name: str) -> None:
    info = describe(name)
    assert SHA256[info.folder].keys() == set(info.files)


def test_pins_are_those_of_the_files_at_hand(data_root: Path) -> None:
    checked = 0
    for info in map(describe, names()):
        if info.folder in SHA256 and all(
            (data_root / info.folder / f).is_file() for f in info.files
        ):
            checked += len(digests(locate(info, data_root), all_pinned=True))
    assert checked >= 8 + 12 + 24 + 3 + 3 + 1
