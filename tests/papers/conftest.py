import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.cli import main
from graphtheory.papers import index
from tests.bench.conftest import listen, small_space  # noqa: F401  (fixtures)

Reproduced = Callable[[str, Callable[[Any], Any]], str]


@pytest.fixture
def reproduced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Reproduced:
    """Makes a figure that draws its own data from the command line, in a small form.

    It looks at what is printed and written, and returns the verdict.
    """

    def reproduce(name: str, small: Callable[[Any], Any]) -> str:
        figure = replace(figures[name], quick=small)
        monkeypatch.setattr(index, "figures", lambda: {name: figure})
        words = ["reproduce", name, "--quick", "--seed", "3", "--out", str(tmp_path)]
        assert main(words) == 0
        printed = " ".join(capsys.readouterr().out.split())
        found = json.loads((tmp_path / f"{name}.json").read_text())
        assert found["verdict"] in printed and found["rows"][0]["seed"] == 3
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert (tmp_path / f"{name}.csv").exists()
        return found["verdict"]

    figures = index.figures()
    return reproduce
