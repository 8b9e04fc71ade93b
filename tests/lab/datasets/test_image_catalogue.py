import pytest

from graphtheory.lab.datasets import catalogue, image_catalogue


def test_names_are_found_in_any_case_and_unknown_ones_get_the_nearest() -> None:
    assert image_catalogue.describe("CIFAR10_JPEG").name == "cifar10-jpeg"
    with pytest.raises(ValueError, match=r"'mnits', expected .*`graphtheory datasets`.*'mnist'"):
        image_catalogue.describe("mnits")


def test_every_entry_is_complete() -> None:
    for info in map(image_catalogue.describe, image_catalogue.names()):
        assert info.task == "image" and info.citation and info.default_split == "random-90-10"
        assert info.embedded or (info.folder and info.files and info.source)
        assert {"images", "test images", "classes"} == dict(info.counts).keys()


def test_only_digits_is_a_graph_too() -> None:
    both = {*image_catalogue.names()} & {*catalogue.names()}
    assert both == {"digits"} and image_catalogue.is_known("MNIST")
    assert not image_catalogue.is_known("Cora")
