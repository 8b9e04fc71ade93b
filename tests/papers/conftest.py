from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Generator

from graphtheory.lab.datasets.embedded import CoreNeighborhoodGraph
from graphtheory.lab.datasets.image_sets import Images, ImageSet
from graphtheory.papers.core_neighborhood import training as core
from tests.lab.bench.conftest import listen, small_space  # noqa: F401  (fixtures)

_FEW = 300  # images of each part


def drawn(seed: int = 0) -> Generator:
    """A source of randomness of its own."""
    return Generator().manual_seed(seed)


def entries(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """What each row holds under the names."""
    return [tuple(row[name] for name in names) for row in rows]


def refuses(*cases: tuple[Callable[[], Any], str], error: type[Exception] = ValueError) -> None:
    """Asserts that each call raises the error with its message."""
    for call, message in cases:
        with pytest.raises(error, match=message):
            call()


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first images of each part stand for all, where a test asks what is done with them."""
    part = ImageSet._part

    def few(images: ImageSet, *names: object) -> Images:
        return Images(*(of[:_FEW] for of in part(images, *names)))

    monkeypatch.setattr(ImageSet, "_part", few)


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def capped(graph: CoreNeighborhoodGraph) -> CoreNeighborhoodGraph:
        return replace(graph, num_nodes=120, degree=10)

    monkeypatch.setattr(core, "capped", capped)
