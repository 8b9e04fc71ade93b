import dataclasses

import pytest

from graphtheory.lab.datasets import graph_readers, image_sets, node_readers
from graphtheory.lab.datasets.catalogue import describe, known_seed, names


def test_names_and_seeds() -> None:
    assert len({name.lower() for name in names()}) == len(names()) >= 25
    for name in names():
        assert describe(name) == describe(name.upper()) == describe(name.replace("-", "_"))
        assert describe(name).name == name
    assert names() == [
        n for n in names() if n in {*names("node"), *names("graph"), *names("pairs")}
    ]
    assert not {*names("node")} & {*names("graph")}
    assert known_seed(3) == 3
    for wrong in (-1, 1.0, True, "0", None):
        with pytest.raises(ValueError, match=r"seed: got .*, expected a whole number"):
            known_seed(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrong", "told"), [
    *((near, f"{near!r}, expected .*; did you mean {name!r}") for near, name in (
        ("Coar", "Cora"), ("pubmd", "PubMed"), ("minesweper", "minesweeper"),
        ("actors", "Actor"))),
    ("xyzzyx", "'xyzzyx', expected one of digits, karate"),
])  # fmt: skip
def test_unknown_names_get_the_nearest_or_the_list(wrong: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        describe(wrong)


def test_every_entry_is_complete_frozen_and_has_a_reader() -> None:
    metrics = {"accuracy", "rocauc", "ap", "mae", "rmse", "f1"}
    readers = {"node": node_readers.READERS, "graph": graph_readers.READERS}
    for info in map(describe, names()):
        assert info.citation and info.default_split == info.splits[0]
        assert info.metric in metrics and (info.task == "node" or info.features)
        assert info.embedded or (info.folder and info.files and info.source)
        with pytest.raises(dataclasses.FrozenInstanceError):
            info.name = "other"  # type: ignore[misc]
        known = {"embedded", *readers.get(info.task, {"graph6": None})}
        assert info.family in known, info.name


def test_every_image_set_is_complete_and_only_digits_is_a_graph_too() -> None:
    for name in names("image"):
        info = describe(name, task="image")
        assert info.task == "image" and info.citation and info.default_split == "random-90-10"
        assert info.embedded or (info.folder and info.files and info.source)
        assert {"images", "test images", "classes"} == dict(info.counts).keys()
    assert {*names("image")} & {*names()} == {"digits"}
    assert describe("CIFAR10_JPEG", task="image").name == "cifar10-jpeg"
    with pytest.raises(ValueError, match=r"'mnits', expected .*`graphtheory datasets`.*'mnist'"):
        image_sets.describe("mnits")
