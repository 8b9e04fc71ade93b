"""What tests of the figures of chapter 4 share."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.cli import main
from graphtheory.papers import index

Printed = Callable[..., str]


def row(value: float, seed: int, **entries: Any) -> dict[str, Any]:
    return {"learner": "a", "value": value, "seed": seed, "ended": True} | entries


@pytest.fixture
def printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Printed:
    """Runs `reproduce ID --quick` with another quick form; checks its files; what it prints."""

    def run(name: str, small: Callable[[Any], Any], *words: str, file: str = "") -> str:
        figure = replace(index.figures()[name], quick=small)
        monkeypatch.setattr(index, "figures", lambda: {name: figure})
        assert main(["reproduce", name, "--quick", *words, "--out", str(tmp_path)]) == 0
        told = " ".join(capsys.readouterr().out.split())
        file = file or name
        found = json.loads((tmp_path / f"{file}.json").read_text())
        assert found["verdict"] in told
        if "--seed" in words:
            assert found["rows"][0]["seed"] == int(words[words.index("--seed") + 1])
        assert (tmp_path / f"{file}.png").read_bytes()[:4] == b"\x89PNG"
        assert (tmp_path / f"{file}.csv").exists()
        return told

    return run
