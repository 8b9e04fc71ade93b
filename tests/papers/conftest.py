import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.lab.cli import main
from graphtheory.papers import index
from tests.lab.bench.conftest import listen, small_space  # noqa: F401  (fixtures)

Reproduced = Callable[[str, Callable[[Any], Any]], str]


@pytest.fixture
def reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Reproduced:
    """Makes a figure from the command line in a small form, from seed 3 on or on its default data.

    It looks at what is printed and written, and returns the verdict.
    """

    def reproduce(name: str, small: Callable[[Any], Any]) -> str:
        figure = replace(figures[name], quick=small)
        monkeypatch.setattr(index, "figure", lambda _: figure)
        first = () if figure.data else ("--seed", "3")
        assert main(["reproduce", name, "--quick", *first, "--out", str(tmp_path)]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        (path,) = tmp_path.glob("*.json")
        found = json.loads(path.read_text())
        assert found["verdict"] in printed
        assert not first or found["rows"][0]["seed"] == 3
        assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
        assert path.with_suffix(".csv").exists()
        return found["verdict"]

    figures = index.figures()
    return reproduce
