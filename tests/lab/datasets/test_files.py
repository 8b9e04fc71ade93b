import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import DatasetInfo, describe, names
from graphtheory.lab.datasets.files import DamagedFileError, digests, locate, staged, verify_counts

INFO = DatasetInfo("toy", "webkb", folder="Toy/raw", files=("a.txt",), optional_files=("b.txt",))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "Toy/raw").mkdir(parents=True)
    (tmp_path / "Toy/raw/a.txt").write_text("content")
    return tmp_path


def test_optional_files_are_taken_where_present(toy: Path) -> None:
    assert list(locate(INFO, toy)) == ["Toy/raw/a.txt"]
    (toy / "Toy/raw/b.txt").write_text("more")
    assert list(locate(INFO, toy)) == ["Toy/raw/a.txt", "Toy/raw/b.txt"]


def test_a_folder_in_the_place_of_a_file_is_missing(toy: Path) -> None:
    (toy / "Toy/raw/a.txt").unlink()
    (toy / "Toy/raw/a.txt").mkdir()
    with pytest.raises(FileNotFoundError, match="toy: 1 of 1 raw files are missing"):
        locate(INFO, toy)


def test_pins_are_enforced_by_content(toy: Path) -> None:
    found = locate(INFO, toy)
    digest = digests(INFO, found)["Toy/raw/a.txt"]
    info = replace(INFO, sha256={"a.txt": (7, digest)})
    assert digests(info, found, all_pinned=True) == {"Toy/raw/a.txt": digest}
    (toy / "Toy/raw/a.txt").write_text("conTent")
    with pytest.raises(DamagedFileError) as caught:
        digests(info, found)
    message = str(caught.value)
    assert str(toy / "Toy/raw/a.txt") in message and "truncated or altered" in message
    assert f"expected 7 bytes with SHA-256 {digest}, found 7 bytes with SHA-256" in message


def test_a_git_blob_id_is_a_pin_too(toy: Path) -> None:
    blob = "6b584e8ece562ebffc15d38808cd6b98fc3d97ea"  # printf content | git hash-object --stdin
    info = replace(INFO, sha256={"a.txt": (7, "0" * 64)}, git_blob={"a.txt": blob})
    assert list(digests(info, locate(INFO, toy), all_pinned=True)) == ["Toy/raw/a.txt"]


def test_without_a_pin_a_pickle_is_not_opened(toy: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"a.txt: no SHA-256 is known for it"):
        digests(INFO, locate(INFO, toy), all_pinned=True)


def test_staged_copies_are_private_and_vanish(toy: Path) -> None:
    found = locate(INFO, toy)
    with staged(found, digests(INFO, found)) as private:
        copy = private / "Toy/raw/a.txt"
        assert copy.read_text() == "content" and not copy.is_symlink()
        assert private.stat().st_mode & 0o077 == 0
    assert not private.exists()


def test_a_file_that_changes_after_the_check_is_refused(toy: Path) -> None:
    found = locate(INFO, toy)
    checked = digests(INFO, found)
    (toy / "Toy/raw/a.txt").write_text("swapped")
    with pytest.raises(DamagedFileError, match="changed while it was being read"):  # noqa: SIM117
        with staged(found, checked):
            pytest.fail("the altered file was handed out")


def test_counts_name_what_differs() -> None:
    verify_counts(describe("karate"), {"nodes": 34, "edges": 156, "features": 34, "classes": 2})
    with pytest.raises(DamagedFileError, match="karate: expected 156 edges, found 155"):
        verify_counts(describe("karate"), {"nodes": 34, "edges": 155})


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Cora", "ind.cora.graph"),
        ("Actor", "out1_graph_edges.txt"),
        ("Cornell", "cornell_split_0.6_0.2_3.npz"),
        ("minesweeper", "minesweeper.npz"),
        ("reed98", "data.mat"),
        ("facebook", "facebook_pagepage.npz"),
    ],
)
@pytest.mark.parametrize("damage", ["truncated", "one bit", "empty", "html"])
def test_damage_is_found_in_every_family(
    name: str, file: str, damage: str, data_root: Path, tmp_path: Path
) -> None:
    folder = graphs.describe(name).folder
    shutil.copytree(data_root / folder, tmp_path / folder)
    path = tmp_path / folder / file
    content = bytearray(path.read_bytes())
    if damage == "one bit":
        content[len(content) // 2] ^= 1
    path.write_bytes(
        {"truncated": content[:-1], "one bit": content, "empty": b"", "html": b"<html>"}[damage]
    )
    with pytest.raises(DamagedFileError, match=f"{file}: expected [0-9,]+ bytes with SHA-256"):
        graphs.load(name, tmp_path)


def test_every_pin_is_a_hash_of_a_file_that_a_set_reads() -> None:
    images = [describe(name, task="image") for name in names("image")]
    for info in (*map(describe, names()), *images):
        for file, (size, digest) in info.sha256.items():
            assert file in info.files and size > 0 and re.fullmatch("[0-9a-f]{64}", digest)
        assert info.sha256.keys() >= info.git_blob.keys()


@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "PubMed"])
def test_all_pickled_files_are_pinned(name: str) -> None:
    info = describe(name)
    assert info.sha256.keys() == set(info.files)


def test_pins_are_those_of_the_files_at_hand(data_root: Path) -> None:
    checked = 0
    for info in map(describe, names()):
        if info.sha256 and all((data_root / info.folder / f).is_file() for f in info.files):
            checked += len(digests(info, locate(info, data_root), all_pinned=True))
    assert checked >= 8 + 12 + 24 + 3 + 3 + 1
