import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from graphtheory.lab.cli import main
from graphtheory.lab.datasets.image_sets import Images, ImageSet
from graphtheory.papers import index
from tests.lab.bench.conftest import listen, small_space  # noqa: F401  (fixtures)

_FEW = 300  # images of each part


class Reproduced(Protocol):
    """A figure's name and small form, its data set, what is printed -> its verdict."""

    def __call__(
        self, name: str, small: Callable[[Any], Any], dataset: str = "", *told: str
    ) -> str: ...


@pytest.fixture
def reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Reproduced:
    """Makes a figure from the command line in a small form, from seed 3 on or on its default data.

    It looks at what is printed and written, and returns the verdict.
    """

    def reproduce(name: str, small: Callable[[Any], Any], dataset: str = "", *told: str) -> str:
        figure = replace(figures[name], quick=small)
        monkeypatch.setattr(index, "figure", lambda _: figure)
        given = ["--dataset", dataset] if dataset else [] if figure.data else ["--seed", "3"]
        assert main(["reproduce", name, "--quick", *given, "--out", str(tmp_path)]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        (path,) = tmp_path.glob("*.json")
        found = json.loads(path.read_text())
        assert found["verdict"] in printed and all(words in printed for words in told)
        assert figure.data or found["rows"][0]["seed"] == 3
        assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
        with path.with_suffix(".csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows and all(f"dataset={dataset}" in row["parameters"] for row in rows if dataset)
        return found["verdict"]

    figures = index.figures()
    return reproduce


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first images of each part stand for all, where a test asks what is done with them."""
    part = ImageSet._part

    def few(images: ImageSet, *names: object) -> Images:
        return Images(*(of[:_FEW] for of in part(images, *names)))

    monkeypatch.setattr(ImageSet, "_part", few)
